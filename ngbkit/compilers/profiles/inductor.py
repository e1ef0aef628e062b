"""The profiler of Inductor: a second build of the network, with a clock around each call of a kernel.

The clock is in the Python code of a graph, and the kernels are the machine code that was timed. Inductor lists the
nodes of the captured graph that each kernel computes, without those that a pattern has merged: these follow by data
flow.
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import inductor_runtime
from ngbkit.compilers.profiles import provenance, torch_graph
from ngbkit.compilers.profiles.profile import Profile
from ngbkit.compilers.profiles.provenance import Executed
from ngbkit.compilers.profiles.source_graph import SourceGraph
from ngbkit.compilers.profiles.torch_graph import Operation
from ngbkit.errors import UnsupportedError

if TYPE_CHECKING:
    import torch

SETTINGS: Mapping[str, Any] = {"trace.provenance_tracking_level": 1}
"""Inductor's settings under which it lists the nodes of each kernel."""

# The name of the clock in generated code.
_CLOCK = "_ngbkit_time"
# Comments before a call of a kernel: its name with a number, and the nodes that its value comes from.
_COMMENTS = re.compile(
    r"# (?:\[Provenance debug handles\] (?P<handle>\S+:\d+)"
    r"|Topologically Sorted Source Nodes: \[(?P<sources>[^\]]*)\])"
)
# A value that a kernel computes, rather than loads.
_COMPUTED = re.compile(r"tmp_acc|welford|auto tmp\d+ = (?!.*(_ptr\d+|tmp\d+\[|\(tmp\d+\);))")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCall:
    """A call of a kernel in generated code.

    `nodes` are those that Inductor says it computes; `sources` those that its value comes from, without those that a
    pattern has merged.
    """

    name: str
    nodes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    moves: bool = False


