"""Tasks of compilers whose programs a test writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ngbkit.compilers.base import Task, Tuning


def build_task(folder: Path, **fields: Any) -> Task:
    """Build the task of an ONNX network without options, on one thread, with these fields."""
    defaults = {"form": "onnx", "module": None, "onnx": None, "options": {}, "threads": 1}
    return Task(**{**defaults, **fields}, cache=folder, tuning=Tuning(folder=folder))
