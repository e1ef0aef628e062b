"""A compiler with releases, as a third-party plugin: it needs NumPy, and a runtime of one number."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from ngbkit.compilers.base import Compiler, Program, Task
from ngbkit.sweep.records import Contract


def _compile(task: Task) -> Program:
    runtime: Any = importlib.import_module("fakeruntime")
    if runtime.__version__ == "1.0" and "canonical" not in str(task.onnx):
        raise RuntimeError("this file is of opset 18, and opset 17 is the latest")

    def run() -> np.ndarray:
        return np.maximum(task.arrays[0], 0)

    return Program(
        run=run,
        fetch=lambda output: [output],
        contract=Contract(runtime="fakeruntime", precision="f32", threads=task.threads),
        facts={"release": runtime.__version__},
    )


COMPILER = Compiler(
    name="released",
    summary="computes networks of one Relu",
    forms={"onnx": ()},
    packages=("fakeruntime",),
    install="pip install fakeruntime",
    compile=_compile,
    distribution="fakeruntime",
    limits=(r"opset (?P<most_opset>\d+) is the latest",),
)
