"""Labelled samples have targets, and a function where these are no classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ngbkit.errors import NgbkitError, UsageError, WorkloadError
from ngbkit.workloads import targets
from ngbkit.workloads.targets import Targets

OUTPUTS = np.eye(4, dtype=np.float32)


def count_near(outputs: Any, lengths: np.ndarray) -> Any:
    """Compare by distance; imports are of the function itself."""
    import math

    return np.array(
        [math.isclose(got, length, abs_tol=0.5) for got, length in zip(outputs[:, 0], lengths, strict=True)]
    )


def test_the_largest_number_is_the_answer() -> None:
    """A sample is answered right where the largest number has the place of its label."""
    correct = Targets(values=np.array([0, 1, 3, 3])).compile()

    assert [True, True, False, True] == correct([OUTPUTS], np.array([0, 1, 3, 3])).tolist()


def test_a_function_travels_as_its_source() -> None:
    """A function written with def decides in place of classes, from an array that holds its source."""
    source = targets.to_source({"x": OUTPUTS, "targets": np.ones(4), "correct": count_near})
    arrays, labelled = targets.split(source, ["x"], "net")

    assert ["x"] == list(arrays)
    assert [True, False, False, False] == labelled.compile()([OUTPUTS], labelled.values).tolist()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0, 1, 2, 4]), "got targets from 0 to 4 for an output of 4 numbers; expected 0 to 3"),
        (np.ones((4, 2)), r"got float64 targets of shape \(4, 2\)"),
        (np.ones(4), "got float64 targets"),
    ],
)
def test_labels_that_are_no_classes_are_refused(labels: np.ndarray, message: str) -> None:
    """The error says what labels are, and that a function may replace them."""
    with pytest.raises(WorkloadError, match=message):
        Targets(values=labels).compile()([OUTPUTS], labels)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(outputs, targets):\n    return missing", r"raised NameError.*It sees NumPy as np"),
        ("def f(outputs, targets):\n    return 1", r"expected a truth value for each of 4 samples"),
        ("def f(outputs, targets):\n    return np.ones(4)", "got float64 of shape"),
    ],
)
def test_a_function_that_fails_is_explained(source: str, message: str) -> None:
    """The error names the exception, or what was returned in place of truth values."""
    with pytest.raises(WorkloadError, match=message):
        Targets(values=np.zeros(4), function=source).compile()([OUTPUTS], np.zeros(4))


def test_samples_without_targets_are_refused() -> None:
    """The error lists the arrays and the names that targets have."""
    with pytest.raises(UsageError, match="got x; expected an array labels or targets beside those of inputs"):
        targets.split({"x": OUTPUTS}, ["x"], "net")


def test_an_input_may_be_called_labels() -> None:
    """An array of an input is none of targets."""
    arrays, labelled = targets.split({"labels": OUTPUTS, "targets": np.zeros(4)}, ["labels"], "net")

    assert (["labels"], 4) == (list(arrays), len(labelled.values))


def test_a_lambda_is_refused() -> None:
    """A function without a source of its own cannot travel."""
    with pytest.raises(NgbkitError, match="expected a function written with def"):
        targets.to_source({"x": OUTPUTS, "labels": np.zeros(4), "correct": lambda outputs, labels: outputs == labels})
