"""Where the time of a network goes in ONNX Runtime, operator by operator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnxgraphs import Builder, residual, write

from ngbkit import predictor
from ngbkit.errors import UnknownNameError
from ngbkit.predictor.profiling import _by_operator


def test_time_is_of_the_operators_that_do_the_work(tmp_path: Path) -> None:
    """A convolution and its activation are one node of the runtime, whose time is the convolution's."""
    build = Builder(64, 32)
    value = build.add("Relu", build.conv(build.add("Add", "x", "x"), 64, 3))
    graph, cost = predictor.profile(str(write(build.model(value), tmp_path / "net.onnx")), calls=5)

    assert ["Add", "Conv", "Relu"] == [one.kind for one in graph.operators]
    assert (True, True, 0.0) == (cost[0] > 0, cost[1] > 0, cost[2])


def test_what_was_fused_counts_where_the_work_is(tmp_path: Path) -> None:
    """By hand: two nodes that make values of ours, one with a name of ours in it, and one that is nobody's."""
    graph = predictor.read(residual(tmp_path, blocks=2))
    names = [one.name for one in graph.operators]
    made = {f"v{at}": name for at, name in enumerate(names)}
    events = [
        {"name": f"{said}_kernel_time", "dur": duration}
        for duration in (9000, 1000, 1000)
        for said in ("v1_nchwc", names[2], f"fused {names[3]}", "ReorderInput")
    ]
    cost = _by_operator(graph, made, events, calls=2)

    assert ["Conv", "Relu", "Add"] * 2 == [one.kind for one in graph.operators]
    assert np.allclose([1.0, 0.0, 1.0, 1.0, 0.0, 0.0], cost)


def test_a_file_whose_nodes_have_no_names_is_profiled_too(mlp_file: Path) -> None:
    """Each operator has a cost of its own."""
    graph, cost = predictor.profile(str(mlp_file), calls=5)

    assert ["MatMul", "Relu", "MatMul"] == [one.kind for one in graph.operators]
    assert 3 == len(cost)
    assert (cost[[0, 2]] > 0).all()


def test_a_name_that_there_is_not_is_an_error() -> None:
    """As everywhere."""
    with pytest.raises(UnknownNameError):
        predictor.profile("resnte18")
