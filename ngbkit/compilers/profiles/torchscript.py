"""The profiler of TorchScript: the graph that its executor runs, with a range of torch's profiler around each node.

Some operators, such as oneDNN's convolutions, are none of torch's library, so that its profiler has no event of them
without such a range. A node has the scope of the module that it was traced in, and that of a fused group those of its
parts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ngbkit.compilers.profiles import provenance, torch_graph
from ngbkit.compilers.profiles.profile import Profile, Profiler
from ngbkit.compilers.profiles.provenance import Executed
from ngbkit.compilers.profiles.source_graph import SourceGraph

if TYPE_CHECKING:
    import torch

IDLE = frozenset(
    {
        *("prim::Constant", "prim::ConstantMKLDNNTensor", "prim::GetAttr"),
        *("prim::ListConstruct", "prim::ListUnpack", "prim::TupleConstruct", "prim::TupleUnpack"),
        *("prim::TypeCheck", "prim::NumToTensor", "aten::Int", "aten::size"),
    }
)
"""Kinds of nodes that read a constant or an attribute, pack, unpack, or query a type or a size."""

_NOTE = (
    "the profile is of the executor's graph with a range of torch's profiler around each node; the timed one is without"
)
_RANGE = "ngbkit:"
_COPIES = frozenset({"to_mkldnn", "to_dense", "BroadcastMKLDNNTensors", "contiguous", "clone", "to"})
# The name of a weight in a frozen graph, which may be folded or packed: ``self.layer1.0.conv1.weight_fused_bn_mkldnn``.
_WEIGHT = re.compile(r"self\.(.+)\.(?:weight|bias)(?:_\w+)?(?:\.\d+)?$")
# In the name of a weight with a normalisation in it.
_FOLDED = "_fused_bn"
# The attribute of a group with the graph of its parts.
_PARTS = "Subgraph"


def open_profiler(
    traced: Any, run: Callable[[], Any], inputs: Sequence[torch.Tensor], modules: Mapping[str, torch.nn.Module]
) -> Profiler:
    """Open a profiler of the graph that the executor runs in a call; `traced` is the inlined graph before any pass."""
    import torch

    run()
    graph = torch._C._last_executed_optimized_graph().copy()
    source = torch_graph.build(torch_graph.list_traced(traced), modules)
    executed = list_executed(graph, source, modules)
    function = _build_function(graph)
    recorder = _RangeRecorder(len(executed), lambda: function(*inputs))

    def read() -> Profile:
        import numpy as np

        return Profile(
            nodes=source.nodes,
            kernels=provenance.map_kernels(source.nodes, executed),
            seconds=np.array(recorder.seconds, dtype=np.float64).reshape(len(recorder.seconds), len(executed)),
            form="module",
            notes=(_NOTE,),
        )

    return Profiler(run=recorder.run, read=read, prepare=recorder.start, finish=recorder.stop)


def list_operators(block: Any) -> Iterator[Any]:
    """Yield the nodes of a graph or a block that compute something."""
    for node in block.nodes():
        if node.kind() == "prim::If":  # from the executor: a fused group, or its fallback if a type does not match
            yield from list_operators(next(node.blocks()))
        elif node.kind() not in IDLE:
            yield node


def list_executed(graph: Any, source: SourceGraph, modules: Mapping[str, torch.nn.Module]) -> list[Executed]:
    """List the nodes that run in a graph of the executor, with the operators of the network that they claim."""
    finder = _OperatorFinder(source, _WeightFinder(modules))
    owners: dict[str, tuple[int, ...]] = {}
    executed: list[Executed] = []
    for node, is_kernel in _iterate(graph):
        reads = tuple(dict.fromkeys(owner for value in node.inputs() for owner in owners.get(value.debugName(), ())))
        outputs = [value.debugName() for value in node.outputs()]
        if is_kernel:
            claims = tuple(dict.fromkeys(claim for part in _list_parts(node) for claim in finder.find(part)))
            if not claims and node.kind() == "aten::add" and len(reads) == 1:  # the bias of a linear layer
                claims = tuple(each for each in executed[reads[0]].claims if source.nodes[each].operator == "linear")
            name = node.kind().partition("::")[2]
            executed.append(
                Executed(
                    name=f"{name}:{outputs[0] if outputs else len(executed)}",
                    kind=name,
                    inputs=reads,
                    claims=claims,
                    moves=name in _COPIES,
                )
            )
            reads = (len(executed) - 1,)
        owners.update(dict.fromkeys(outputs, reads))
    return executed


class _OperatorFinder:
    """Finds operators of the network by their module, their name, and their order in that module."""

    def __init__(self, source: SourceGraph, weights: _WeightFinder) -> None:
        self._nodes = source.nodes
        self._weights = weights
        self._names = {node.name: index for index, node in enumerate(source.nodes)}
        self._modules: dict[str, list[int]] = {}
        self._readers: dict[int, list[int]] = {}
        self._counts: Counter[str] = Counter()
        for index, node in enumerate(source.nodes):
            self._modules.setdefault(node.module, []).append(index)
            for each in node.inputs:
                self._readers.setdefault(each, []).append(index)

    def find(self, part: Any) -> list[int]:
        """Find the operators of the network that a node of the executor's graph is, or is a part of."""
        module = torch_graph.find_scope(part) or self._weights.find(part)
        place = self._names.get(torch_graph.name_node(module, simplify(part.kind()), self._counts))
        members = self._modules.get(module, [])
        # A linear layer is two operators; one without a module is of the network itself, or of an unknown module.
        if place is None and len(members) == 1 and (module or len(self._nodes) == 1):
            place = members[0]
        if place is None:
            return []
        if not any(_FOLDED in value.debugName() for value in part.inputs()):
            return [place]
        return [place, *(each for each in self._readers.get(place, ()) if self._nodes[each].operator == "batch_norm")]


