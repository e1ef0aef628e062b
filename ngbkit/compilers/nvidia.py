"""The common part of the runtimes of NVIDIA's GPUs: options, and checks and conversions of a precision."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from ngbkit.compilers.base import Option
from ngbkit.errors import UnsupportedError
from ngbkit.hardware.accelerators import cuda

PRECISION = Option(
    default="f32",
    help="precision of the computation; TensorRT's own default for matrix products is tf32",
    choices=("f32", "tf32", "f16"),
)
CUDA_GRAPH = Option(
    default=False,
    help="record the kernel launches once and replay them; this helps small networks",
    choices=(False, True),
)
_TF32_SINCE = (8, 0)


def check_precision(precision: str, driver: cuda.Driver) -> None:
    """Refuse tf32 on a GPU without it."""
    capability = driver.compute_capability
    if precision == "tf32" and capability < _TF32_SINCE:
        raise UnsupportedError(
            f"tf32 needs compute capability {_TF32_SINCE[0]}.{_TF32_SINCE[1]}, but {driver.name} has "
            f"{capability[0]}.{capability[1]}; use another precision"
        )


def convert_to_f16(path: Path | None) -> bytes:
    """Convert the weights and tensors of a graph to float16, except its inputs and outputs."""
    import onnx

    try:
        # This import disables the telemetry, so it must be the first.
        import ngbkit.compilers.onnxruntime_runtime  # noqa: F401

        float16, onnx_model = (
            importlib.import_module(f"onnxruntime.transformers.{name}") for name in ("float16", "onnx_model")
        )
    except ImportError as error:
        raise UnsupportedError(
            f"the graph decides the precision here, and the converter to f16 is missing ({error}); install with: "
            "pip install 'ngbkit[onnxruntime]'"
        ) from error
    converted: Any = float16.convert_float_to_float16(onnx.load(str(path)), keep_io_types=True)
    onnx_model.OnnxModel(converted).topological_sort()  # the converter appends the casts of the inputs
    return bytes(converted.SerializeToString())


def find_problem(name: str, module: str) -> str:
    """Return why a runtime cannot work here, by `diagnose` of a module in a process of its own, or ``""``."""
    return cuda.find_problem(name, f"from {module} import diagnose; print(diagnose(), end='')")
