"""Cases of Python files."""

from __future__ import annotations

from typing import Any

from field.case import Case
from field.writing import write_source

#: Networks are measured without OpenVINO where no row is about it, since each trial takes a moment.
COMPILERS = ("identity", "torchscript", "onnxruntime")


def describe_module(name: str, text: str, **options: Any) -> Case:
    """Describe a Python file that defines a model, measured at batch size 2 beside the anchor at 1."""
    return Case(**{"name": name, "build": write_source(text), "compilers": COMPILERS, **options})
