"""Other tools that simplify ONNX graphs, one file each: their models are proved and measured beside ngbkit's own."""

from __future__ import annotations

from ngbkit.predict.optimizer.simplifiers.base import Simplifier, resolve, simplify

__all__ = ["Simplifier", "resolve", "simplify"]
