"""The uncompiled baseline: PyTorch eager for a module, ONNX Runtime with its optimisations off for an ONNX file."""

from __future__ import annotations

from ngbkit.compilers import onnxruntime as onnx_form
from ngbkit.compilers import torch_runtime
from ngbkit.compilers.base import Compiler, Option, Program, Task, always
from ngbkit.compilers.profiles import torch_modules
from ngbkit.errors import MissingDependencyError, UnsupportedError
from ngbkit.registry import find_version

# What ONNX Runtime's CPU provider would do with such a file.
_REASONS = {
    "f16": ', and ONNX Runtime would compute it in f32 between casts: onnxruntime{"precision":"f16"} says so',
    "bf16": ', and ONNX Runtime has no kernels in bf16 for a CPU: openvino{"precision":"bf16"} has them',
}


def compile(task: Task) -> Program:
    """Bind the inputs of `task` to its uncompiled network."""
    if task.form == "onnx":
        return _open_onnx_program(task)
    bound = torch_runtime.bind(task)
    enqueue = torch_runtime.disable_gradients(bound.module, bound.inputs)
    if bound.accelerator == "cuda":
        enqueue()  # loads the libraries, and searches for the fastest convolutions
    return torch_runtime.make_program(
        bound, enqueue, "torch eager", profile=lambda: torch_modules.open_profiler(bound.module, enqueue)
    )


def _open_onnx_program(task: Task) -> Program:
    if find_version(onnx_form.PACKAGE) is None:
        raise MissingDependencyError("onnxruntime", "onnxruntime")
    precision = str(task.options.get("precision", "f32"))
    changes = {"precision": precision} if precision in torch_runtime.CASTS else {}
    if task.options.get("channels_last"):
        changes["channels_last"] = "True"
    for name, value in changes.items():
        raise UnsupportedError(
            f"invalid option {name} of identity: got {value}, which would change the ONNX file; identity runs it "
            f"unchanged{_REASONS.get(value, '')}. Leave {name} out, or export the network with it."
        )
    return onnx_form.open_program(
        task, "off", runtime=f"{onnx_form.RUNTIME}, graph optimisations off", precision=precision
    )


def probe_cuda() -> str:
    """Return the reason why neither torch nor ONNX Runtime can use the GPU of this process, or ``""``."""
    probes = {"torch": torch_runtime.probe_cuda, onnx_form.PACKAGE: onnx_form.probe_cuda}
    reasons = [probe() for package, probe in probes.items() if find_version(package)]
    return reasons[0] if reasons and all(reasons) else ""


COMPILER = Compiler(
    name="identity",
    summary="the uncompiled baseline: PyTorch eager, or ONNX Runtime without optimisation for an ONNX file",
    forms={"module": ("torch",), "onnx": ("ngbkit.compilers.onnxruntime_runtime",)},
    packages=tuple(package for package in ("torch", onnx_form.PACKAGE) if find_version(package)) or ("torch",),
    packages_by_form={"module": ("torch",), "onnx": (onnx_form.PACKAGE,)},
    distribution="torch",
    beside=torch_runtime.BUILDERS,
    numpy_2="2.3",
    install="pip install 'ngbkit[torch]' (for PyTorch modules) or pip install 'ngbkit[onnxruntime]' (for ONNX files)",
    compile=compile,
    accelerators={"cpu": always, "cuda": probe_cuda},
    options={
        **torch_runtime.OPTIONS,
        "copy": Option(default=0, help="no effect: adds another column of the same compiler, to measure the noise"),
    },
    refusals=(*torch_runtime.REFUSALS, *onnx_form.REFUSALS),
)
