"""AOTInductor: a network exported as a whole and compiled, ahead of time, into a package that runs without Python."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import inductor_runtime, torch_runtime
from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.compilers.torch_runtime import Bound
from ngbkit.errors import UnsupportedError
from ngbkit.hardware.accelerators import cuda
from ngbkit.workloads.export import flatten

if TYPE_CHECKING:
    import torch

# What is written beside the machine code, last of all: a package without it did not come to its end.
_NOTES = "ngbkit.json"
# Loaders of older versions unpack into a folder for temporary files, and leave it there when a process is ended.
_READS_FOLDERS = (2, 15)

# Of an object that has no better name, in the text that stands for a module.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

_HEADERS = """
from torch.utils import cpp_extension
try:
    folders = cpp_extension.include_paths("cuda")
except OSError:
    folders = []
if not any(os.path.exists(os.path.join(folder, "cuda.h")) for folder in folders):
    print("aotinductor builds against the CUDA toolkit, and cuda.h is not found: set CUDA_HOME to where a toolkit is")
"""


def compile(task: Task) -> Program:
    """Export the module of `task`, compile it into a package, and load that; or load the package that is kept of it.

    Raises
    ------
    UnsupportedError
        This version of torch cannot load a package from a folder of its own.
    """
    bound = torch_runtime.bind(task)
    settings = _settings(task)
    kept = task.cache / "aotinductor"
    package = kept / _name(task, bound, settings)
    cached = (package / _NOTES).exists()
    if not cached:
        _build(bound, settings, kept / "building", package)
    call = _load(package)
    run = torch_runtime.without_gradients(call, bound.inputs)
    run()
    return torch_runtime.make_program(
        bound,
        run,
        "torch AOTInductor",
        facts={"package_bytes": _size(package), "cache": "hit" if cached else "miss"},
        explain=lambda: _explain(package, bound.accelerator, frozen=bool(settings["freezing"])),
    )


def _settings(task: Task) -> dict[str, Any]:
    """Inductor's own settings for the options of `task`."""
    return {
        "freezing": bool(task.options["freezing"]),
        "max_autotune": bool(task.options["max_autotune"]),
        # Two sources are compiled, each once: headers compiled apart would cost more than they save.
        "aot_inductor.precompile_headers": False,
    }


def _name(task: Task, bound: Bound, settings: dict[str, Any]) -> str:
    """A name of all that a package depends on: network, weights, inputs, settings, threads, chip, versions.

    The code of a network is not looked at, for `Task.cache` is of one workload.
    """
    import torch

    chip = torch.cuda.get_device_name(0) if bound.accelerator == "cuda" else torch.backends.cpu.get_cpu_capability()
    digest = hashlib.blake2b(digest_size=16)
    layout = [(tuple(one.shape), one.stride(), str(one.dtype)) for one in bound.inputs]
    for part in (torch.__version__, chip, task.threads, sorted(settings.items()), bound.tf32, layout, bound.module):
        digest.update(_ADDRESS.sub("", repr(part)).encode() + b"\0")
    for name, tensor in (*bound.module.named_parameters(), *bound.module.named_buffers()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.stride()} {tensor.dtype}\0".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: torch.Tensor) -> Any:
    """The values of a tensor, whatever its precision, for NumPy does not know all of torch's."""
    import torch

    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _build(bound: Bound, settings: dict[str, Any], building: Path, package: Path) -> None:
    """Make `package`, a folder, by way of another, which is removed."""
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    inductor_runtime.keep_in(building / "inductor")
    import torch

    with torch.no_grad(), inductor_runtime.configured(settings):
        exported = torch.export.export(_flat(bound.module), bound.inputs)
        operators = [str(node.target) for node in exported.graph.nodes if _computes(node)]
        archive = torch._inductor.aoti_compile_and_package(
            exported, package_path=str(building / "package.pt2"), inductor_configs=dict(settings)
        )
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(building / "unpacked")
    (unpacked,) = (building / "unpacked").iterdir()
    (unpacked / _NOTES).write_text(json.dumps({"operators": operators}))
    shutil.rmtree(package, ignore_errors=True)
    unpacked.rename(package)
    shutil.rmtree(building)


