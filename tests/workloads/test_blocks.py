"""Block stacks: table V's counts, swept width and depth, and labels of a command line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from ngbkit.errors import UnknownNameError, UsageError, WorkloadError
from ngbkit.workloads import blocks
from ngbkit.workloads.base import Workload

# Table V of the paper: parameters of one block at each width.
TABLE_V = {
    ("conv", 64): 37056,
    ("conv", 96): 83232,
    ("conv", 128): 147840,
    ("conv", 256): 590592,
    ("mha", 128): 66048,
    ("mha", 256): 263168,
    ("mha", 384): 591360,
    ("mha", 512): 1050624,
}


@pytest.mark.parametrize(("block", "width"), TABLE_V)
def test_a_block_has_table_vs_parameters(block: str, width: int) -> None:
    """Each block of a stack has the parameters that table V states for its width."""
    network = blocks.build(getattr(blocks, block)(), {"width": width, "depth": 2})

    assert 2 * TABLE_V[block, width] == sum(parameter.numel() for parameter in network.module.parameters())


@pytest.mark.parametrize(
    ("workload", "shape"), [(blocks.conv(size=(12, 8)), (8, 12, 8)), (blocks.mha(heads=2, sequence=5), (5, 8))]
)
def test_a_stack_keeps_the_shape_of_its_input(workload: Workload, shape: tuple[int, ...]) -> None:
    """The output of a block has the shape of its input, so that any depth is possible."""
    network = blocks.build(workload, {"width": 8, "depth": 2})

    with torch.no_grad():
        output = network.module(torch.ones(3, *shape))

    assert (1, *shape) == network.inputs[0].bind(1)
    assert (3, *shape) == output.shape


def test_the_defaults_are_table_vs() -> None:
    """The default inputs are those of table V: images of 244 x 244 and sequences of 10."""
    conv = blocks.build(blocks.conv(), {"width": 4, "depth": 1})
    mha = blocks.build(blocks.mha(), {"width": 16, "depth": 1})

    assert (1, 4, 244, 244) == conv.inputs[0].bind(1)
    assert (1, 10, 16) == mha.inputs[0].bind(1)


def test_the_values_of_a_workload_take_precedence() -> None:
    """The sweep supplies only the factors that the maker left open."""
    workload = blocks.mha(embed=[128, 256]).with_factors({"width": [64], "depth": range(1, 3)})

    assert {"width": (128, 256), "depth": (1, 2)} == workload.factors


@pytest.mark.parametrize(
    ("workload", "factors", "shape", "parameters"),
    [
        (blocks.conv(4, 1, size=6, kernel=[1, 5]), {"kernel": 5}, (4, 6, 6), 4 * 4 * 25 + 4 + 8),
        (blocks.conv(4, 1, kernel=1), {"size": 7}, (4, 7, 7), 4 * 4 + 4 + 8),
        (blocks.mha(16, 1, sequence=[10, 20]), {"sequence": 20}, (20, 16), 4 * (16 * 16 + 16)),
    ],
)
def test_a_condition_is_a_factor(
    workload: Workload, factors: dict[str, int], shape: tuple[int, ...], parameters: int
) -> None:
    """A sweep varies kernel, size, sequence and heads as it varies width and depth."""
    varied = workload.with_factors({name: [value] for name, value in factors.items()})
    network = blocks.build(varied, {"width": workload.factors["width"][0], "depth": 1, **factors})

    assert {*factors} <= {*varied.factors}
    assert (1, *shape) == network.inputs[0].bind(1)
    assert parameters == sum(parameter.numel() for parameter in network.module.parameters())


def test_the_heads_of_a_stack_are_a_factor() -> None:
    """The number of heads changes the work and not the parameters."""
    workload = blocks.mha(16, 1, heads=[2, 4])
    networks = [
        blocks.build(workload, {"width": 16, "depth": 1, "heads": heads}) for heads in workload.factors["heads"]
    ]

    assert [2, 4] == [network.module[0].attention.num_heads for network in networks]


def test_a_stack_of_table_v_keeps_its_hash() -> None:
    """The default conditions add nothing to the description of a stack, of which trials exist."""
    assert {"block": "conv", "size": [244, 244]} == blocks.conv(kernel=[3]).spec
    assert {"block": "mha", "sequence": 10, "heads": 8} == blocks.mha().spec


def test_a_stack_without_values_is_rejected() -> None:
    """The error says how to give width and depth."""
    with pytest.raises(UsageError, match="conv needs a value of width and depth"):
        blocks.conv().with_factors({})


def test_a_label_is_parsed_to_a_stack() -> None:
    """A label of a block, with or without arguments in braces, is parsed to its stack."""
    assert blocks.conv() == blocks.parse("blocks.conv")
    assert blocks.mha(128, heads=4, name='mha{"heads":4}') == blocks.parse('blocks.mha{"heads": 4, "embed": 128}')
    assert blocks.parse("resnet18") is None
    assert ["blocks.conv"] == list(blocks.complete("blocks.c"))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: blocks.conv(0), WorkloadError, "invalid width of a block: got 0; expected an integer >= 1"),
        (lambda: blocks.conv(8, 1.5), WorkloadError, "invalid depth of a block: got 1.5"),
        (lambda: blocks.conv(size=(8, 8, 8)), WorkloadError, "a height and a width"),
        (lambda: blocks.conv(kernel=[3, 4]), WorkloadError, "invalid kernel of a block: got 4; expected an odd number"),
        (lambda: blocks.conv([]), WorkloadError, "width has no value"),
        (lambda: blocks.mha(96, heads=[8, 5]), WorkloadError, "invalid embedding of 5 heads: got 96"),
        (lambda: blocks.mha(100), WorkloadError, "invalid embedding of 8 heads: got 100; expected a multiple of 8"),
        (lambda: blocks.build(blocks.mha(), {"width": 100, "depth": 1}), WorkloadError, "invalid embedding of 8 heads"),
        (lambda: blocks.parse("blocks.cnov"), UnknownNameError, r"Did you mean blocks\.conv"),
        (lambda: blocks.parse('blocks.mha{"head":4}'), UnknownNameError, "Did you mean heads"),
    ],
)
def test_invalid_values_are_rejected(make: Callable[[], object], error: type[Exception], message: str) -> None:
    """The error reports the value received and the valid ones."""
    with pytest.raises(error, match=message):
        make()
