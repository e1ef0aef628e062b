"""The profile of a network attributes the time of ONNX Runtime to its operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnxgraphs import Builder, residual, write

from ngbkit import predictor
from ngbkit.errors import UnknownNameError
from ngbkit.predictor.profiling import _sum_by_operator


def test_time_is_of_the_operators_that_do_the_work(tmp_path: Path) -> None:
    """A convolution and its activation are one node of the runtime, whose time is that of the convolution."""
    build = Builder(64, 32)
    value = build.add("Relu", build.conv(build.add("Add", "x", "x"), 64, 3))
    graph, cost = predictor.profile(str(write(build.model(value), tmp_path / "net.onnx")), calls=5)

    assert ["Add", "Conv", "Relu"] == [operator.kind for operator in graph.operators]
    assert (True, True, 0.0) == (cost[0] > 0, cost[1] > 0, cost[2])


def test_fused_time_counts_for_the_most_work(tmp_path: Path) -> None:
    """Events name two outputs of operators, an operator, a fused operator, and a node of the runtime itself."""
    graph = predictor.read(residual(tmp_path, blocks=2))
    names = [operator.name for operator in graph.operators]
    producers = {f"v{index}": name for index, name in enumerate(names)}
    events = [
        {"name": f"{node_name}_kernel_time", "dur": duration}
        for duration in (9000, 1000, 1000)
        for node_name in ("v1_nchwc", names[2], f"fused {names[3]}", "ReorderInput")
    ]
    cost = _sum_by_operator(graph, producers, events, calls=2)

    assert ["Conv", "Relu", "Add"] * 2 == [operator.kind for operator in graph.operators]
    assert np.allclose([1.0, 0.0, 1.0, 1.0, 0.0, 0.0], cost)


def test_a_file_whose_nodes_have_no_names_is_profiled_too(mlp_file: Path) -> None:
    """Each operator has a cost."""
    graph, cost = predictor.profile(str(mlp_file), calls=5)

    assert ["MatMul", "Relu", "MatMul"] == [operator.kind for operator in graph.operators]
    assert 3 == len(cost)
    assert (cost[[0, 2]] > 0).all()


def test_an_unknown_name_is_an_error() -> None:
    """As everywhere."""
    with pytest.raises(UnknownNameError):
        predictor.profile("resnte18")
