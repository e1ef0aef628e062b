"""ONNX Runtime, imported without its telemetry.

Since 1.31 ``import onnxruntime`` on Linux starts threads that keep events in a database below ``~/.cache`` and send
them over the network; they would disturb what is measured, and would not survive a fork. This module is what a fork
server preloads.
"""

from __future__ import annotations

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

__all__ = ["onnxruntime"]
