"""The profile of a network has the operators that a runtime executes, and the time of each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnxgraphs import Builder, write

from ngbkit import predict
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.predict.lowering import RUNTIMES, execute, lower
from ngbkit.predict.lowering.execution import Probe, measure


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A convolution between operators that are so much smaller that a busy machine does not change the order."""
    build = Builder(64, 32)
    value = build.add("Relu", build.conv(build.add("Add", "x", "x"), 64, 9))
    return write(build.model(value), tmp_path / "net.onnx")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_time_is_of_the_operators_that_do_the_work(runtime: str, network: Path) -> None:
    """A convolution and its activation are one operator, which takes most of the time."""
    profiles = [predict.profile(str(network), runtime=runtime, calls=5) for _ in range(3)]
    graph, cost = profiles[0]
    macs = [operator.macs or 0 for operator in graph.operators]

    assert lower(network, runtime) == graph
    assert (len(graph.operators),) == cost.shape
    assert "Relu" not in {operator.kind for operator in graph.operators}
    # The least of each operator: a machine that stalls within one adds milliseconds to it.
    assert int(np.nanargmax(np.min([seconds for _, seconds in profiles], axis=0))) == int(np.argmax(macs))
    assert (cost[np.isfinite(cost)] >= 0).all()


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_operators_sum_up_to_a_call(runtime: str, network: Path) -> None:
    """The seconds of operators sum up to the latency of a call without the profiler."""
    execution = execute(network, runtime, calls=5)

    assert execution.latency > 0
    assert pytest.approx(execution.latency) == np.nansum(execution.seconds)


def build_probe(profiled: list[list[float]]) -> Probe:
    """Build a network whose profiler tells these seconds, a list per call."""
    graph = predict.Graph(operators=(), edges=(), inputs=(), outputs=(), shared=(), digest="")
    return Probe(run=lambda: None, run_profiled=lambda: None, read=lambda: (graph, np.array(profiled)))


def test_the_cost_of_the_profiler_is_subtracted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The profile subtracts the profiler's cost from all operators alike."""
    clock = iter(np.arange(100) * 1e-3)
    monkeypatch.setattr("time.perf_counter", lambda: float(next(clock)))
    seconds = measure(build_probe([[9.0, 9.0, 9.0]] + [[6e-6, 505e-6, 507e-6]] * 5), 5).seconds

    np.testing.assert_allclose([0.6e-6, 499e-6, 501e-6] / np.sum([0.6e-6, 499e-6, 501e-6]) * 1e-3, seconds, rtol=1e-6)


def test_the_excess_over_a_call_is_scaled_away_beyond_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """The profile scales any excess over a call, such as that of a slower machine, to that call."""
    clock = iter(np.arange(100) * 1e-3)
    monkeypatch.setattr("time.perf_counter", lambda: float(next(clock)))
    seconds = measure(build_probe([[0.0, 0.0]] + [[2.01e-3, 1.01e-3]] * 5), 5).seconds

    np.testing.assert_allclose([2 / 3 * 1e-3, 1 / 3 * 1e-3], seconds)


def test_a_file_whose_nodes_have_no_names_is_profiled_too(mlp_file: Path) -> None:
    """Each operator has a cost."""
    graph, cost = predict.profile(str(mlp_file), calls=5)

    assert {"Gemm", "MatMul", "FusedMatMul", "FusedGemm"} & {
        operator.kind.rpartition(".")[2] for operator in graph.operators
    }
    assert (cost > 0).all()


def test_other_runtimes_have_no_profiler() -> None:
    """The error names those that have."""
    with pytest.raises(UsageError, match="tells no graph; expected one of onnxruntime, openvino"):
        predict.profile("resnet18", runtime="tvm")


def test_an_unknown_name_is_an_error() -> None:
    """The profile of an unknown network raises an UnknownNameError."""
    with pytest.raises(UnknownNameError):
        predict.profile("resnte18")
