"""Several sets of examples are one: no graph is in it twice, and no drift between them is learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnxgraphs import residual

from ngbkit import predict
from ngbkit.errors import NgbkitWarning, UsageError
from ngbkit.predict import Examples, Graph, merge, read

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def graphs(tmp_path: Path) -> dict[str, Graph]:
    return {name: read(residual(tmp_path, 8, blocks)) for blocks, name in enumerate(NAMES, start=1)}


def build(graphs: dict[str, Graph], seconds: dict[str, float], error: float = 0.01, runtime: str = "x") -> Examples:
    names = tuple(seconds)
    return Examples(
        graphs=tuple(graphs[name] for name in names),
        seconds=np.array([[value] for value in seconds.values()]),
        errors=np.full((len(names), 1), error),
        runtimes=(("cpu", runtime),),
        names=names,
        families=names,
        parents=names,
        rules=("",) * len(names),
    )


def test_a_slower_hour_is_no_property_of_a_network(graphs: dict[str, Graph]) -> None:
    """The graphs that both sets have tell the drift; the first set stays as it was."""
    first = build(graphs, {"a": 1.0, "b": 2.0, "c": 4.0})
    merged = merge(first, build(graphs, {"b": 2.2, "c": 4.4, "d": 8.8}))

    assert NAMES == merged.names
    np.testing.assert_allclose([[1.0], [2.0], [4.0], [8.0]], merged.seconds)
    np.testing.assert_allclose([0.01, 0.01 / np.sqrt(2), 0.01 / np.sqrt(2), 0.01], merged.errors[:, 0])


def test_the_better_known_label_counts_more(graphs: dict[str, Graph]) -> None:
    """A merged label follows the more precise one, and its error grows if the two contradict."""
    precise = build(graphs, {"a": 1.0, "b": 1.0, "c": 1.0}, error=0.001)
    # The mean of three residuals is the drift: b and c tell that a is off.
    vague = build(graphs, {"a": np.exp(0.3), "b": np.exp(-0.15), "c": np.exp(-0.15)}, error=0.1)
    merged = merge(precise, vague)

    np.testing.assert_allclose([[1.0]] * 3, merged.seconds, rtol=1e-4)
    assert merged.errors[0, 0] > 1.5 * merged.errors[1, 0] > 0.0015


def test_a_label_of_unknown_error_counts_as_a_vague_one(graphs: dict[str, Graph]) -> None:
    precise, vague = build(graphs, {"a": 1.0}), build(graphs, {"a": 1.05}, error=np.nan, runtime="y")
    merged = merge(precise, vague, build(graphs, {"b": 3.0}, error=np.nan))

    np.testing.assert_allclose([[1.0, 1.05], [3.0, np.nan]], merged.seconds)
    np.testing.assert_allclose([[0.01, np.nan], [np.nan, np.nan]], merged.errors)


def test_a_measurement_in_both_sets_counts_once(graphs: dict[str, Graph]) -> None:
    """A file and its copy are no two measurements."""
    examples = build(graphs, {"a": 1.0, "b": 2.0})
    merged = merge(examples, examples)

    np.testing.assert_allclose(examples.seconds, merged.seconds)
    np.testing.assert_allclose([[0.01], [0.01]], merged.errors)
    assert examples.graphs == merged.graphs


def test_devices_drift_apart(graphs: dict[str, Graph]) -> None:
    """A slower hour of one device corrects nothing of another."""
    first, second = build(graphs, {"a": 1.0, "b": 1.0}), build(graphs, {"a": 1.0, "b": 1.0})
    second = replace(second, runtimes=(("orin", "x"),))
    merged = merge(first, second, build(graphs, {"a": 2.0, "c": 2.0}))

    np.testing.assert_allclose([[1.0, 1.0], [1.0, 1.0], [1.0, np.nan]], merged.seconds)


def test_another_network_with_the_same_graph_is_reported(graphs: dict[str, Graph]) -> None:
    other = replace(build(graphs, {"a": 1.3, "b": 1.0, "c": 1.0}), names=("z", "b", "c"))

    with pytest.warns(NgbkitWarning, match="a and z have the same graph as ngbkit reads them"):
        merge(build(graphs, {"a": 1.0, "b": 1.0, "c": 1.0}), other)


def test_what_is_no_examples_is_refused(graphs: dict[str, Graph]) -> None:
    examples = build(graphs, {"a": 1.0})
    with pytest.raises(UsageError, match="got a str; expected Examples"):
        merge(examples, "labels.nc")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no examples to merge"):
        merge()
    lowered = replace(examples, graphs=(replace(graphs["b"], lowering="openvino"),))
    with pytest.raises(UsageError, match="got those of openvino, the export"):
        predict.merge(examples, lowered)
