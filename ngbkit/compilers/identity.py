"""The uncompiled baseline: PyTorch eager for a module, ONNX Runtime with its optimisations off for an ONNX file.

What every compiler of the torch family does alike (threads, inputs, outputs, precision) is here too, because this is
the compiler that does nothing else.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import onnxruntime as onnx_form
from ngbkit.compilers.base import Compiler, Option, Program, Task, version
from ngbkit.errors import MissingDependencyError
from ngbkit.records import Contract
from ngbkit.workloads.export import flatten

if TYPE_CHECKING:
    import numpy as np
    import torch

_PRECISIONS = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}


def compile(task: Task) -> Program:
    """Bind the inputs of `task` to its network as it is.

    Raises
    ------
    MissingDependencyError
        An ONNX file came and ONNX Runtime, which runs it, is not installed.
    """
    if task.form == "onnx":
        if version("onnxruntime") is None:
            raise MissingDependencyError("onnxruntime", "onnxruntime")
        return onnx_form.open_program(task, "off", runtime=f"{onnx_form.RUNTIME}, graph optimisations off")
    module, inputs = bind(task)
    return Program(
        run=without_gradients(module, inputs),
        fetch=fetch,
        contract=contract(module, "torch eager"),
        facts=facts(),
        within=torch_mode(),
    )


def bind(task: Task) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Give torch its threads, and return the module with its inputs as tensors of their own."""
    import torch

    torch.set_num_threads(task.threads)
    with contextlib.suppress(RuntimeError):  # it can be set once in a process
        torch.set_num_interop_threads(1)
    if task.module is None:
        raise ValueError("a task of the form 'module' came without a module.")
    return task.module, tuple(torch.tensor(array) for array in task.arrays)


def without_gradients(call: Any, inputs: tuple[torch.Tensor, ...]) -> Any:
    """``run`` of a program: `call` on `inputs`, recording nothing for a backward pass.

    To enter the inference mode costs 2 µs a call, and to see that one is in it 0.05 µs: a process that only infers
    enters it once, by the program's `within`.
    """
    import torch

    entered, enter = torch.is_inference_mode_enabled, torch.inference_mode

    def run() -> Any:
        if entered():
            return call(*inputs)
        with enter():
            return call(*inputs)

    return run


def torch_mode() -> Callable[[], AbstractContextManager[Any]]:
    """``within`` of a program of torch: the mode in which nothing is recorded for a backward pass."""
    import torch

    return torch.inference_mode


def fetch(outputs: Any) -> list[np.ndarray]:
    """The tensors of a nested structure as arrays, in the order in which torch flattens it, bfloat16 as float32."""
    import torch

    return [(one.float() if one.dtype is torch.bfloat16 else one).numpy(force=True) for one in flatten(outputs)]


def contract(module: torch.nn.Module, runtime: str, notes: str = "") -> Contract:
    """The contract of a call to torch, with the precision of the weights and the threads that torch really has."""
    import torch

    dtypes = [str(weight.dtype).removeprefix("torch.") for weight in module.parameters() if weight.is_floating_point()]
    precisions = sorted({_PRECISIONS.get(dtype, dtype) for dtype in dtypes})
    matmul = torch.get_float32_matmul_precision()
    # A network's own code can have lowered it: with "medium" a CPU may multiply in bfloat16.
    lowered = "" if matmul == "highest" else f"float32 matmul precision {matmul}"
    return Contract(
        runtime=runtime,
        precision="+".join(precisions) or "f32",
        threads=torch.get_num_threads(),
        notes="; ".join(filter(None, (notes, lowered))),
    )


def facts() -> dict[str, Any]:
    """The libraries beneath torch that make its matrix products fast or slow: part of any speed-up is theirs."""
    import torch

    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return {
        "blas": blas.group(1) if blas else "unknown",
        "onednn": torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


COMPILER = Compiler(
    name="identity",
    summary="the uncompiled baseline: PyTorch eager, or ONNX Runtime without optimisation for an ONNX file",
    forms={"module": ("torch",), "onnx": ("ngbkit.compilers.onnxruntime_runtime",)},
    # Either is enough for its own kind of workload; a device for ONNX files alone needs no torch.
    packages=tuple(package for package in ("torch", "onnxruntime") if version(package)) or ("torch",),
    install="pip install 'ngbkit[torch]' (for PyTorch modules) or pip install 'ngbkit[onnxruntime]' (for ONNX files)",
    compile=compile,
    options={
        "copy": Option(default=0, help="changes nothing: a second column of the same, as a measure of the noise"),
    },
    refusals=onnx_form.REFUSALS,
)
