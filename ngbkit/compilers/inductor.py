"""Inductor, the compiler behind `torch.compile`: C++ kernels generated and built on this machine."""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngbkit.compilers import identity
from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.errors import UnsupportedError

# How many reasons for graph breaks are kept.
_REASONS = 5


def compile(task: Task) -> Program:
    """Compile the module of `task`, and call it once, because ``torch.compile`` does nothing before that.

    Raises
    ------
    UnsupportedError
        Dynamo captured no graph at all, so that what would be timed is eager.
    """
    # The threads are written into the kernels, which not every version takes into the name that it keeps them by.
    _keep_in(task.cache / "inductor" / f"threads-{task.threads}")
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor import metrics

    module, inputs = identity.bind(task)
    torch._dynamo.reset()
    counters.clear()
    metrics.reset()
    compiled = torch.compile(module, backend="inductor", fullgraph=False, dynamic=False, mode=str(task.options["mode"]))
    run = identity.without_gradients(compiled, inputs)
    run()
    found = _count(counters, metrics.ir_nodes_pre_fusion)
    if not found.graphs:
        raise UnsupportedError("Dynamo captured no graph of this network, so all of it would run in eager mode.")
    return Program(
        run=run,
        fetch=identity.fetch,
        contract=identity.contract(module, "torch inductor"),
        facts={
            **identity.facts(),
            "graphs": found.graphs,
            "graph_breaks": sum(found.breaks.values()),
            "cache": "hit" if found.hits and not found.misses else "miss",
        },
        explain=lambda: _explain(found),
        within=identity.torch_mode(),
    )


def _keep_in(folder: Path) -> None:
    """Have Inductor keep all that it keeps in `folder`, and forget what this process has compiled before."""
    # Inductor reads it whenever it looks something up, and knows no other way to be told.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    from torch._inductor import codecache
    from torch._inductor.utils import clear_caches

    clear_caches()
    # Headers are precompiled once for all that a user ever compiles, below /tmp: a good part of a cold compile.
    codecache._HEADER_DIR = str(folder / "precompiled_headers")
    codecache._HEADER_LOCK_DIR = str(folder / "precompiled_headers" / "locks")
    codecache._precompile_header.cache_clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What Dynamo and Inductor counted while they compiled; a cache restores it, so it is the same on a hit."""

    graphs: int
    breaks: dict[str, int]
    captured: int
    before_fusion: int
    hits: int
    misses: int
    sources: tuple[str, ...]


def _count(counters: Any, before_fusion: int) -> _Found:
    from torch._inductor.codecache import PyCodeCache

    return _Found(
        graphs=counters["stats"]["unique_graphs"],
        breaks=dict(counters["graph_break"]),
        captured=counters["stats"]["calls_captured"],
        before_fusion=before_fusion,
        hits=counters["inductor"]["fxgraph_cache_hit"],
        misses=counters["inductor"]["fxgraph_cache_miss"],
        sources=tuple(str(module.__file__) for module in PyCodeCache.modules if hasattr(module, "call")),
    )


def _explain(found: _Found) -> dict[str, Any]:
    """What is executed, read from the Python code that Inductor wrote, and why Dynamo broke off.

    Where it did, Python runs the operators in between, which nobody counts: the numbers of nodes are left out then.
    """
    kernels: list[str] = []
    extern: list[str] = []
    for source in found.sources:
        for name in _calls(Path(source).read_text()):
            (kernels if name.startswith("cpp_") else extern).append(name)
    told = {
        "graph_breaks": sum(found.breaks.values()),
        "graph_break_reasons": [reason.partition("\n")[0] for reason in found.breaks][:_REASONS],
        "operators_captured": found.captured,
        "nodes_before_fusion": found.before_fusion,
        "kernel_calls": len(kernels),
        "extern_calls": dict(Counter(extern)),
    }
    if found.breaks:
        return told
    return told | {
        "nodes_before": found.captured,
        "nodes_after": len(kernels) + len(extern),
        "nodes_fused": sum(map(_is_fused, kernels)),
    }


def _calls(source: str) -> Iterator[str]:
    """The kernels that the code of a graph calls, in order: Inductor's own, and those of torch's libraries."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef) and (function.name == "call" or function.name.startswith("partition")):
            for node in ast.walk(function):
                name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                if name.startswith(("cpp_", "extern_kernels.", "torch.ops.", "aten.")):
                    yield name


def _is_fused(kernel: str) -> bool:
    """Whether a kernel is made of several operators, whose names Inductor puts together: ``cpp_fused_add_relu_0``.

    Two that go by one name are not told apart.
    """
    import torch

    made_of = re.sub(r"^cpp_(fused_)?|_\d+$", "", kernel)
    return not any(hasattr(library, made_of) for library in (torch.ops.aten, torch.ops.prims))


def probe() -> str:
    """Why Inductor cannot build kernels here: it needs a C++ compiler."""
    if find_cxx():
        return ""
    wanted = (
        f"$CXX is {os.environ['CXX']!r}, which is not found" if os.environ.get("CXX") else "no g++ or clang++ is found"
    )
    return f"inductor needs a C++ compiler, and {wanted}; get one by: apt install g++"


def find_cxx() -> str | None:
    """The path of the C++ compiler that Inductor would call, or None."""
    chosen = os.environ.get("CXX")
    names = [chosen] if chosen else ["g++", "clang++"]
    return next(filter(None, map(shutil.which, names)), None)


COMPILER = Compiler(
    name="inductor",
    summary="torch.compile with the Inductor backend",
    forms={"module": ("torch", "torch._dynamo", "torch._inductor.compile_fx")},
    packages=("torch",),
    install="pip install 'ngbkit[torch]'",
    compile=compile,
    accelerators={"cpu": probe},
    caches=True,
    options={
        "mode": Option(
            default="default",
            help="how hard torch.compile tries; reduce-overhead is about CUDA graphs and changes nothing on a CPU",
            choices=("default", "reduce-overhead", "max-autotune"),
        ),
    },
    refusals=(
        r"MissingOperatorWith(out)?Decomp",
        r"^Unsupported:|_dynamo\.exc\.Unsupported",
        r"Dynamo is not supported|torch\.compile is not supported",
    ),
)
