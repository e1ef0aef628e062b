"""Labels of equal graphs are one example; their spread is noise, and more than noise is reported."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnxgraphs import residual

from ngbkit.errors import NgbkitWarning
from ngbkit.predict import Examples, Graph, read
from ngbkit.predict.labels.merging import Label, merge_labels

RUNTIMES = (("cpu", "onnxruntime"),)


@pytest.fixture
def graphs(tmp_path: Path) -> list[Graph]:
    return [read(residual(tmp_path, 8, blocks)) for blocks in (1, 2, 3)]


def merge(*rows: tuple[Graph, str, float], error: float | None = None) -> Examples:
    labels = [
        Label(
            graph=graph,
            seconds=np.array([seconds]),
            errors=None if error is None else np.array([error]),
            texts={"names": name, "families": "f", "parents": name, "rules": ""},
        )
        for graph, name, seconds in rows
    ]
    return merge_labels(labels, RUNTIMES)


def test_a_network_measured_again_is_noise(graphs: list[Graph]) -> None:
    """Repeated labels of one network are averaged, and their deviation is noise."""
    first, second, _ = graphs
    merged = merge((first, "a", 1.0), (second, "b", 1.0), (first, "a", 1.44))

    assert ("a", "b") == merged.names
    np.testing.assert_allclose([[1.2], [1.0]], merged.seconds)
    np.testing.assert_allclose([[np.sqrt(np.pi / 2) * np.log(1.44) / 2], [np.nan]], merged.errors)


def test_another_network_with_the_same_graph_is_reported(graphs: list[Graph]) -> None:
    """The largest difference names two of them, and what to do."""
    first, second, _ = graphs
    with pytest.warns(NgbkitWarning) as caught:
        merge((first, "a", 1.0), (first, "b", 1.2), (second, "c", 1.0), (second, "d", 1.5), (second, "e", 1.51))

    (message,) = [str(warning.message) for warning in caught]
    assert "c and e have the same graph as ngbkit reads them" in message
    assert "differ by 51%" in message
    assert "3 such pairs" in message
    assert "lowered=True" in message


def test_lowered_graphs_are_reported_without_the_advice_to_lower_them(graphs: list[Graph]) -> None:
    """A runtime may run one graph in two ways."""
    lowered = replace(graphs[0], lowering="onnxruntime")
    with pytest.warns(NgbkitWarning, match="memory layouts and kernels") as caught:
        merge((lowered, "a", 1.0), (lowered, "b", 1.5))

    assert "lowered=True" not in str(caught[0].message)


@pytest.mark.parametrize(("difference", "is_reported"), [(1.09, False), (1.12, True)])
def test_unknown_noise_may_be_a_tenth(graphs: list[Graph], difference: float, is_reported: bool) -> None:
    """A warning reports two names of one graph if they differ by more than a tenth and the noise is unknown."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        merge((graphs[0], "a", 1.0), (graphs[0], "b", difference))

    assert is_reported == bool(caught)


def test_noise_is_that_of_repetitions(graphs: list[Graph]) -> None:
    """A difference within that of repetitions is not reported, even of other networks."""
    first, second, third = graphs
    merge((third, "c", 1.0), (third, "c", 1.2), (first, "a", 1.0), (first, "b", 1.2))
    with pytest.warns(NgbkitWarning, match="a and b"):
        merge((third, "c", 1.0), (third, "c", 1.001), (second, "a", 1.0), (second, "b", 1.05))


def test_stated_errors_are_noise(graphs: list[Graph]) -> None:
    """The stated errors of labels are their noise."""
    with pytest.warns(NgbkitWarning, match="a and b"):
        merge((graphs[0], "a", 1.0), (graphs[0], "b", 1.05), error=0.01)
    merged = merge((graphs[0], "a", 1.0), (graphs[0], "b", 1.05), (graphs[1], "c", 1.0), error=0.05)

    np.testing.assert_allclose([[0.05 / np.sqrt(2)], [0.05]], merged.errors)