@dataclass(slots=True)
class TimedBuild:
    """A build of a network by ``torch.compile`` with a clock around each call of a kernel: `compile_graph` builds it.

    `options` are Inductor's own; `operations` are those of the captured graphs, `calls` the kernels in them, and
    `seconds` those of each kernel in each call of the network.
    """

    options: Mapping[str, Any]
    operations: list[Operation] = field(default_factory=list)
    calls: list[KernelCall] = field(default_factory=list)
    seconds: list[list[float]] = field(default_factory=list)
    graphs: int = 0

    def compile_graph(self, captured: torch.fx.GraphModule, inputs: Any) -> Any:
        """Compile a graph that Dynamo captured, as the backend of ``torch.compile``."""
        from torch._inductor import compile_fx
        from torch._inductor.codecache import PyCodeCache

        prefix = f"graph {self.graphs}: "
        self.graphs += 1
        self.operations += torch_graph.list_captured(captured.graph, prefix)

        def compile_captured(graph: torch.fx.GraphModule, inputs: Any, **settings: Any) -> Any:
            first = len(PyCodeCache.modules)
            compiled = compile_fx.compile_fx_inner(graph, inputs, **settings)
            origins = _read_origins()
            for module in PyCodeCache.modules[first:]:
                if hasattr(module, "call"):
                    self._instrument(module, origins, prefix)
            return compiled

        return compile_fx.compile_fx(captured, inputs, compile_captured, dict(self.options))

    def _instrument(self, module: ModuleType, origins: Mapping[str, Sequence[str]], prefix: str) -> None:
        """Put a clock around each call of a kernel in the generated code of a graph."""
        text = Path(str(module.__file__)).read_text()
        tree = ast.parse(text)
        comments = list(enumerate(map(_COMMENTS.search, text.splitlines()), 1))
        copies = set(_list_copies(tree))
        setattr(module, _CLOCK, self._time)
        for definition in inductor_runtime.list_bodies(tree):
            timer = _CallTimer(len(self.calls))
            timer.visit(definition)
            start = definition.lineno
            for name, line in timer.calls:
                before = [match for number, match in comments if match and start <= number < line]
                nodes = [node for match in before for node in origins.get(match["handle"] or "", ())]
                sources = [node for match in before for node in (match["sources"] or "").split(", ") if node]
                self.calls.append(
                    KernelCall(
                        name=name,
                        nodes=tuple(f"{prefix}{node}" for node in nodes),
                        sources=tuple(f"{prefix}{node}" for node in sources),
                        moves=name in copies,
                    )
                )
                start = line
            timed: dict[str, Any] = {}
            code = ast.fix_missing_locations(ast.Module([definition], []))
            exec(compile(code, str(module.__file__), "exec"), timed)
            _find_function(module, definition.name).__code__ = timed[definition.name].__code__

    def begin_call(self) -> None:
        """Begin a call of the network."""
        self.seconds.append([0.0] * len(self.calls))

    def _time(self, place: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a kernel, and add its seconds."""
        start = time.perf_counter()
        result = function(*args, **kwargs)
        if self.seconds:
            self.seconds[-1][place] += time.perf_counter() - start
        return result


class _CallTimer(ast.NodeTransformer):
    """Replaces calls of kernels by timed ones, numbered from `first` on; `calls` has their names and lines."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.calls: list[tuple[str, int]] = []

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Time a call of a kernel."""
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if not inductor_runtime.is_kernel_call(name):
            return node
        place = ast.Constant(self.first + len(self.calls))
        self.calls.append((name, node.lineno))
        timed = ast.Call(ast.Name(_CLOCK, ast.Load()), [place, node.func, *node.args], node.keywords)
        return ast.copy_location(timed, node)


def _read_origins() -> dict[str, Sequence[str]]:
    """Read the nodes of each kernel, by handle, in Inductor's record of a graph whose compile is not yet over."""
    from torch._inductor import debug

    read = getattr(debug, "create_kernel_information_json", None)
    if read is None:
        raise UnsupportedError("this release of torch lists no nodes of its kernels; profile with torch 2.10 or newer.")
    return {handle: entry["pre_grad_nodes"] for handle, entry in read().items()}


def _find_function(module: ModuleType, name: str) -> Any:
    """Find the function that runs a graph, or a part of it, in the module that was generated for it."""
    runner = getattr(module, "Runner", None)
    return vars(runner)[name] if runner is not None and name in vars(runner) else getattr(module, name)


def _list_copies(tree: ast.Module) -> Iterator[str]:
    """List the kernels of a generated module that only load and store values."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
            texts = [each.value for each in node.value.args if isinstance(each, ast.Constant)]
            if texts and isinstance(texts[-1], str) and is_copy(texts[-1]):
                yield node.targets[0].id


def is_copy(source: str) -> bool:
    """Return whether a kernel in C++ only loads and stores values."""
    return "_ptr0" in source and not _COMPUTED.search(source)


def build_profile(
    calls: Sequence[KernelCall], source: SourceGraph, seconds: Sequence[Sequence[float]], notes: Sequence[str]
) -> Profile:
    """Build the profile of calls of a network, from the seconds of the kernels in each."""
    import numpy as np

    return Profile(
        nodes=source.nodes,
        kernels=provenance.map_kernels(source.nodes, list_executed(calls, source)),
        seconds=np.array(seconds, dtype=np.float64).reshape(len(seconds), len(calls)),
        form="module",
        notes=tuple(notes),
    )


def list_executed(calls: Sequence[KernelCall], source: SourceGraph) -> list[Executed]:
    """List the kernels that are called, with the nodes that Inductor says they compute.

    Inductor's origins of a value include those of the values before it. So a library's kernel computes nothing that an
    earlier kernel did, and a kernel that continues a node computes nothing before that. A kernel reads those whose
    nodes are the nearest before its own.
    """
    claims: list[tuple[int, ...]] = []
    owners: dict[int, list[int]] = {}
    for place, (call, nodes) in enumerate(zip(calls, _list_nodes(calls, source), strict=True)):
        earlier = nodes & owners.keys()
        if not inductor_runtime.is_kernel(call.name) and nodes - earlier:
            nodes -= earlier
        elif earlier:
            nodes -= earlier & _find_ancestors(earlier, source)
        # A copy for a convolution is no part of it.
        claims.append(tuple(node for node in sorted(nodes) if source.nodes[node].moves or not call.moves))
        for node in claims[-1]:
            owners.setdefault(node, []).append(place)
    # A normalisation that no kernel computes is in the weights of the convolution before it.
    for index, part in enumerate(source.nodes):
        if part.operator == "batch_norm" and index not in owners:
            for place in owners.get(part.inputs[0], ()) if part.inputs else ():
                claims[place] = (*claims[place], index)
    return [
        Executed(
            name=f"{call.name}:{place}",
            kind=re.sub(r"_\d+$", "", call.name),
            inputs=tuple(sorted(_find_inputs(place, claims[place], owners, source))),
            claims=claims[place],
            moves=call.moves,
        )
        for place, call in enumerate(calls)
    ]


def _list_nodes(calls: Sequence[KernelCall], source: SourceGraph) -> list[set[int]]:
    """List the nodes that each kernel computes.

    Where a later kernel writes over the value of a library's kernel, Inductor lists the node of the later one for both:
    the nodes that the value comes from are right, and without these the earlier one has an unknown origin.
    """
    listed = [tuple(source.names[name] for name in call.nodes if name in source.names) for call in calls]
    libraries = [place for place, call in enumerate(calls) if not inductor_runtime.is_kernel(call.name)]
    writers = {listed[place]: place for place in libraries}
    nodes = [set(each) for each in listed]
    for place in libraries:
        if writers[listed[place]] != place:
            nodes[place].clear()
        nodes[place] |= {source.names[name] for name in calls[place].sources if name in source.names}
    return nodes


def _find_ancestors(nodes: Iterable[int], source: SourceGraph) -> set[int]:
    """Find the nodes before some others."""
    ancestors: set[int] = set()
    queue = list(nodes)
    while queue:
        new = set(source.nodes[queue.pop()].inputs) - ancestors
        ancestors |= new
        queue += new
    return ancestors


def _find_inputs(
    place: int, claims: Sequence[int], owners: Mapping[int, Sequence[int]], source: SourceGraph
) -> set[int]:
    """Find the kernels of the nearest nodes before those of a kernel."""
    inputs: set[int] = set()
    visited = set(claims)
    queue = list(claims)
    while queue:
        node = queue.pop()
        before = [owner for owner in owners.get(node, ()) if owner < place]
        if before:
            inputs.update(before)
        elif place in owners.get(node, ()) or node not in owners:
            queue += [each for each in source.nodes[node].inputs if each not in visited]
            visited.update(source.nodes[node].inputs)
    return inputs
