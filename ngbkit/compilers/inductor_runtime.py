"""What Inductor needs and leaves behind, compiling just in time or ahead of it: its folders, its tools, its kernels."""

from __future__ import annotations

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
    help="make the weights constants: BatchNorm is folded into them, and they are laid out once",
    choices=(True, False),
)

#: An error that says so is about the network or the chip, and not about Inductor.
REFUSALS = (
    *torch_runtime.REFUSALS,
    r"MissingOperatorWith(out)?Decomp",
    r"GPUTooOldForTriton|too old to be supported by the triton",
)


def keep_in(folder: Path) -> None:
    """Have Inductor keep all that it keeps in `folder`, and forget what this process has compiled before."""
    # Inductor reads it whenever it looks something up, and knows no other way to be told.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    # Triton keeps its kernels by itself, in the home; Inductor moves them only where this is not set.
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    from torch._inductor import codecache
    from torch._inductor.utils import clear_caches

    clear_caches()
    # Headers are precompiled once for all that a user ever compiles, below /tmp: a good part of a cold compile.
    codecache._HEADER_DIR = str(folder / "precompiled_headers")
    codecache._HEADER_LOCK_DIR = str(folder / "precompiled_headers" / "locks")
    codecache._precompile_header.cache_clear()


def built_in(folder: Path) -> frozenset[Path]:
    """The machine code that is kept in a folder, for a CPU or a GPU."""
    return frozenset(path for path in folder.rglob("*") if path.suffix in {".so", ".cubin"})


@contextmanager
def configured(settings: Mapping[str, Any]) -> Iterator[None]:
    """Inductor's own settings, for as long as it compiles.

    What ``torch.compile`` is given as ``options`` reaches Inductor and not Dynamo, which has to know of freezing while
    it captures: given there, freezing does nothing, and says nothing.
    """
    from torch._inductor import config

    with config.patch(dict(settings)):
        yield


def probe_cpu() -> str:
    """Why Inductor cannot build kernels for this CPU: it needs a C++ compiler."""
    if find_cxx():
        return ""
    wanted = (
        f"$CXX is {os.environ['CXX']!r}, which is not found" if os.environ.get("CXX") else "no g++ or clang++ is found"
    )
    return f"inductor needs a C++ compiler, and {wanted}; get one by: apt install g++"


def probe_cuda() -> str:
    """Why Inductor cannot build kernels for the GPU: it needs one that torch can use, Triton, and a C compiler."""
    missing = torch_runtime.probe_cuda()
    if missing:
        return missing
    if importlib.util.find_spec("triton") is None:
        return "inductor needs Triton on a GPU, and triton is not installed; get it by: pip install triton"
    # Triton builds the launcher of each kernel in C.
    if not find_cc():
        return "Triton needs a C compiler, and no $CC, gcc or clang is found; get one by: apt install gcc"
    return probe_cpu() or probe_headers()


def probe_headers() -> str:
    """Why what is compiled just in time cannot be called from Python: its headers are missing, as on a bare Debian."""
    if Path(sysconfig.get_path("include"), "Python.h").is_file():
        return ""
    return "inductor needs the headers of Python, and Python.h is not found; get them by: apt install python3-dev"


def find_cxx() -> str | None:
    """The path of the C++ compiler that Inductor would call, or None."""
    return _find("CXX", ("g++", "clang++"))


def find_cc() -> str | None:
    """The path of the C compiler that Triton would call, or None."""
    return _find("CC", ("gcc", "clang"))


def _find(variable: str, names: tuple[str, ...]) -> str | None:
    chosen = os.environ.get(variable)
    return next(filter(None, map(shutil.which, (chosen,) if chosen else names)), None)


def is_kernel(name: str) -> bool:
    """Whether what is called by that name is a kernel that Inductor generated, and not one of a library's."""
    return name.startswith(("cpp_", "triton_"))


def is_fused(kernel: str) -> bool:
    """Whether a kernel is made of several operators, whose names Inductor puts together: ``cpp_fused_add_relu_0``.

    Two that go by one name are not told apart.
    """
    import torch

    # Triton's say in between what sort of loop they are: triton_poi_fused_add_relu_0
    made_of = re.sub(r"^(cpp|triton_[a-z]+)_(fused_)?|_\d+$", "", kernel)
    return not any(hasattr(library, made_of) for library in (torch.ops.aten, torch.ops.prims))
