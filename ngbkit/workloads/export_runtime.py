"""The imports of an ONNX export, made at once, for the fork server of preparations to preload.

The first export of a process takes 2.6 s, the second 0.7 s: torch.onnx imports torch._dynamo, triton and sympy, and
reads the source of each operator of onnxscript's torch library, as each export would again. Each preparation runs in
its own process.
"""

import importlib
from functools import cache
from typing import Any

for name in ("onnxscript.optimizer", "sympy.tensor.tensor", "torch._functorch.aot_autograd", "torch.export._trace"):
    importlib.import_module(name)

# These are private; without them, an export only takes longer. Nothing but a translation table changes a registry.
registry: Any = importlib.import_module("torch.onnx._internal.exporter._registration").ONNXRegistry
load_registry = cache(registry.from_torchlib)
load_registry(opset_version=importlib.import_module("torch.onnx._constants").ONNX_DEFAULT_OPSET)
registry.from_torchlib = staticmethod(load_registry)
