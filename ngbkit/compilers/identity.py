"""The uncompiled baseline: PyTorch eager for a module, ONNX Runtime with its optimisations off for an ONNX file."""

from __future__ import annotations

from ngbkit.compilers import onnxruntime as onnx_form
from ngbkit.compilers import torch_runtime
from ngbkit.compilers.base import Compiler, Option, Program, Task, always
from ngbkit.errors import MissingDependencyError, UnsupportedError
from ngbkit.registry import version


def compile(task: Task) -> Program:
    """Bind the inputs of `task` to its network as it is.

    Raises
    ------
    MissingDependencyError
        An ONNX file came and ONNX Runtime, which runs it, is not installed.
    UnsupportedError
        An ONNX file came, and a precision or a layout that it does not have was asked for.
    """
    if task.form == "onnx":
        return _open_onnx(task)
    bound = torch_runtime.bind(task)
    enqueue = torch_runtime.without_gradients(bound.module, bound.inputs)
    if bound.accelerator == "cuda":
        enqueue()  # loads the libraries, and looks for the fastest convolutions
    return torch_runtime.make_program(bound, enqueue, "torch eager")


def _open_onnx(task: Task) -> Program:
    if version(onnx_form.PACKAGE) is None:
        raise MissingDependencyError("onnxruntime", "onnxruntime")
    precision = str(task.options.get("precision", "f32"))
    asked = {"precision": precision} if precision in torch_runtime.CASTS else {}
    if task.options.get("channels_last"):
        asked["channels_last"] = "True"
    for name, value in asked.items():
        raise UnsupportedError(
            f"identity runs an ONNX file as it is, and {name}={value} would change it: leave {name} out, "
            "or export the network so."
        )
    return onnx_form.open_program(
        task, "off", runtime=f"{onnx_form.RUNTIME}, graph optimisations off", precision=precision
    )


def probe_cuda() -> str:
    """Why there is no baseline on the GPU of this process, for want of both torch and ONNX Runtime that can use it."""
    probes = {"torch": torch_runtime.probe_cuda, onnx_form.PACKAGE: onnx_form.lacks_cuda}
    reasons = [probe() for package, probe in probes.items() if version(package)]
    return reasons[0] if reasons and all(reasons) else ""


COMPILER = Compiler(
    name="identity",
    summary="the uncompiled baseline: PyTorch eager, or ONNX Runtime without optimisation for an ONNX file",
    forms={"module": ("torch",), "onnx": ("ngbkit.compilers.onnxruntime_runtime",)},
    # Either is enough for its own kind of workload; a device for ONNX files alone needs no torch.
    packages=tuple(package for package in ("torch", onnx_form.PACKAGE) if version(package)) or ("torch",),
    install="pip install 'ngbkit[torch]' (for PyTorch modules) or pip install 'ngbkit[onnxruntime]' (for ONNX files)",
    compile=compile,
    accelerators={"cpu": always, "cuda": probe_cuda},
    options={
        **torch_runtime.OPTIONS,
        "copy": Option(default=0, help="changes nothing: a second column of the same, as a measure of the noise"),
    },
    refusals=(*torch_runtime.REFUSALS, *onnx_form.REFUSALS),
)
