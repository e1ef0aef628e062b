"""Inductor's environment, shared by just-in-time and ahead-of-time compilation: cache folders, tools, kernel names."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ngbkit.compilers import torch_runtime
from ngbkit.compilers.base import Option

FREEZING = Option(
    default=True,
    help="treat weights as constants: fold BatchNorm into them and lay them out in advance",
    choices=(True, False),
)

#: Errors caused by the network or the chip, not by Inductor.
REFUSALS = (
    *torch_runtime.REFUSALS,
    r"MissingOperatorWith(out)?Decomp",
    r"GPUTooOldForTriton|too old to be supported by the triton",
)


def set_cache(folder: Path) -> None:
    """Redirect all of Inductor's caches to `folder`, and clear those in memory."""
    # Inductor reads the variable at each lookup; it has no other setting for this.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    # Triton caches its kernels in the home folder; Inductor redirects them only if this is unset.
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    from torch._inductor import codecache
    from torch._inductor.utils import clear_caches

    clear_caches()
    # Headers are precompiled once per user, below /tmp: a good part of a cold compile.
    codecache._HEADER_DIR = str(folder / "precompiled_headers")
    codecache._HEADER_LOCK_DIR = str(folder / "precompiled_headers" / "locks")
    codecache._precompile_header.cache_clear()


def list_binaries(folder: Path) -> frozenset[Path]:
    """Return the machine code in a folder, for a CPU or a GPU."""
    return frozenset(path for path in folder.rglob("*") if path.suffix in {".so", ".cubin"})


@contextmanager
def apply_settings(settings: Mapping[str, Any]) -> Iterator[None]:
    """Apply Inductor's own settings while it compiles.

    ``torch.compile(options=...)`` passes settings to Inductor but not to Dynamo, which must know of freezing while it
    captures: freezing set that way is silently ignored.
    """
    from torch._inductor import config

    with config.patch(dict(settings)):
        yield


def probe_cpu() -> str:
    """Return the reason why Inductor cannot build kernels for this CPU: it needs a C++ compiler."""
    if find_cxx():
        return ""
    detail = (
        f"$CXX is {os.environ['CXX']!r}, which was not found" if os.environ.get("CXX") else "found no g++ or clang++"
    )
    return f"inductor needs a C++ compiler: {detail}. Install one with: apt install g++"


def probe_cuda() -> str:
    """Return the reason why Inductor cannot build kernels for the GPU: torch, Triton or a C compiler is missing."""
    missing = torch_runtime.probe_cuda()
    if missing:
        return missing
    if importlib.util.find_spec("triton") is None:
        return "inductor needs triton on a GPU, which is not installed; install with: pip install triton"
    # Triton builds the launcher of each kernel in C.
    if not find_cc():
        return "Triton needs a C compiler: found no $CC, gcc or clang. Install one with: apt install gcc"
    return probe_cpu() or probe_headers()


def probe_headers() -> str:
    """Return the reason why Python cannot call just-in-time code: a bare Debian lacks Python's headers."""
    if Path(sysconfig.get_path("include"), "Python.h").is_file():
        return ""
    return "inductor needs the headers of Python: found no Python.h. Install them with: apt install python3-dev"


def find_cxx() -> str | None:
    """Return the path of the C++ compiler that Inductor would call, or None."""
    return _find_tool("CXX", ("g++", "clang++"))


def find_cc() -> str | None:
    """Return the path of the C compiler that Triton would call, or None."""
    return _find_tool("CC", ("gcc", "clang"))


def _find_tool(variable: str, names: tuple[str, ...]) -> str | None:
    chosen = os.environ.get(variable)
    return next(filter(None, map(shutil.which, (chosen,) if chosen else names)), None)


def list_bodies(tree: ast.Module) -> list[ast.FunctionDef]:
    """List the functions of generated Python code that call the kernels of a graph, or of a part of it."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [each for each in functions if each.name == "call" or each.name.startswith("partition")]


def is_kernel_call(name: str) -> bool:
    """Return whether generated Python code calls a kernel by that name, of Inductor or of torch's libraries."""
    return name.startswith(("cpp_", "extern_kernels.", "torch.ops.", "aten.")) or (
        name.startswith("triton_") and name.endswith(".run")
    )


def is_kernel(name: str) -> bool:
    """Return whether a call by that name runs a kernel that Inductor generated, rather than a library's."""
    return name.startswith(("cpp_", "triton_"))


def is_fused(kernel: str) -> bool:
    """Return whether a kernel fuses operators of several names, which Inductor joins: ``cpp_fused_add_relu_0``."""
    import torch

    # Triton's names include the kind of loop: triton_poi_fused_add_relu_0
    operators = re.sub(r"^(cpp|triton_[a-z]+)_(fused_)?|_\d+$", "", kernel)
    return not any(hasattr(library, operators) for library in (torch.ops.aten, torch.ops.prims))
