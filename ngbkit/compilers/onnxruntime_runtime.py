"""ONNX Runtime, imported without its telemetry, and the libraries of CUDA that it needs on a GPU.

Since 1.31 ``import onnxruntime`` on Linux starts threads that keep events in a database below ``~/.cache`` and send
them over the network; they would disturb what is measured, and would not survive a fork. This module is what a fork
server preloads.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

__all__ = ["find_unloadable", "onnxruntime", "preload_cuda"]

_CUDA_LIBRARY = "libonnxruntime_providers_cuda.so"


def preload_cuda() -> None:
    """Load the libraries of CUDA and cuDNN that came as Python packages, where the dynamic loader would not look."""
    with contextlib.redirect_stdout(sys.stderr):  # it prints what it does not find, and some of that is optional
        onnxruntime.preload_dlls(directory="")


def find_unloadable() -> str:
    """Why the library of the CUDA provider does not load, in the loader's words, or ``""`` where it does."""
    path = Path(onnxruntime.__file__).parent / "capi" / _CUDA_LIBRARY
    if not path.exists():
        return f"it has no {_CUDA_LIBRARY}"
    try:
        ctypes.CDLL(str(path.with_name("libonnxruntime_providers_shared.so")), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(path))
    except OSError as error:
        return str(error)
    return ""
