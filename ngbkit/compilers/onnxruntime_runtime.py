"""ONNX Runtime, imported without its telemetry, and the CUDA libraries that it needs on a GPU.

Since 1.31 ``import onnxruntime`` on Linux starts threads that store events in a database below ``~/.cache`` and send
them over the network; they would disturb measurements and would not survive a fork. Fork servers preload this module.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

__all__ = ["find_load_error", "onnxruntime", "preload_cuda"]

_CUDA_LIBRARY = "libonnxruntime_providers_cuda.so"


def preload_cuda() -> None:
    """Load the libraries of CUDA and cuDNN from Python packages, where the dynamic loader would not search."""
    with contextlib.redirect_stdout(sys.stderr):  # it prints missing libraries, some of them optional
        onnxruntime.preload_dlls(directory="")


def find_load_error() -> str:
    """Return the loader's error for the library of the CUDA provider, or ``""`` if it loads."""
    path = Path(onnxruntime.__file__).parent / "capi" / _CUDA_LIBRARY
    if not path.exists():
        return f"it has no {_CUDA_LIBRARY}"
    try:
        ctypes.CDLL(str(path.with_name("libonnxruntime_providers_shared.so")), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(path))
    except OSError as error:
        return str(error)
    return ""
