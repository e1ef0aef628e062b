"""ExecuTorch passes the conformance suite, and delegates to XNNPACK."""

import re
from types import SimpleNamespace

import pytest
from attempts import find_attempt

from ngbkit.compilers import executorch
from ngbkit.compilers.profiles import executorch as profiler
from ngbkit.testing import CompilerConformance, observe

REFERENCE = "ngbkit.compilers.executorch:COMPILER"


class TestExecutorch(CompilerConformance):
    compiler = REFERENCE


def test_xnnpack_takes_parts_or_single_operators() -> None:
    """XNNPACK gets the largest subgraphs by default, which are fewer than single operators."""
    parts, single = find_attempt(REFERENCE), find_attempt(REFERENCE, partition="operators")

    assert 1 <= parts.facts["delegates"] < single.facts["delegates"]


def test_what_xnnpack_leaves_is_a_fallback() -> None:
    """XNNPACK has no layer norm: it runs in ExecuTorch's own kernel and counts as a fallback."""
    explained = find_attempt(REFERENCE, "small_attention").explained

    assert 1 == explained["kernels"]["native_layer_norm.out"]
    assert explained["fallbacks"] == sum(explained["kernels"].values())
    assert explained["nodes_after"] == explained["fallbacks"] + sum(explained["operators"].values())


def test_what_xnnpack_executes_is_counted_by_kind() -> None:
    """The operators that XNNPACK executes in a call are counted by kind, without their numbers."""
    operators = find_attempt(REFERENCE).explained["operators"]

    assert 2 == sum(count for name, count in operators.items() if name.startswith("Convolution"))
    assert not [name for name in operators if "#" in name]


def test_what_is_not_traced_is_not_counted() -> None:
    """If XNNPACK leaves no trace, the number of executed nodes is omitted."""
    names = ["Method::execute", "DELEGATE_CALL", "OPERATOR_CALL", "native_call_add.out"]
    counts = executorch._count([SimpleNamespace(name=name, delegate_debug_id_str=None) for name in names])

    assert {"delegate_calls": 1, "fallbacks": 1, "kernels": {"add.out": 1}} == counts


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        ("RuntimeError: Failed to load method forward, error: 0x:14", True),
        ("RuntimeError: Failed to load method forward, error: 0x:21", False),
        ("GuardOnDataDependentSymNode: Could not guard on data-dependent expression Eq(u0, 1)", True),
        ("RuntimeError: Missing out variants: {'aten::_linalg_det'}", True),
        ("Unsupported: Attempted to call function marked as skipped", True),
        ("RuntimeError: method->execute() failed with error 0x12", False),
    ],
)
def test_refusals_are_told_from_failures(error: str, refused: bool) -> None:
    """Networks that cannot be exported and missing kernels are refusals; other errors are failures."""
    assert any(re.search(pattern, error) for pattern in executorch.COMPILER.refusals) is refused


def find_kernels(network: str) -> list[tuple[str, list[str]]]:
    """Return the kernels of a network, with the names of the nodes that each computes."""
    profile = next(each.profile for each in observe(REFERENCE) if each.network == network and each.profile)
    return [(kernel["kind"], [profile["nodes"][node][0] for node in kernel["nodes"]]) for kernel in profile["kernels"]]


def test_operators_of_xnnpack_have_the_nodes_that_they_compute() -> None:
    """A convolution of XNNPACK computes the normalisation and the activation after it, and none before it."""
    convolutions = [nodes for kind, nodes in find_kernels("small_conv") if kind.startswith("Convolution")]

    assert [
        ["0:convolution", "1:batch_norm", "2:relu"],
        ["3:convolution", "4:batch_norm", "5:relu"],
    ] == convolutions


@pytest.mark.parametrize("network", ["small_conv", "small_attention"])
def test_kernels_without_nodes_only_move_values(network: str) -> None:
    """All that computes has nodes; a change of layout for a convolution has none."""
    movers = {"Copy", "Static Reshape", "Transpose"}

    assert movers >= {kind.partition(" (")[0] for kind, nodes in find_kernels(network) if not nodes}


def test_operators_are_aligned_in_order() -> None:
    """An operator that XNNPACK has added, or whose kind is unknown, is aligned to no node."""
    kernels = [
        *("Transpose (ND, X32) #1", "Convolution (NHWC, F32) IGEMM #1", "Fully Connected (NC, F32) GEMM #1"),
        *("Add (ND) #1", "Clamp (NC) #1", "New #1"),
    ]
    nodes = [{"kind": kind} for kind in ("transpose", "depthwiseconv2d", "conv2d", "sigmoid", "add")]

    assert [0, 1, 2, 4, None, None] == profiler.align(kernels, nodes)
    assert [0] == profiler.align(["native_call_add.out"], [{"kind": ""}])