def _iterate(block: Any) -> Iterator[tuple[Any, bool]]:
    """Yield all nodes that run with whether they are kernels; a branch after the nodes of its first block."""
    for node in block.nodes():
        if node.kind() == "prim::If":
            first, *_ = node.blocks()
            yield from _iterate(first)
            yield _Branch(node, first), False
        else:
            yield node, node.kind() not in IDLE


class _Branch:
    """A branch as a node: it reads what its first block returns."""

    def __init__(self, node: Any, block: Any) -> None:
        self.inputs = block.outputs
        self.outputs = node.outputs


def _list_parts(node: Any) -> list[Any]:
    """List the operators in a node: those of a fused group, or itself."""
    if not node.hasAttribute(_PARTS):
        return [node]
    return [part for part in node.g(_PARTS).nodes() if part.kind() not in IDLE]


def simplify(kind: str) -> str:
    """Return the plain name of an operator, of those of oneDNN as well: ``"convolution"``."""
    return torch_graph.simplify(kind.replace("prim::mkldnn_", "aten::").replace("prim::MKLDNN", "aten::"))


class _WeightFinder:
    """Finds the module of a node without a scope by a weight that it alone reads, by its name or its values."""

    def __init__(self, modules: Mapping[str, torch.nn.Module]) -> None:
        self._weights: dict[tuple[int, ...], list[tuple[str, torch.Tensor]]] = {}
        for path, module in modules.items():
            for weight in module.parameters(recurse=False):
                self._weights.setdefault(tuple(weight.shape), []).append((path, weight.detach()))

    def find(self, node: Any) -> str:
        """Find the path of the module of a node; empty if it is unknown."""
        for value in node.inputs():
            if len(value.uses()) != 1 or value.node().kind() not in {"prim::Constant", "prim::ConstantMKLDNNTensor"}:
                continue
            match = _WEIGHT.match(value.debugName())
            path = match[1] if match else self._find_equal(value.node())
            if path:
                return path
        return ""

    def _find_equal(self, constant: Any) -> str:
        """Find the only module with a weight of the values of a constant, or of those transposed."""
        import torch

        if not constant.hasAttribute("value") or constant.kindOf("value") != "t":
            return ""
        values = constant.t("value")
        if values.is_mkldnn or values.dim() != 2:
            return ""
        candidates = self._weights.get(tuple(reversed(values.shape)), [])
        paths = [path for path, weight in candidates if torch.equal(weight.t(), values)]
        return paths[0] if len(paths) == 1 else ""


def _build_function(graph: Any) -> Callable[..., Any]:
    """Build a function that runs a graph of the executor, with a range of torch's profiler around each kernel."""
    import torch

    for index, node in enumerate([node for node, is_kernel in _iterate(graph) if is_kernel]):
        name, nothing = graph.create("prim::Constant"), graph.create("prim::Constant")
        name.s_("value", f"{_RANGE}{index}")
        name.output().setType(torch._C.StringType.get())
        nothing.output().setType(torch._C.NoneType.get())
        enter = graph.create("profiler::_record_function_enter", [name.output(), nothing.output()])
        leave = graph.create("profiler::_record_function_exit", [enter.output()], 0)
        for each in (name, nothing, enter):
            each.insertBefore(node)
        leave.insertAfter(node)
    module = next(iter(graph.inputs()))
    if not module.uses() and module.type().kind() == "ClassType":
        graph.eraseInput(0)
    function: Callable[..., Any] = torch._C._create_function_from_graph("profiled", graph)
    return function


class _RangeRecorder:
    """The seconds of each kernel in each profiled call, from the ranges around them."""

    def __init__(self, kernels: int, run: Callable[[], Any]) -> None:
        self._kernels = kernels
        self.run = run
        self._profiler: Any = None
        self.seconds: list[list[float]] = []

    def start(self) -> None:
        """Start torch's profiler, let the executor run the graph as it is, and wake the threads by a first call."""
        import torch
        from torch.autograd import profiler

        torch._C._set_graph_executor_optimize(False)
        self._profiler = profiler.profile()
        self._profiler.__enter__()
        self.run()

    def stop(self) -> None:
        """Stop the profiler, and read the last range of each kernel."""
        import torch

        self._profiler.__exit__(None, None, None)
        torch._C._set_graph_executor_optimize(True)
        seconds = [0.0] * self._kernels
        for event in sorted(self._profiler.function_events, key=lambda event: event.time_range.start):
            if event.name.startswith(_RANGE):
                seconds[int(event.name.removeprefix(_RANGE))] = 1e-6 * event.time_range.elapsed_us()
        self.seconds.append(seconds)
