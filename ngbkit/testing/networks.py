"""Seeded networks small enough to compile in a moment, with a float64 reference."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from ngbkit.workloads.base import BATCH, Network, TensorSpec
from ngbkit.workloads.export import flatten, to_array
from ngbkit.workloads.randomise import randomise, seed_generators

if TYPE_CHECKING:
    import torch


def small_conv() -> Network:
    """Two convolutions with BatchNorm, a pooling and a linear layer on 3 x 16 x 16; seeded, with all weights in use."""
    from torch import nn

    def build() -> nn.Module:
        return nn.Sequential(
            *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
            *(nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5)),
        )

    return _build_network(build, (3, 16, 16))


def small_attention() -> Network:
    """Attention (16 wide, 2 heads) and an MLP on 10 tokens; returns them, then their mean: shapes reveal the order."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
            self.norm = nn.LayerNorm(16)
            self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

        def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            mixed: torch.Tensor = self.norm(tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0])
            output = mixed + cast("torch.Tensor", self.mlp(mixed))
            return output, output.mean(dim=1)

    return _build_network(Block, (10, 16))


NETWORKS: Mapping[str, Callable[[], Network]] = {
    "small_conv": small_conv,
    "small_attention": small_attention,
}


def _build_network(build: Callable[[], torch.nn.Module], shape: tuple[int, ...]) -> Network:
    with seed_generators(0):
        module = build().eval()
    randomise(module, seed=0)
    return Network(inputs=[TensorSpec(name="input", shape=(BATCH, *shape))], module=module)


def run_reference(network: Network, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of the uncompiled module in float64, leaving the module unchanged."""
    import torch

    module = copy.deepcopy(cast("torch.nn.Module", network.module)).double()
    with torch.inference_mode():
        outputs = module(*(torch.tensor(array, dtype=torch.float64) for array in arrays))
    return [to_array(tensor) for tensor in flatten(outputs)]


def relative_rmse(expected: np.ndarray, actual: np.ndarray) -> float:
    """Return the root-mean-square error over the root mean square of `expected`; infinite for another shape or NaN."""
    if expected.shape != actual.shape:
        return float("inf")
    difference = actual.astype(np.float64) - expected
    error = float(np.sqrt(np.mean(difference**2)) / np.sqrt(np.mean(expected.astype(np.float64) ** 2)))
    return float("inf") if np.isnan(error) else error
