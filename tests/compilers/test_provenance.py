"""Kernels are mapped to the nodes that they compute, through fusions, copies and nodes without a name."""

from __future__ import annotations

from collections.abc import Sequence

from ngbkit.compilers.profiles.profile import SourceNode
from ngbkit.compilers.profiles.provenance import Executed, map_kernels


def build_chain(*operators: str) -> list[SourceNode]:
    """Nodes in a row, each named by its operator."""
    return [
        SourceNode(name=name, operator=name, inputs=(index - 1,) if index else (), moves=name == "Reshape")
        for index, name in enumerate(operators)
    ]


def list_mapped(nodes: Sequence[SourceNode], executed: Sequence[Executed]) -> list[tuple[str, tuple[int, ...]]]:
    return [(kernel.role, kernel.nodes) for kernel in map_kernels(nodes, executed)]


def test_a_node_without_a_kernel_was_fused_into_the_kernel_before_it() -> None:
    """An activation belongs to the convolution that precedes it, and not to the one that follows."""
    executed = [
        Executed(name="first", kind="Conv", operator="Conv", claims=(0,)),
        Executed(name="second", kind="Conv", operator="Conv", claims=(2,), inputs=(0,)),
    ]

    assert [("compute", (0, 1)), ("compute", (2,))] == list_mapped(build_chain("Conv", "Relu", "Conv"), executed)


def test_a_fusion_named_after_its_last_node_has_those_before_it() -> None:
    """A kernel of another operator than its node has all nodes since what it reads."""
    nodes = [*build_chain("Conv", "Sigmoid"), SourceNode(name="Mul", operator="Mul", inputs=(0, 1))]
    executed = [
        Executed(name="conv", kind="Conv", operator="Conv", claims=(0,)),
        Executed(name="fused", kind="QuickGelu", operator="QuickGelu", claims=(2,), inputs=(0,)),
    ]

    assert [("compute", (0,)), ("compute", (1, 2))] == list_mapped(nodes, executed)


def test_a_sum_belongs_to_the_kernel_that_reads_both_of_its_inputs() -> None:
    """A convolution that reads a skip connection has the sum; one that does not read it has not."""
    nodes = [
        *build_chain("Conv", "Conv"),
        SourceNode(name="Add", operator="Add", inputs=(0, 1)),
        SourceNode(name="Conv", operator="Conv", inputs=(2,)),
    ]
    executed = [
        Executed(name="first", kind="Conv", operator="Conv", claims=(0,)),
        Executed(name="second", kind="Conv", operator="Conv", claims=(1,), inputs=(0,)),
        Executed(name="third", kind="Conv", operator="Conv", claims=(3,), inputs=(1,)),
    ]

    assert [(0,), (1, 2), (3,)] == [kernel.nodes for kernel in map_kernels(nodes, executed)]


def test_a_claim_of_a_copy_goes_to_the_kernel_before_it() -> None:
    """A reshape that has the name of a sum's value copies what the product before it has computed."""
    nodes = build_chain("MatMul", "Add", "Gelu")
    executed = [
        Executed(name="gemm", kind="Gemm", operator="Gemm", claims=(0,)),
        Executed(name="reshape", kind="Reshape", operator="Reshape", claims=(1,), inputs=(0,), moves=True),
        Executed(name="gelu", kind="Gelu", operator="Gelu", claims=(2,), inputs=(1,)),
    ]

    assert [("compute", (0, 1)), ("copy", ()), ("compute", (2,))] == list_mapped(nodes, executed)


def test_several_kernels_compute_one_node() -> None:
    """The steps of a normalisation have names of the runtime's own, and the node of the step that has its name."""
    nodes = build_chain("Conv", "LayerNormalization", "Conv")
    executed = [
        Executed(name="conv", kind="Convolution", claims=(0,)),
        Executed(name="mean", kind="Reduce", inputs=(0,)),
        Executed(name="reorder", kind="Reorder", inputs=(1,), moves=True),
        Executed(name="root", kind="RMS", inputs=(2,)),
        Executed(name="norm", kind="Subgraph", claims=(1,), inputs=(3,)),
        Executed(name="last", kind="Convolution", claims=(2,), inputs=(4,)),
    ]
    expected = [("compute", (0,)), ("compute", (1,)), ("copy", ()), ("compute", (1,)), ("compute", (1,))]

    assert [*expected, ("compute", (2,))] == list_mapped(nodes, executed)


def test_a_copy_before_a_kernel_has_no_node_within_it() -> None:
    """A reshape between two nodes of one kernel belongs to that kernel, and not to the copy of its input."""
    executed = [
        Executed(name="reorder", kind="Reorder", moves=True),
        Executed(name="conv", kind="Convolution", claims=(0, 2), inputs=(0,)),
    ]

    assert [("copy", ()), ("compute", (0, 1, 2))] == list_mapped(build_chain("Conv", "Reshape", "Relu"), executed)


def test_a_kernel_that_nothing_explains_is_unmapped() -> None:
    """A kernel without a claim beside no node of the network computes unknown nodes."""
    assert [("unmapped", ())] == list_mapped(build_chain("Conv"), [Executed(name="x", kind="X")])
