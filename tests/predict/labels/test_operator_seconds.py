"""The profile of a network is scaled to its label."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learned import build_examples
from onnxgraphs import residual

from ngbkit.errors import UsageError
from ngbkit.predict import Graph, merge, read
from ngbkit.predict.labels.merging import merge_profiles


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return read(residual(tmp_path, 8, 1))


def test_the_first_profile_is_scaled_to_the_label(graph: Graph) -> None:
    """A later profile of the same runtime is left out; an operator without a time has none."""
    first, second = np.array([[1.0], [3.0], [np.nan]]), np.array([[60.0], [20.0], [20.0]])
    merged = merge_profiles([graph, graph], [first, second], [0, 0], np.array([[10.0]]))

    np.testing.assert_allclose([[2.5], [7.5], [np.nan]], merged[0])


def test_without_a_profile_there_is_none(graph: Graph) -> None:
    """Labels without any profile have none, and a network without one has gaps."""
    other = replace(graph, digest="other")
    profile = np.ones((3, 1))
    merged = merge_profiles([graph, other], [None, profile], [0, 1], np.array([[1.0], [6.0]]))

    assert merge_profiles([graph], [None], [0], np.ones((1, 1))) is None
    assert np.isnan(merged[0]).all()
    np.testing.assert_allclose(2.0, merged[1])


def test_a_profile_in_another_order_is_left_out(graph: Graph) -> None:
    """Equal graphs may list their operators in another order."""
    reordered = replace(graph, operators=graph.operators[::-1])
    merged = merge_profiles([graph, reordered], [np.ones((3, 1)), np.eye(3)[:, :1]], [0, 0], np.array([[3.0]]))

    np.testing.assert_allclose(1.0, merged[0])


def test_examples_with_profiles_are_merged(tmp_path: Path) -> None:
    """The operators of a network sum up to its new label."""
    examples = build_examples(tmp_path)
    slower = replace(examples, seconds=2 * examples.seconds, runtimes=(("gpu", "openvino"), ("gpu", "onnxruntime")))
    merged = merge(examples, slower)

    assert 4 == merged.operator_seconds[0].shape[1]
    np.testing.assert_allclose(merged.seconds, [values.sum(axis=0) for values in merged.operator_seconds])


def test_profiles_of_other_graphs_are_refused(tmp_path: Path) -> None:
    """The error says how to get them."""
    examples = build_examples(tmp_path)

    with pytest.raises(UsageError, match=r"invalid operator_seconds: .* as of ngbkit.predict.profile"):
        replace(examples, operator_seconds=(np.ones((1, 2)),) * len(examples))
