"""What exporting a module to ONNX imports on its way, imported at once: what a fork server of preparations preloads.

The first export of a process takes 2.6 s, the second 0.7 s: torch.onnx pulls in torch._dynamo, triton and sympy, and
reads the operators of onnxscript's torch library. Each preparation is a process of its own.
"""

from __future__ import annotations

import onnxscript
import onnxscript.optimizer
import torch._dynamo
import torch._functorch.aot_autograd
import torch.export
from torch.onnx._internal.exporter import _registration

__all__ = ["onnxscript", "torch"]

# Nothing public does it; where it goes away, an export only takes longer.
if hasattr(_registration, "ONNXRegistry"):
    _registration.ONNXRegistry.from_torchlib()
