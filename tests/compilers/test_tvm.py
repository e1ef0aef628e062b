"""TVM passes the conformance suite, and labels its programs."""

import math
import re

import pytest
from attempts import find_attempt

from ngbkit.compilers.profiles import tvm as profiler
from ngbkit.compilers.profiles.profile import SourceNode
from ngbkit.compilers.profiles.source_graph import SourceGraph
from ngbkit.compilers.tvm import COMPILER
from ngbkit.compilers.tvm_relax.origins import FunctionCall
from ngbkit.testing import CompilerConformance, observe


class TestTvm(CompilerConformance):
    compiler = "tvm"


class TestTvmOnCuda(CompilerConformance):
    compiler = "tvm"
    accelerator = "cuda"


def test_its_numbers_are_labelled_untuned() -> None:
    """Every program reports that it is untuned, and its target."""
    attempts = [attempt for attempt in observe("tvm") if attempt.contract]

    assert {attempt.contract.notes for attempt in attempts if attempt.contract} == {"untuned"}
    assert all('"mcpu"' in attempt.facts["target"] for attempt in attempts)


def test_fused_functions_are_counted() -> None:
    """The calls of the virtual machine are counted, with both convolutions fused with their activation."""
    explained = find_attempt("tvm").explained

    assert 2 <= explained["nodes_fused"] <= explained["nodes_after"] < explained["nodes_before"]


def find_kernels(network: str) -> list[tuple[str, list[str]]]:
    """Return the kernels of a network at batch size 3, with the operators of the nodes that each computes."""
    profile = next(each.profile for each in observe("tvm") if (each.network, each.batch_size) == (network, 3))
    assert not profile["notes"]
    return [(kernel["kind"], [profile["nodes"][node][1] for node in kernel["nodes"]]) for kernel in profile["kernels"]]


def test_fused_functions_have_the_nodes_that_they_compute() -> None:
    """Each convolution has its own activation, although functions that are alike have one name."""
    assert [["Conv", "Relu"]] * 2 == [nodes for kind, nodes in find_kernels("small_conv") if "conv2d" in kind]


@pytest.mark.parametrize("network", ["small_conv", "small_attention"])
def test_every_function_and_every_node_is_mapped(network: str) -> None:
    """All kernels of a network compute nodes, those that only move values too."""
    assert all(nodes for _, nodes in find_kernels(network))


def test_what_was_not_traced_is_not_mapped() -> None:
    """Functions are not mapped by a second import that has others, and a note says so."""
    source = SourceGraph(nodes=(SourceNode(name="conv", operator="Conv"),), names={"conv": 0})
    call = FunctionCall(operators=("conv2d", "add"), nodes=("conv",), inputs=())

    assert (0,) == profiler.list_executed(["fused_conv2d3_add1"], [call], source)[0][0].claims
    for names in (["fused_conv2d_relu"], ["fused_conv2d_add", "relu"]):
        executed, notes = profiler.list_executed(names, [call], source)
        assert [()] * len(names) == [kernel.claims for kernel in executed]
        assert notes


def test_functions_that_do_not_run_have_no_seconds() -> None:
    """Seconds are those of the function in its place; a reshape runs as a step of the machine, a branch may not."""
    names = ["conv2d", "reshape", "conv2d", "add"]
    calls = [
        [("conv2d", 1.0), ("vm.builtin.reshape", 2.0), ("conv2d", 3.0), ("add", 4.0)],
        [("conv2d", 1.0), ("add", 4.0)],
    ]
    table = profiler.build_table(names, calls)

    assert [1.0, 2.0, 3.0, 4.0] == table[0].tolist()
    assert [1.0, 4.0] == [seconds for seconds in table[1].tolist() if not math.isnan(seconds)]


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        ("OpNotImplemented: The following operators are not supported for frontend ONNX: Foo", True),
        ("ValueError: Dynamic pads are not supported yet.", True),
        ("ValueError: Unsupported approximate mode for Gelu: fast", True),
        ("InternalError: Check failed: (false) is false", False),
        ("RuntimeError: could not load a library", False),
    ],
)
def test_refusals_are_told_from_failures(error: str, refused: bool) -> None:
    """Operators that the importer lacks are refusals; other errors are failures."""
    assert any(re.search(pattern, error) for pattern in COMPILER.refusals) is refused
