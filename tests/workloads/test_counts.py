"""The size of a network, compared with counts by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from ngbkit.workloads import blocks, counts
from ngbkit.workloads import onnx as onnx_source
from ngbkit.workloads.base import BATCH, Network, TensorSpec
from ngbkit.workloads.counts import Counts

LINE = [TensorSpec(name="x", shape=(BATCH, 4))]


class Stubborn(nn.Module):
    """Reads a value, which the meta device does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * float(x.sum())


class Hidden(nn.Module):
    """Multiplies elementwise, which torchinfo counts by its parameters, and the counter of MACs ignores."""

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
    """The MACs of a linear layer are its matrix product, which excludes the bias."""
    counted = counts.count(Network(inputs=LINE, module=module))

    assert (10, 10, 8) == (counted.parameters, counted.mult_adds, counted.macs)
    assert (40, 16, 8) == (counted.weight_bytes, counted.input_bytes, counted.output_bytes)


def test_attention_is_counted_in_full() -> None:
    """Four projections of every token and two products of tokens with tokens, despite the fused fast path."""
    network = blocks.build(blocks.mha(), {"width": 128, "depth": 2})

    counted = counts.count(network)

    assert 2 * (4 * 128 * 128 * 10 + 2 * 10 * 10 * 128) == counted.macs
    assert counted.mult_adds is None  # torchinfo finds no layer in nn.MultiheadAttention
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize(
    ("module", "counted"),
    [
        (Hidden(), Counts(parameters=4, mult_adds=4, weight_bytes=16, input_bytes=16, output_bytes=16)),
        (Broken(), Counts(parameters=0, weight_bytes=0, input_bytes=16)),
    ],
)
def test_an_unknown_count_is_none(module: nn.Module, counted: Counts) -> None:
    """An operator that hides its work, or fails, raises no error."""
    assert counted == counts.count(Network(inputs=LINE, module=module))


def test_counting_does_not_change_the_module() -> None:
    """Counting changes neither the weights nor the hooks of a module."""
    module = nn.Linear(4, 2).eval()
    copies = [value.clone() for value in module.parameters()]

    counts.count(Network(inputs=LINE, module=module))

    assert all(torch.equal(old, new) for old, new in zip(copies, module.parameters(), strict=True))
    assert not module._forward_hooks


def test_bytes_depend_on_the_stored_types() -> None:
    """The counted bytes depend on the types of weights, buffers, inputs and outputs."""

    class Typed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 2).half()
            self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = self.linear(x.half())
            return y, y.double(), mask

    inputs = [*LINE, TensorSpec(name="mask", shape=(BATCH, 3), dtype="bool")]
    counted = counts.count(Network(inputs=inputs, module=Typed()))

    assert 2 * 10 + 8 == counted.weight_bytes
    assert 4 * 4 + 3 == counted.input_bytes
    assert 2 * 2 + 2 * 8 + 3 == counted.output_bytes


def test_a_network_of_one_batch_size_is_counted_per_sample() -> None:
    """The counts of a fixed batch are divided by its size."""

    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x.reshape(4, 4))

    counted = counts.count(Network(inputs=LINE, module=Fixed(), batch_size=4))

    assert (8, 8) == (counted.macs, counted.output_bytes)


def test_an_onnx_file_is_counted_too(mlp_file: Path) -> None:
    """The counts of an ONNX file include its weights and its inputs and outputs."""
    counted = counts.count(onnx_source.build(onnx_source.file(mlp_file), {}))
    values = 16 * 32 + 32 * 4

    assert Counts(parameters=values, macs=values, weight_bytes=4 * values, input_bytes=64, output_bytes=16) == counted
