"""TVM, imported without torch.

``import tvm`` imports torch if it is installed (apache-tvm-ffi must load after it), although an ONNX file does not need
it: that costs 2 s, and 800 MB of a process whose memory is reported. Fork servers preload this module.
"""

from __future__ import annotations

import sys

_hidden = "torch" not in sys.modules
if _hidden:
    sys.modules["torch"] = None  # type: ignore[assignment]  # None means: raise ImportError

try:
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx
finally:
    if _hidden:
        del sys.modules["torch"]

__all__ = ["from_onnx", "onnx", "relax", "tvm"]
