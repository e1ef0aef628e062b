"""The pieces of a network between the tensors that two runtimes keep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from ngbkit.errors import MetricError
from ngbkit.why.pieces import (
    BETWEEN,
    COPIES,
    REST,
    cut,
    describe_operators,
    fold,
    group_families,
    shorten_module,
)
from ngbkit.why.trial_profile import TrialProfile, parse_profile

NODES = [
    ("c0", "Conv", "stem.conv"),
    ("r0", "Relu", "stem.act"),
    ("c1", "Conv", "layer1.0.conv1"),
    ("a1", "Add", "layer1.0"),
    ("r1", "Relu", "layer1.0.act"),
    ("fc", "Gemm", "fc"),
]


def profile(
    kernels: Sequence[Sequence[int]], nodes: Sequence[Sequence[str]] = NODES, form: str = "onnx", **roles: str
) -> TrialProfile:
    rounds = [[1e-3]] * 8
    data: dict[str, Any] = {
        "nodes": [list(node) for node in nodes],
        "kernels": [
            {
                "name": f"k{place}",
                "kind": "kernel",
                "nodes": list(indices),
                "role": roles.get(f"k{place}", "compute"),
                "seconds": rounds,
            }
            for place, indices in enumerate(kernels)
        ],
        "calls": {"plain": [[1e-2]] * 8, "profiled": [[1e-2]] * 8},
        "source": {"digest": "d", "form": form},
        "notes": [],
    }
    return parse_profile(json.dumps(data))


def list_operators(*profiles: TrialProfile) -> list[tuple[str, ...]]:
    return [piece.operators for piece in cut(profiles) if piece.is_network]


def test_kernels_of_either_side_join_nodes() -> None:
    """Nodes are one piece where any runtime computes them together; others have pieces of their own."""
    first = profile([[0, 1], [2], [3, 4], [5]])
    second = profile([[0], [1], [2, 3], [4], [5]])

    assert [("Conv", "Relu"), ("Conv", "Add", "Relu"), ("Gemm",)] == list_operators(first, second)


def test_a_folded_node_is_in_no_piece() -> None:
    """A node that no runtime executes has no time, and so no piece; one that a single runtime executes has one."""
    first, second = profile([[0, 1], [2], [5]]), profile([[0, 1], [2], [4], [5]])

    pieces = cut([first, second])
    assert [("Conv", "Relu"), ("Conv",), ("Relu",), ("Gemm",)] == [piece.operators for piece in pieces[:-1]]
    assert ((), (2,)) == pieces[2].kernels


def test_copies_and_unmapped_kernels_are_pieces() -> None:
    """Copies are a piece whatever they copy, kernels without nodes are one, and so is the time between kernels."""
    first = profile([[0, 1], [2], []], k2="unmapped")
    second = profile([[0, 1], [2], [2]], k2="copy")

    pieces = cut([first, second])
    assert [COPIES, REST, BETWEEN] == [piece.name for piece in pieces if not piece.is_network]
    assert [2 / 3, 1.0] == [pytest.approx(each.mapped_share) for each in (first, second)]


def test_torch_and_onnx_share_modules() -> None:
    """A torch column and an ONNX column are cut at modules."""
    modules = [("stem.conv", "Conv2d", "stem.conv"), ("layer1.0.conv1", "Conv2d", "layer1.0.conv1")]
    torch = profile([[0], [1], [2]], [*modules, ("fc", "Linear", "fc")], form="module")

    names = [piece.name for piece in cut([profile([[0, 1], [2, 3, 4], [5]]), torch])]
    assert ["stem.conv", "layer1.0.conv1", "fc", BETWEEN] == names


def test_a_new_node_is_a_piece_of_its_own() -> None:
    """A node that only the later version of a network has stands behind its predecessor, without time in the first."""
    nodes = [*NODES[:3], ("extra", "Conv", "layer1.0.extra"), *NODES[3:]]
    first, second = profile([[place] for place in range(6)]), profile([[place] for place in range(7)], nodes)

    pieces = cut([first, second])
    assert "layer1.0.extra" == pieces[3].name
    assert ((), (3,)) == pieces[3].kernels


def test_two_networks_have_no_pieces_in_common() -> None:
    """The error says that the profiles are of two networks."""
    with pytest.raises(MetricError, match="two networks without a common node"):
        cut([profile([[0]]), profile([[0]], [("x", "Conv", "y")])])


def test_pieces_fold_to_blocks() -> None:
    """A block is a module with its number; what is no part of the network stays at the end."""
    pieces = cut([profile([[place] for place in range(6)])] * 2)

    assert ["stem", "layer1.0", "fc", BETWEEN] == [part.name for part in fold(pieces, 1)]
    assert ["blocks.3", "blocks.3.2", "layers.0.blocks.1"] == [
        shorten_module(*arguments)
        for arguments in (("blocks.3.2.conv", 1), ("blocks.3.2.conv", 2), ("layers.0.blocks.1.attn", 2))
    ]


def test_a_network_without_modules_folds_to_runs_of_pieces() -> None:
    """Pieces of a file that names no modules are folded to at most twelve parts."""
    nodes = [(f"n{place}", "Conv", "") for place in range(40)]
    parts = fold(cut([profile([[place] for place in range(40)], nodes)] * 2), 1)

    assert ["from n0", "from n4", 11] == [parts[0].name, parts[1].name, len(parts)]


def test_families_group_what_pieces_compute() -> None:
    """Pieces that compute the same are one family, wherever they are."""
    families = group_families(cut([profile([[0, 1], [2], [3, 4], [5]])] * 2))

    assert ["convolutions with ReLU", "convolutions", "ReLU and sums", "matrix products"] == [
        family.name for family in families[:-1]
    ]


@pytest.mark.parametrize(
    ("operators", "phrase"),
    [
        (["Conv depthwise", "Sigmoid", "Mul"], "depthwise convolutions with SiLU"),
        (["MatMul", "Add", "Div", "Erf", "Add", "Mul", "Mul"], "matrix products with GELU"),
        (["MatMul", "Mul", "Softmax", "MatMul"], "attention"),
        (["Conv", "BatchNormalization", "Relu"], "convolutions with ReLU"),
        (["Reshape", "Transpose"], "rearrangement"),
        (["Conv2d", "SiLU"], "convolutions with SiLU"),
        (["Sigmoid"], "sigmoid"),
        (["NewOperator"], "NewOperator"),
    ],
)
def test_operators_have_words(operators: list[str], phrase: str) -> None:
    """The heaviest operator is first, with its activation, also one that is written out."""
    assert phrase == describe_operators(operators)
