"""Inductor, the compiler behind `torch.compile`: it generates C++ or Triton kernels and builds them on this machine."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngbkit.compilers import inductor_runtime, torch_runtime
from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.compilers.profiles import inductor as profiler
from ngbkit.compilers.profiles import torch_graph
from ngbkit.compilers.profiles.profile import Profile, Profiler
from ngbkit.compilers.torch_runtime import BoundNetwork
from ngbkit.errors import UnsupportedError

MODES = ("default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
# The most graph-break reasons to report.
_REASONS = 5
# A CUDA graph is recorded by the second call, after one that allocates, and replayed from the third on.
_CALLS_TO_RECORD = 3
_BREAKS = "Dynamo broke the network into several graphs: what runs in Python between them is in no kernel"


def compile(task: Task) -> Program:
    """Compile the module of `task`, and call it, because ``torch.compile`` does nothing before the first call."""
    # The kernels depend on the number of threads, which not every version includes in its cache keys.
    folder = task.cache / "inductor" / f"threads-{task.threads}"
    inductor_runtime.set_cache(folder)
    binaries = inductor_runtime.list_binaries(folder)
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor import metrics

    mode, frozen = str(task.options["mode"]), bool(task.options["freezing"])
    bound = torch_runtime.bind(task)
    torch._dynamo.reset()
    counters.clear()
    metrics.reset()
    compiled = torch.compile(bound.module, backend="inductor", fullgraph=False, dynamic=False, mode=mode)
    run = torch_runtime.disable_gradients(compiled, bound.inputs)
    graphs_recorded = bound.accelerator == "cuda" and records_graphs(mode)
    with inductor_runtime.apply_settings({"freezing": frozen}):
        for _ in range(_CALLS_TO_RECORD if graphs_recorded else 1):
            run()
    counts = _count(counters, metrics.ir_nodes_pre_fusion, frozen=frozen)
    new_binaries = inductor_runtime.list_binaries(folder) - binaries
    if not counts.graphs:
        raise UnsupportedError("Dynamo captured no graph of this network; all of it would run in eager mode.")
    return torch_runtime.make_program(
        bound,
        run,
        "torch inductor",
        notes="CUDA graphs: each call overwrites the outputs of the one before" if graphs_recorded else "",
        facts={
            "graphs": counts.graphs,
            "graph_breaks": sum(counts.breaks.values()),
            "cache": "hit" if _is_hit(counts, new_binaries=new_binaries) else "miss",
        },
        explain=lambda: _explain(counts),
        profile=lambda: _open_profiler(bound, mode, frozen=frozen),
    )


def records_graphs(mode: str) -> bool:
    """Return whether ``torch.compile`` records CUDA graphs in a mode."""
    from torch._inductor import list_mode_options

    return bool(list_mode_options(mode).get("triton.cudagraphs"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """The counters of Dynamo and Inductor after a compile; a cache hit restores them."""

    graphs: int
    breaks: dict[str, int]
    captured: int
    before_fusion: int
    hits: int
    misses: int
    bypasses: int
    sources: tuple[str, ...]
    frozen: bool


def _count(counters: Any, before_fusion: int, *, frozen: bool) -> _Counts:
    from torch._inductor.codecache import PyCodeCache

    return _Counts(
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


def _is_hit(counts: _Counts, *, new_binaries: Collection[Path]) -> bool:
    """Return whether the compile reused the results of an earlier one.

    A graph whose weights are frozen and packed by oneDNN is never cached, so it is lowered anew; its kernels are
    cached, and building them is most of a cold compile.
    """
    return not counts.misses and (bool(counts.hits) or (bool(counts.bypasses) and not new_binaries))


def _explain(counts: _Counts) -> dict[str, Any]:
    """Count the calls in the Python code that Inductor wrote, and list the reasons for graph breaks.

    The operators between two graphs run in Python, uncounted: with a graph break the node counts are omitted. With
    frozen weights a convolution does not show whether a BatchNorm is folded into it, so the number of fused nodes is
    omitted.
    """
    kernels: list[str] = []
    extern: list[str] = []
    for source in counts.sources:
        for name in _find_calls(Path(source).read_text()):
            (kernels if inductor_runtime.is_kernel(name) else extern).append(name)
    facts = {
        "graph_breaks": sum(counts.breaks.values()),
        "graph_break_reasons": [reason.partition("\n")[0] for reason in counts.breaks][:_REASONS],
        "operators_captured": counts.captured,
        "nodes_before_fusion": counts.before_fusion,
        "kernel_calls": len(kernels),
        "kernels_fused": sum(map(inductor_runtime.is_fused, kernels)),
        "extern_calls": dict(Counter(extern)),
    }
    if counts.breaks:
        return facts
    facts |= {"nodes_before": counts.captured, "nodes_after": len(kernels) + len(extern)}
    return facts if counts.frozen else facts | {"nodes_fused": facts["kernels_fused"]}


def _find_calls(source: str) -> Iterator[str]:
    """Yield the kernels that the code of a graph calls, in order, of Inductor and of torch's libraries."""
    for function in inductor_runtime.list_bodies(ast.parse(source)):
        for node in ast.walk(function):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if inductor_runtime.is_kernel_call(name):
                yield name.removesuffix(".run")


def _open_profiler(bound: BoundNetwork, mode: str, *, frozen: bool) -> Profiler:
    """Compile the network once more, with Inductor's provenance and a clock around each call of a kernel.

    Dynamo is not reset: that would discard the program that was timed.
    """
    import torch
    from torch._functorch import config as autograd_config
    from torch._inductor import list_mode_options

    build = profiler.TimedBuild(options=list_mode_options(mode))
    compiled = torch.compile(bound.module, backend=build.compile_graph, fullgraph=False, dynamic=False)
    run = torch_runtime.disable_gradients(compiled, bound.inputs)
    # A graph from the cache has no provenance; its kernels are cached elsewhere.
    settings = {**profiler.SETTINGS, "freezing": frozen, "fx_graph_cache": False}
    with inductor_runtime.apply_settings(settings), autograd_config.patch(enable_autograd_cache=False):
        run()

    def read() -> Profile:
        notes = [_BREAKS] if build.graphs > 1 else []
        source = torch_graph.build(build.operations, dict(bound.module.named_modules()))
        return profiler.build_profile(build.calls, source, build.seconds, notes)

    return Profiler(run=run, read=read, prepare=build.begin_call)


def probe_cpu() -> str:
    """Return the reason why Inductor cannot build and call kernels for this CPU: no C++ compiler or Python headers."""
    return inductor_runtime.probe_cpu() or inductor_runtime.probe_headers()


COMPILER = Compiler(
    name="inductor",
    summary="torch.compile with the Inductor backend",
    forms={"module": ("torch", "torch._dynamo", "torch._inductor.compile_fx")},
    packages=("torch", "setuptools"),
    distribution="torch",
    beside=(*torch_runtime.BUILDERS, "setuptools"),
    numpy_2="2.3",
    install="pip install 'ngbkit[inductor]'",
    compile=compile,
    accelerators={"cpu": probe_cpu, "cuda": inductor_runtime.probe_cuda},
    caches=True,
    options={
        "mode": Option(
            default="default",
            help="optimisation effort of torch.compile; reduce-overhead records CUDA graphs and has no effect on a CPU",
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
