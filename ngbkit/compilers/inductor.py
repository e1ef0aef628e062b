"""Inductor, the compiler behind `torch.compile`: kernels in C++ or Triton, generated and built on this machine."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngbkit.compilers import inductor_runtime, torch_runtime
from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.errors import UnsupportedError

MODES = ("default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
# How many reasons for graph breaks are kept.
_REASONS = 5
# A CUDA graph is recorded by the second call, after one that allocates, and replayed from the third on.
_CALLS_TO_RECORD = 3


def compile(task: Task) -> Program:
    """Compile the module of `task`, and call it, because ``torch.compile`` does nothing before that.

    Raises
    ------
    UnsupportedError
        Dynamo captured no graph at all, so that what would be timed is eager.
    """
    # The threads are written into the kernels, which not every version takes into the name that it keeps them by.
    folder = task.cache / "inductor" / f"threads-{task.threads}"
    inductor_runtime.keep_in(folder)
    built = inductor_runtime.built_in(folder)
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor import metrics

    mode, frozen = str(task.options["mode"]), bool(task.options["freezing"])
    bound = torch_runtime.bind(task)
    torch._dynamo.reset()
    counters.clear()
    metrics.reset()
    compiled = torch.compile(bound.module, backend="inductor", fullgraph=False, dynamic=False, mode=mode)
    run = torch_runtime.without_gradients(compiled, bound.inputs)
    graphs_recorded = bound.accelerator == "cuda" and records_graphs(mode)
    with inductor_runtime.configured({"freezing": frozen}):
        for _ in range(_CALLS_TO_RECORD if graphs_recorded else 1):
            run()
    found = _count(counters, metrics.ir_nodes_pre_fusion, frozen=frozen)
    if not found.graphs:
        raise UnsupportedError("Dynamo captured no graph of this network, so all of it would run in eager mode.")
    return torch_runtime.make_program(
        bound,
        run,
        "torch inductor",
        notes="CUDA graphs: each call overwrites the outputs of the one before" if graphs_recorded else "",
        facts={
            "graphs": found.graphs,
            "graph_breaks": sum(found.breaks.values()),
            "cache": "hit" if _was_kept(found, built_now=inductor_runtime.built_in(folder) - built) else "miss",
        },
        explain=lambda: _explain(found),
    )


def records_graphs(mode: str) -> bool:
    """Whether ``torch.compile`` records CUDA graphs in that mode."""
    from torch._inductor import list_mode_options

    return bool(list_mode_options(mode).get("triton.cudagraphs"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What Dynamo and Inductor counted while they compiled; a cache restores it, so it is the same on a hit."""

    graphs: int
    breaks: dict[str, int]
    captured: int
    before_fusion: int
    hits: int
    misses: int
    bypasses: int
    sources: tuple[str, ...]
    frozen: bool


def _count(counters: Any, before_fusion: int, *, frozen: bool) -> _Found:
    from torch._inductor.codecache import PyCodeCache

    return _Found(
        graphs=counters["stats"]["unique_graphs"],
        breaks=dict(counters["graph_break"]),
        captured=counters["stats"]["calls_captured"],
        before_fusion=before_fusion,
        hits=counters["inductor"]["fxgraph_cache_hit"],
        misses=counters["inductor"]["fxgraph_cache_miss"],
        bypasses=counters["inductor"]["fxgraph_cache_bypass"],
        sources=tuple(str(module.__file__) for module in PyCodeCache.modules if hasattr(module, "call")),
        frozen=frozen,
    )


def _was_kept(found: _Found, *, built_now: Collection[Path]) -> bool:
    """Whether this compile made use of what an earlier one had left.

    A graph whose weights are frozen and packed by oneDNN cannot be kept, so it is lowered anew; its kernels are kept,
    and to build them is most of a cold compile.
    """
    return not found.misses and (bool(found.hits) or (bool(found.bypasses) and not built_now))


def _explain(found: _Found) -> dict[str, Any]:
    """What is executed, read from the Python code that Inductor wrote, and why Dynamo broke off.

    Where it did, Python runs the operators in between, which nobody counts: the numbers of nodes are left out then. And
    where it froze the weights, a convolution does not show whether a BatchNorm is folded into them: it is not known how
    many do the work of more than one operator.
    """
    kernels: list[str] = []
    extern: list[str] = []
    for source in found.sources:
        for name in _calls(Path(source).read_text()):
            (kernels if inductor_runtime.is_kernel(name) else extern).append(name)
    told = {
        "graph_breaks": sum(found.breaks.values()),
        "graph_break_reasons": [reason.partition("\n")[0] for reason in found.breaks][:_REASONS],
        "operators_captured": found.captured,
        "nodes_before_fusion": found.before_fusion,
        "kernel_calls": len(kernels),
        "kernels_fused": sum(map(inductor_runtime.is_fused, kernels)),
        "extern_calls": dict(Counter(extern)),
    }
    if found.breaks:
        return told
    counts = {"nodes_before": found.captured, "nodes_after": len(kernels) + len(extern)}
    return told | counts | ({} if found.frozen else {"nodes_fused": told["kernels_fused"]})


def _calls(source: str) -> Iterator[str]:
    """The kernels that the code of a graph calls, in order: Inductor's own, and those of torch's libraries."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef) and (function.name == "call" or function.name.startswith("partition")):
            for node in ast.walk(function):
                name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
                if name.startswith("triton_") and name.endswith(".run"):
                    yield name.removesuffix(".run")
                elif name.startswith(("cpp_", "extern_kernels.", "torch.ops.", "aten.")):
                    yield name


def probe_cpu() -> str:
    """Why Inductor cannot build kernels for this CPU and call them: it needs a C++ compiler, and Python's headers."""
    return inductor_runtime.probe_cpu() or inductor_runtime.probe_headers()


COMPILER = Compiler(
    name="inductor",
    summary="torch.compile with the Inductor backend",
    forms={"module": ("torch", "torch._dynamo", "torch._inductor.compile_fx")},
    packages=("torch",),
    install="pip install 'ngbkit[torch]'",
    compile=compile,
    accelerators={"cpu": probe_cpu, "cuda": inductor_runtime.probe_cuda},
    caches=True,
    options={
        "mode": Option(
            default="default",
            help="how hard torch.compile tries; reduce-overhead is about CUDA graphs and changes nothing on a CPU",
            choices=MODES,
        ),
        "freezing": inductor_runtime.FREEZING,
        **torch_runtime.OPTIONS,
    },
    refusals=(
        *inductor_runtime.REFUSALS,
        r"^Unsupported:|_dynamo\.exc\.Unsupported",
        r"Dynamo is not supported|torch\.compile is not supported",
    ),
)
