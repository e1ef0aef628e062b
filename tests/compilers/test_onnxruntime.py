"""ONNX Runtime, held to the protocol."""

import subprocess
import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from ngbkit.compilers import onnx_graph
from ngbkit.compilers import onnxruntime as compiler
from ngbkit.testing import Attempt, CompilerConformance, observe


class TestOnnxRuntime(CompilerConformance):
    compiler = "onnxruntime"


def _attempt(network: str = "small_conv", **options: str | bool) -> Attempt:
    found = observe("onnxruntime")
    return next(attempt for attempt in found if attempt.network == network and attempt.options == options)


def test_fusions_are_counted() -> None:
    """Both convolutions take their activation in, which leaves two nodes less before others are put in between."""
    explained = _attempt(optimization="extended").explained

    assert 2 == explained["nodes_fused"] == _attempt().explained["nodes_fused"]
    assert explained["nodes_before"] - 2 == explained["nodes_after"]


def test_nothing_is_fused_without_optimisation() -> None:
    """With the optimisations off the graph is executed as it came."""
    explained = _attempt(optimization="off").explained

    assert explained["nodes_before"] == explained["nodes_after"]
    assert 0 == explained["nodes_fused"]


def test_every_node_ran_where_it_was_asked_to() -> None:
    """All nodes run on the CPU provider, so that none has fallen back."""
    assert {0} == {attempt.explained["fallbacks"] for attempt in observe("onnxruntime") if attempt.contract}


def test_a_node_on_another_provider_is_a_fallback() -> None:
    """A node is a fallback where the profile names another provider for it, however often it ran."""
    events = [
        {"cat": "Session", "name": "model_run", "args": {}},
        {"cat": "Node", "name": "conv_kernel_time", "args": {"provider": compiler.PROVIDER}},
        {"cat": "Node", "name": "loop_kernel_time", "args": {"provider": "OtherExecutionProvider"}},
        {"cat": "Node", "name": "loop_kernel_time", "args": {"provider": "OtherExecutionProvider"}},
        {"cat": "Node", "name": "conv_fence_before", "args": {}},
    ]

    assert 1 == compiler._count_fallbacks(events)


def test_spinning_is_off_and_on_it_is_in_the_contract() -> None:
    """Idle threads sleep unless they are asked to spin, and then the contract says so."""
    quiet, spinning = _attempt().contract, _attempt(spinning=True).contract

    assert quiet is not None
    assert spinning is not None
    assert ("", "idle threads spin") == (quiet.notes, spinning.notes)


def test_a_sum_within_a_convolution_is_a_fusion() -> None:
    """In the runtime's own layout a convolution with a fourth input adds as well, and a reorder fuses nothing."""
    inner = "com.microsoft.nchwc"
    plain = helper.make_node("Conv", ["x", "w", "b"], ["y"], "plain", domain=inner)
    summed = helper.make_node("Conv", ["x", "w", "", "z"], ["y"], "summed", domain=inner)
    reorder = helper.make_node("ReorderOutput", ["y"], ["o"], "reorder", domain=inner)
    contributed = helper.make_node("FusedMatMul", ["x", "w"], ["y"], "matmul", domain="com.microsoft")
    after = [plain, summed, reorder, contributed]

    assert 2 == onnx_graph.count_fused([], after)
    assert 1 == onnx_graph.count_fused([contributed], after)


def test_constants_are_no_operators(tmp_path: Path) -> None:
    """A constant of a graph computes nothing and is not counted."""
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    nodes = [helper.make_node("Constant", [], ["c"], value=one), helper.make_node("Add", ["x", "c"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    onnx.save(helper.make_model(helper.make_graph(nodes, "add", values[:1], values[1:])), tmp_path / "add.onnx")

    assert ["Add"] == [node.op_type for node in onnx_graph.read_operators(tmp_path / "add.onnx")]


def test_importing_it_keeps_no_telemetry(tmp_path: Path) -> None:
    """ONNX Runtime writes no event to the home of whoever measures, and asks nothing of the network."""
    program = """
import os, sys
asking = ("socket.connect", "socket.getaddrinfo")
sys.addaudithook(lambda event, args: os._exit(3) if event in asking else None)
from ngbkit.compilers.onnxruntime_runtime import onnxruntime
onnxruntime.SessionOptions()
"""
    home = tmp_path / "home"
    home.mkdir()
    places = {"HOME": str(home), "XDG_CACHE_HOME": str(home), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], check=False, env=places)

    assert 0 == done.returncode
    assert [] == list(home.rglob("*"))
