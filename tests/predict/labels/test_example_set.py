"""Examples are consistent, know the noise of their labels, and are saved without a loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learned import build_examples

from ngbkit import predict
from ngbkit.errors import UsageError
from ngbkit.predict import Examples
from ngbkit.predict.labels.example_set import OPERATOR


@pytest.fixture
def examples(tmp_path: Path) -> Examples:
    return build_examples(tmp_path)


def test_a_file_holds_all_of_them(examples: Examples, tmp_path: Path) -> None:
    """Every field is exactly what was saved, NaN and a missing array of errors included."""
    seconds, errors = examples.seconds.copy(), np.full(examples.seconds.shape, 0.01)
    seconds[3, 1] = errors[2, 0] = np.nan
    for saved in (examples, replace(examples, seconds=seconds, errors=errors)):
        loaded = predict.load_examples(saved.save(tmp_path / "deep" / "labels.nc"))

        assert (saved.graphs, saved.runtimes) == (loaded.graphs, loaded.runtimes)
        for name in ("names", "families", "parents", "rules"):
            assert getattr(saved, name) == getattr(loaded, name)
        np.testing.assert_array_equal(saved.seconds, loaded.seconds, strict=True)
        assert (saved.errors is None) == (loaded.errors is None)
        if saved.errors is not None:
            np.testing.assert_array_equal(saved.errors, loaded.errors, strict=True)


def test_a_graph_is_an_example_once(examples: Examples) -> None:
    """A set of examples refuses the same graph twice."""
    with pytest.raises(UsageError, match=r"got 3, of which 2 are distinct.*examples\(\) merges"):
        examples.take([0, 1, 0])


def test_fields_have_one_length(examples: Examples) -> None:
    """An array of another shape is rejected where it is given."""
    with pytest.raises(UsageError, match=r"invalid seconds: got an array of shape \(20,\)|\(40,\)"):
        replace(examples, seconds=examples.seconds[:, 0])
    with pytest.raises(UsageError, match="invalid families: got 1; expected one for each"):
        replace(examples, families=("a",))


def test_noise_is_that_of_original_networks(examples: Examples) -> None:
    """Errors of variants and of single operators do not count; the floor is the mean error of true latencies."""
    errors = np.full(examples.seconds.shape, np.nan)
    errors[:4, 0] = [0.01, 0.03, 0.5, 0.7]
    labelled = replace(
        examples,
        errors=errors,
        rules=("", "", "", "merged", *[""] * (len(examples) - 4)),
        families=("a", "a", OPERATOR, *["a"] * (len(examples) - 3)),
    )
    first, second = labelled.noise.to_dict("records")

    assert ("cpu", "openvino", len(examples) - 2, 2) == tuple(
        first[name] for name in ("device", "compiler", "graphs", "known")
    )
    assert (pytest.approx(0.02), pytest.approx(0.02 * np.sqrt(2 / np.pi), rel=1e-3)) == (first["error"], first["floor"])
    assert 0 == second["known"]
    assert np.isnan(second["floor"])
