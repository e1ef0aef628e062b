"""TorchScript: a traced and frozen module, with the passes of `optimize_for_inference` for a CPU or a GPU."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ngbkit.compilers import torch_runtime
from ngbkit.compilers.base import Compiler, Program, Task, always

_GROUPS = {"prim::TensorExprGroup", "prim::oneDNNFusionGroup", "prim::FusionGroup"}
# Kinds of nodes that read a constant or an attribute, pack, unpack, or query a type or a size.
_IDLE = frozenset(
    {
        *("prim::Constant", "prim::ConstantMKLDNNTensor", "prim::GetAttr"),
        *("prim::ListConstruct", "prim::ListUnpack", "prim::TupleConstruct", "prim::TupleUnpack"),
        *("prim::TypeCheck", "prim::NumToTensor", "aten::Int", "aten::size"),
    }
)


def compile(task: Task) -> Program:
    """Trace, freeze and optimise the module of `task`."""
    import torch

    bound = torch_runtime.bind(task)
    with torch.no_grad(), _silence_deprecations():
        # The harness checks the outputs itself, and a strict trace refuses a network that returns a dict.
        traced = torch.jit.trace(bound.module, bound.inputs, check_trace=False, strict=False)
        graph = traced.graph  # without the weights
        optimised = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
    # A call through the module would look the method up each time, for 1 µs.
    run = torch_runtime.disable_gradients(optimised.forward, bound.inputs)
    # The executor profiles the first call and specialises the graph to it in the second.
    run()
    run()
    return torch_runtime.make_program(
        bound,
        run,
        "TorchScript, frozen and optimised for inference",
        explain=lambda: _explain(graph, run),
    )


def _explain(graph: Any, run: Callable[[], Any]) -> dict[str, Any]:
    """Count the operators of the traced graph, and of the one that the executor runs, which is known after a call."""
    import torch

    torch._C._jit_pass_inline(graph)
    run()
    executed = list(_list_operators(torch._C._last_executed_optimized_graph()))
    return {
        "nodes_before": sum(1 for _ in _list_operators(graph)),
        "nodes_after": len(executed),
        "nodes_fused": sum(map(_is_fused, executed)),
        "operators": dict(Counter(node.kind() for node in executed)),
    }


def _list_operators(block: Any) -> Iterator[Any]:
    """Yield the nodes of a graph or a block that compute something."""
    for node in block.nodes():
        if node.kind() == "prim::If":  # from the executor: a fused group, or its fallback if a type does not match
            yield from _list_operators(next(node.blocks()))
        elif node.kind() not in _IDLE:
            yield node


@contextmanager
def _silence_deprecations() -> Iterator[None]:
    """Suppress TorchScript's own deprecation warnings, which every step emits."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is deprecated", category)
        yield


def _is_fused(node: Any) -> bool:
    """Return whether a node is a group of operators, or a convolution with a BatchNorm folded into its weights."""
    return node.kind() in _GROUPS or any("_fused_bn" in value.debugName() for value in node.inputs())


COMPILER = Compiler(
    name="torchscript",
    summary="torch.jit: traced, frozen, optimised for inference (deprecated by PyTorch, still deployed)",
    forms={"module": ("torch",)},
    packages=("torch",),
    distribution="torch",
    beside=torch_runtime.BUILDERS,
    numpy_2="2.3",
    install="pip install 'ngbkit[torch]'",
    compile=compile,
    accelerators={"cpu": always, "cuda": torch_runtime.probe_cuda},
    options=torch_runtime.OPTIONS,
    refusals=(
        *torch_runtime.REFUSALS,
        r"Tracer cannot infer type",
        r"trace a dynamo-optimized function",
        r"can be (returned|output) from traced functions|cannot be traced",
        r"NYI: Named tensors are not supported with the tracer",
        r"[Tt]racing .*(not supported|unsupported)",
        r"TorchScript interpreter[\s\S]*not supported",
    ),
)
