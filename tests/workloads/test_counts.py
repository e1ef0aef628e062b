"""The size of a network, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from ngbkit.workloads import blocks, counts
from ngbkit.workloads import onnx as onnx_source
from ngbkit.workloads.base import Network, TensorSpec
from ngbkit.workloads.counts import Counts

LINE = [TensorSpec(name="x", shape=(4,))]


class Stubborn(nn.Module):
    """Looks at a value, which the meta device does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * float(x.sum())


class Hidden(nn.Module):
    """Multiplies by elements, which torchinfo sees in its parameters and the counter of MACs does not."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


class Broken(nn.Module):
    """Cannot run at all."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no")


@pytest.mark.parametrize("module", [nn.Linear(4, 2), Stubborn()])
def test_a_linear_layer_is_its_matrix_product(module: nn.Module) -> None:
    """4 x 2 weights and 2 biases; torchinfo counts the bias as work, true MACs do not; on the meta device or off it."""
    assert Counts(parameters=10, mult_adds=10, macs=8) == counts.count(Network(inputs=LINE, module=module))


def test_attention_is_counted_in_full() -> None:
    """Four projections of every token and two products of tokens with tokens, in spite of the fused fast path."""
    network = blocks.build(blocks.mha(), {"width": 128, "depth": 2})

    counted = counts.count(network)

    assert 2 * (4 * 128 * 128 * 10 + 2 * 10 * 10 * 128) == counted.macs
    assert counted.mult_adds is None  # torchinfo sees no layer in nn.MultiheadAttention
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize(
    ("module", "counted"), [(Hidden(), Counts(parameters=4, mult_adds=4)), (Broken(), Counts(parameters=0))]
)
def test_what_cannot_be_counted_is_none(module: nn.Module, counted: Counts) -> None:
    """An operator that hides its work, or fails, gives no count and no error."""
    assert counted == counts.count(Network(inputs=LINE, module=module))


def test_counting_leaves_the_module_as_it_is() -> None:
    """Its weights stay where they are, and so do its hooks."""
    module = nn.Linear(4, 2).eval()
    before = [value.clone() for value in module.parameters()]

    counts.count(Network(inputs=LINE, module=module))

    assert all(torch.equal(old, new) for old, new in zip(before, module.parameters(), strict=True))
    assert not module._forward_hooks


def test_an_onnx_file_has_the_parameters_that_it_holds(mlp_file: Path) -> None:
    """16 x 32 and 32 x 4 weights; what it computes is not counted."""
    network = onnx_source.build(onnx_source.file(mlp_file), {})

    assert Counts(parameters=16 * 32 + 32 * 4) == counts.count(network)
