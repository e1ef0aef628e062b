"""AOTInductor: a network exported as a whole and compiled ahead of time into a package that runs without Python."""

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
from ngbkit.compilers.torch_runtime import BoundNetwork
from ngbkit.hardware.accelerators import cuda
from ngbkit.workloads.export import flatten

if TYPE_CHECKING:
    import torch

# Written beside the machine code, last of all: a package without it is incomplete.
_NOTES = "ngbkit.json"

# Object addresses in the text representation of a module.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

_HEADERS = """
import os

from torch.utils import cpp_extension
try:
    folders = cpp_extension.include_paths("cuda")
except OSError:
    folders = []
if not any(os.path.exists(os.path.join(folder, "cuda.h")) for folder in folders):
    print("aotinductor needs the CUDA toolkit: found no cuda.h. Set CUDA_HOME to the toolkit's folder")
"""


def compile(task: Task) -> Program:
    """Export the module of `task` and compile it into a package, unless the cache has one, and load the package."""
    bound = torch_runtime.bind(task)
    settings = _build_settings(task)
    cache = task.cache / "aotinductor"
    package = cache / _build_key(task, bound, settings)
    cached = (package / _NOTES).exists()
    if not cached:
        _build(bound, settings, cache / "building", package)
    call = _load(package)
    run = torch_runtime.disable_gradients(call, bound.inputs)
    run()
    size = sum(path.stat().st_size for path in package.rglob("*") if path.is_file())
    return torch_runtime.make_program(
        bound,
        run,
        "torch AOTInductor",
        facts={"package_bytes": size, "cache": "hit" if cached else "miss"},
        explain=lambda: _explain(package, bound.accelerator, frozen=bool(settings["freezing"])),
    )


def _build_settings(task: Task) -> dict[str, Any]:
    """Build Inductor's own settings from the options of `task`."""
    return {
        "freezing": bool(task.options["freezing"]),
        "max_autotune": bool(task.options["max_autotune"]),
        # Two sources are compiled, each once: precompiling headers would cost more than it saves.
        "aot_inductor.precompile_headers": False,
    }


def _build_key(task: Task, bound: BoundNetwork, settings: dict[str, Any]) -> str:
    """Build a key of all that a package depends on but the code, since `Task.cache` belongs to one workload."""
    import torch

    chip = torch.cuda.get_device_name(0) if bound.accelerator == "cuda" else torch.backends.cpu.get_cpu_capability()
    digest = hashlib.blake2b(digest_size=16)
    layout = [(tuple(tensor.shape), tensor.stride(), str(tensor.dtype)) for tensor in bound.inputs]
    for part in (torch.__version__, chip, task.threads, sorted(settings.items()), bound.tf32, layout, bound.module):
        digest.update(_ADDRESS.sub("", repr(part)).encode() + b"\0")
    for name, tensor in (*bound.module.named_parameters(), *bound.module.named_buffers()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.stride()} {tensor.dtype}\0".encode())
        digest.update(_to_bytes(tensor))
    return digest.hexdigest()


def _to_bytes(tensor: torch.Tensor) -> Any:
    """View the values of a tensor as bytes, because NumPy lacks some of torch's types."""
    import torch

    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _build(bound: BoundNetwork, settings: dict[str, Any], building: Path, package: Path) -> None:
    """Build `package`, a folder, in the temporary folder `building`, which is removed."""
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    inductor_runtime.set_cache(building / "inductor")
    import torch

    with torch.no_grad(), inductor_runtime.apply_settings(settings):
        exported = torch.export.export(_flatten_outputs(bound.module), bound.inputs)
        operators = [str(node.target) for node in exported.graph.nodes if _is_operator(node)]
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


def _flatten_outputs(module: torch.nn.Module) -> torch.nn.Module:
    """Wrap a module so that it returns only its tensors: a package cannot return a number or a string."""
    import torch

    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(flatten(self.module(*inputs)))

    return Flat()


def _is_operator(node: Any) -> bool:
    """Return whether a node of an exported graph is an operator, rather than a tuple access or a shape check."""
    name = str(node.target)
    return node.op == "call_function" and not name.startswith(("<built-in", "aten._assert", "aten.sym_"))


def _load(package: Path) -> Callable[..., Sequence[torch.Tensor]]:
    """Load the package as a callable on tensors, without Python's per-call handling of argument names."""
    import torch

    loader = torch._inductor.aoti_load_package(str(package)).loader

    def call(*inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        outputs: Sequence[torch.Tensor] = loader.run(list(inputs))
        return outputs

    return call


def _explain(package: Path, accelerator: str, *, frozen: bool) -> dict[str, Any]:
    """Count the exported operators and, on a CPU, the calls in the C++ code that Inductor wrote.

    With frozen weights a convolution does not show whether a BatchNorm is folded into it, so the number of fused nodes
    is omitted.
    """
    operators = json.loads((package / _NOTES).read_text())["operators"]
    facts = {"nodes_before": len(operators), "graph_breaks": 0, "operators": dict(Counter(operators))}
    if accelerator != "cpu":
        return facts
    calls = [name for path in package.rglob("*.cpp") for name in _find_calls(path.read_text())]
    if not calls:
        return facts
    kernels = [name for name in calls if inductor_runtime.is_kernel(name)]
    fused = sum(map(inductor_runtime.is_fused, kernels))
    facts |= {
        "nodes_after": len(calls),
        "kernel_calls": len(kernels),
        "kernels_fused": fused,
        "extern_calls": dict(Counter(name for name in calls if not inductor_runtime.is_kernel(name))),
    }
    return facts if frozen else facts | {"nodes_fused": fused}


def _find_calls(source: str) -> list[str]:
    """Return the kernels that a call of the network runs, in order, of Inductor and of torch's libraries."""
    pattern = r"\b(cpp_\w+|aoti_torch_cpu_\w+|aoti_torch_proxy_executor_call_function)\("
    body = source.partition("void AOTInductorModel::run_impl(")[2].partition("} // AOTInductorModel::run_impl")[0]
    return re.findall(pattern, body)


def probe_cuda() -> str:
    """Return the reason why a package cannot be compiled for the GPU: as on the CPU, or CUDA's headers."""
    return inductor_runtime.probe_cuda() or cuda.find_problem("aotinductor", _HEADERS)


COMPILER = Compiler(
    name="aotinductor",
    summary="torch.export and AOTInductor: compiled ahead of time into a package of machine code",
    forms={"module": ("torch", "torch._dynamo", "torch._inductor.compile_fx")},
    packages=("torch", "setuptools"),
    distribution="torch",
    beside=(*torch_runtime.BUILDERS, "setuptools"),
    numpy_2="2.3",
    install="pip install 'ngbkit[aotinductor]'",
    compile=compile,
    accelerators={"cpu": inductor_runtime.probe_cpu, "cuda": probe_cuda},
    caches=True,
    options={
        "freezing": inductor_runtime.FREEZING,
        "max_autotune": Option(
            default=False,
            help="benchmark templates of matrix products against the libraries, and use the fastest",
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
