"""Inductor, the compiler behind `torch.compile`: C++ kernels generated and built on this machine."""

from __future__ import annotations

import os
import shutil
from typing import Any

from ngbkit.compilers import identity
from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.errors import UnsupportedError


def compile(task: Task) -> Program:
    """Compile the module of `task`, and call it once, because ``torch.compile`` does nothing before that.

    Raises
    ------
    UnsupportedError
        Dynamo captured no graph at all, so that what would be timed is eager.
    """
    # Inductor reads it whenever it looks something up, and knows no other way to be told.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(task.cache / "inductor")
    import torch
    from torch._dynamo.utils import counters

    module, inputs = identity.bind(task)
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(module, backend="inductor", fullgraph=False, dynamic=False, mode=str(task.options["mode"]))
    run = identity.without_gradients(compiled, inputs)
    run()
    found = _facts(counters)
    if not found["graphs"]:
        raise UnsupportedError("Dynamo captured no graph of this network, so all of it would run in eager mode.")
    return Program(
        run=run,
        fetch=identity.fetch,
        contract=identity.contract(module, "torch inductor"),
        facts={**identity.facts(), **found},
    )


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


def _facts(counters: Any) -> dict[str, Any]:
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "graph_breaks": sum(counters["graph_break"].values()),
        "operators": counters["stats"]["calls_captured"],
        "extern_calls": counters["inductor"]["extern_calls"],
        "cache_hits": counters["inductor"]["fxgraph_cache_hit"],
        "cache_misses": counters["inductor"]["fxgraph_cache_miss"],
    }


COMPILER = Compiler(
    name="inductor",
    summary="torch.compile with the Inductor backend",
    forms={"module": ("torch", "torch._dynamo", "torch._inductor.compile_fx")},
    packages=("torch",),
    install="pip install 'ngbkit[torch]'",
    compile=compile,
    probe=probe,
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