def _flat(module: torch.nn.Module) -> torch.nn.Module:
    """The module, returning its tensors and nothing else: a package has no place for a number or a string."""
    import torch

    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(flatten(self.module(*inputs)))

    return Flat()


def _computes(node: Any) -> bool:
    """Whether a node of an exported graph is an operator, and does not only take a tuple apart or check a shape."""
    name = str(node.target)
    return node.op == "call_function" and not name.startswith(("<built-in", "aten._assert", "aten.sym_"))


def _load(package: Path) -> Callable[..., Sequence[torch.Tensor]]:
    """What runs the package on tensors, without what Python adds to that call by call: the names of the arguments."""
    import torch

    try:
        loader = torch._inductor.aoti_load_package(str(package)).loader
    except RuntimeError as error:
        if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) >= _READS_FOLDERS:
            raise
        wanted = ".".join(map(str, _READS_FOLDERS))
        raise UnsupportedError(
            f"torch {torch.__version__} does not load a package from a folder; get torch {wanted} or newer."
        ) from error

    def call(*inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        outputs: Sequence[torch.Tensor] = loader.run(list(inputs))
        return outputs

    return call


def _size(package: Path) -> int:
    return sum(path.stat().st_size for path in package.rglob("*") if path.is_file())


def _explain(package: Path, accelerator: str, *, frozen: bool) -> dict[str, Any]:
    """What was exported, and what is executed, read from the C++ code that Inductor wrote for a CPU.

    Where it froze the weights, a convolution does not show whether a BatchNorm is folded into them: it is not known how
    many do the work of more than one operator.
    """
    operators = json.loads((package / _NOTES).read_text())["operators"]
    told = {"nodes_before": len(operators), "graph_breaks": 0, "operators": dict(Counter(operators))}
    if accelerator != "cpu":
        return told
    calls = [name for path in package.rglob("*.cpp") for name in _calls(path.read_text())]
    if not calls:
        return told
    kernels = [name for name in calls if inductor_runtime.is_kernel(name)]
    fused = sum(map(inductor_runtime.is_fused, kernels))
    told |= {
        "nodes_after": len(calls),
        "kernel_calls": len(kernels),
        "kernels_fused": fused,
        "extern_calls": dict(Counter(name for name in calls if not inductor_runtime.is_kernel(name))),
    }
    return told if frozen else told | {"nodes_fused": fused}


def _calls(source: str) -> list[str]:
    """The kernels that a call of the network runs, in order: Inductor's own, and those of torch's libraries."""
    body = source.partition("void AOTInductorModel::run_impl(")[2].partition("} // AOTInductorModel::run_impl")[0]
    return re.findall(r"\b(cpp_\w+|aoti_torch_cpu_\w+|aoti_torch_proxy_executor_call_function)\(", body)


def probe_cuda() -> str:
    """Why a package cannot be compiled for the GPU: what Inductor needs there, and the headers of CUDA."""
    return inductor_runtime.probe_cuda() or cuda.lacks("aotinductor", _HEADERS)


COMPILER = Compiler(
    name="aotinductor",
    summary="torch.export and AOTInductor: compiled ahead of time into a package of machine code",
    forms={"module": ("torch", "torch._dynamo", "torch._inductor.compile_fx")},
    packages=("torch",),
    install="pip install 'ngbkit[torch]'",
    compile=compile,
    accelerators={"cpu": inductor_runtime.probe_cpu, "cuda": probe_cuda},
    caches=True,
    options={
        "freezing": inductor_runtime.FREEZING,
        "max_autotune": Option(
            default=False,
            help="time templates of products against the libraries, and take the fastest",
            choices=(False, True),
        ),
        **torch_runtime.OPTIONS,
    },
    refusals=(
        *inductor_runtime.REFUSALS,
        r"^Unsupported:|_dynamo\.exc\.Unsupported|UserError",
        r"GuardOnDataDependentSymNode|data-dependent",
        r"torch\.export .*not supported|UnsupportedOperatorException|not (yet )?supported by (torch\.)?export",
    ),
)
