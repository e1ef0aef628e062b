"""Torch modules that compute a function, and the references of modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from ngbkit.device import reference
from ngbkit.device.reference import Reference
from ngbkit.workloads.base import BATCH, Network, TensorSpec

LINE = [TensorSpec(name="x", shape=(BATCH, 8))]


class FunctionModule(nn.Module):
    """Computes a function of its only input."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def build_module_reference(module: nn.Module) -> Reference:
    """Build the reference of a module of one input of eight numbers."""
    network = Network(inputs=LINE, module=module.eval())
    return reference.build_reference(network, 0, threads=1, onnx=lambda rows: pytest.fail("it is a module"))
