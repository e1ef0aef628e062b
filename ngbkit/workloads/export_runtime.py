"""The imports of an ONNX export, made at once, for the fork server of preparations to preload.

The first export of a process takes 2.6 s, the second 0.7 s: torch.onnx imports torch._dynamo, triton and sympy, and
loads the operators of onnxscript's torch library. Each preparation runs in its own process.
"""

from __future__ import annotations

import onnxscript
import onnxscript.optimizer
import torch._dynamo
import torch._functorch.aot_autograd
import torch.export
from torch.onnx._internal.exporter import _registration

__all__ = ["onnxscript", "torch"]

# This API is private; without it, an export only takes longer.
if hasattr(_registration, "ONNXRegistry"):
    _registration.ONNXRegistry.from_torchlib()
