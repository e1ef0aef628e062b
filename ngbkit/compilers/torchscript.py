"""TorchScript: a traced module, frozen, with the passes that `optimize_for_inference` adds for the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ngbkit.compilers import identity
from ngbkit.compilers.base import Compiler, Program, Task


def compile(task: Task) -> Program:
    """Trace, freeze and optimise the module of `task`."""
    import torch

    module, inputs = identity.bind(task)
    with torch.no_grad(), _silenced():
        # The harness checks the outputs itself, and a strict trace refuses a network that returns a dict.
        traced = torch.jit.trace(module, inputs, check_trace=False, strict=False)  # type: ignore[no-untyped-call]
        frozen = torch.jit.freeze(traced)
        before = _count_nodes(traced.inlined_graph)
        optimised = torch.jit.optimize_for_inference(frozen)
    run = identity.without_gradients(optimised, inputs)
    # The executor profiles the first call and specialises the graph to it in the second.
    run()
    run()
    return Program(
        run=run,
        fetch=identity.fetch,
        contract=identity.contract(module, "TorchScript, frozen and optimised for inference"),
        facts={**identity.facts(), "nodes_before": before, "nodes_after": _count_nodes(optimised.graph)},
    )


@contextmanager
def _silenced() -> Iterator[None]:
    """TorchScript says that it is deprecated at every step; whoever measures it knows."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", category)
        yield


def _count_nodes(graph: Any) -> int:
    """Operations of a graph: constants and the reading of attributes compute nothing."""
    idle = {"prim::Constant", "prim::ConstantMKLDNNTensor", "prim::GetAttr"}
    return sum(node.kind() not in idle for node in graph.nodes())


COMPILER = Compiler(
    name="torchscript",
    summary="torch.jit: traced, frozen, optimised for inference (deprecated by PyTorch, still deployed)",
    forms={"module": ("torch",)},
    packages=("torch",),
    install="pip install 'ngbkit[torch]'",
    compile=compile,
    refusals=(
        r"Tracer cannot infer type",
        r"can be (returned|output) from traced functions|cannot be traced",
        r"NYI: Named tensors are not supported with the tracer",
        r"[Tt]racing .*(not supported|unsupported)",
        r"TorchScript interpreter[\s\S]*not supported",
    ),
)
