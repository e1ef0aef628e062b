"""The imports of an ONNX export, made at once, for the fork server of preparations to preload.

The first export of a process takes 2.6 s, the second 0.7 s: torch.onnx imports torch._dynamo, triton and sympy, and
reads the source of each operator of onnxscript's torch library, as each export would again. Each preparation runs in
its own process.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from functools import cache
from typing import Any

import onnxscript
import onnxscript.optimizer
import torch._dynamo
import torch._functorch.aot_autograd
import torch.export._trace
from torch.onnx import _constants
from torch.onnx._internal.exporter import _registration

__all__ = ["onnxscript", "torch"]

importlib.import_module("sympy.tensor.tensor")

# This API is private; without it, an export only takes longer. Nothing but a translation table changes a registry.
with suppress(AttributeError):
    registry: Any = _registration.ONNXRegistry
    load_registry = cache(registry.from_torchlib)
    load_registry(opset_version=_constants.ONNX_DEFAULT_OPSET)
    registry.from_torchlib = staticmethod(load_registry)
