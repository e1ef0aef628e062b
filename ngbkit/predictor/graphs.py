"""Any network as an annotated graph: its operators with their shapes, work and bytes, and how values flow between them.

An ONNX file is read without the values of its weights, at one batch size. What follows from constants alone is a
constant: every compiler folds it. Graphs are plain data, small enough to be stored beside the measurements.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.errors import MissingDependencyError
from ngbkit.workloads import onnx_counts

if TYPE_CHECKING:
    import onnx_ir as ir

Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]

LAYOUT = 1
"""Changes when what a graph holds does, so that nothing older is taken for it."""

# A value that more operators than this take makes no siblings: their number would be that squared.
_MOST_SIBLINGS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A value that flows, or a constant.

    Parameters
    ----------
    shape
        With the batch; None where it is not known before the network runs.
    dtype
        As NumPy calls it, or ONNX where NumPy has none.
    bytes
        0 where the shape is not known.
    """

    shape: tuple[int, ...] | None
    dtype: str
    bytes: int

    @property
    def size(self) -> int:
        """Its values; 0 where the shape is not known."""
        return 0 if self.shape is None else math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator of a graph.

    Parameters
    ----------
    name
        Of the node in the file.
    kind
        ``"Conv"``; with its domain, where that is not ONNX's own: ``"com.microsoft.FusedConv"``.
    inputs, outputs
        The values that flow in and out, in order.
    weights
        The constants that it takes.
    attributes
        Numbers and texts by name; tensors and graphs are left out.
    macs
        Multiply-accumulate operations; None where its work has no definition.
    """

    name: str
    kind: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    attributes: Mapping[str, Attribute]
    macs: int | None

    @property
    def digest(self) -> str:
        """The same for two operators that do the same work: only their names and the values of weights may differ."""
        tensors = [[[one.shape, one.dtype] for one in some] for some in (self.inputs, self.weights, self.outputs)]
        return _hashed(self.kind, dict(self.attributes), tensors)

    @property
    def bytes(self) -> int:
        """What it reads and writes at least: inputs, weights and outputs, each once."""
        return sum(tensor.bytes for tensor in (*self.inputs, *self.weights, *self.outputs))


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A network at one batch size.

    Parameters
    ----------
    operators
        Each behind all that it takes values from.
    edges
        Pairs of places in `operators`: the second takes a value from the first. Each pair once.
    inputs, outputs
        Of the network.
    shared
        Places of the operators that take the same value, for each value that several take.
    """

    operators: tuple[Operator, ...]
    edges: tuple[tuple[int, int], ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    shared: tuple[tuple[int, ...], ...]
    digest: str

    @cached_property
    def siblings(self) -> tuple[tuple[int, int], ...]:
        """Pairs of operators that take the same value, the smaller place first."""
        pairs = (pair for places in self.shared if len(places) <= _MOST_SIBLINGS for pair in combinations(places, 2))
        return tuple(sorted(set(pairs)))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """By operator, how many there are on the longest path from an input up to it, itself included."""
        found = [1] * len(self.operators)
        for start, end in self.edges:  # sorted by where they start, which is behind all that it takes values from
            found[end] = max(found[end], found[start] + 1)
        return tuple(found)

    @property
    def macs(self) -> int | None:
        """Multiply-accumulate operations; None where those of an operator are not known."""
        known = [one.macs for one in self.operators if one.macs is not None]
        return sum(known) if len(known) == len(self.operators) else None

    @property
    def weight_bytes(self) -> int:
        """The bytes of all constants; one that several operators take counts for each."""
        return sum(tensor.bytes for one in self.operators for tensor in one.weights)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Graph:
        return cls(
            operators=tuple(_operator(one) for one in data["operators"]),
            edges=tuple((start, end) for start, end in data["edges"]),
            inputs=tuple(map(_tensor, data["inputs"])),
            outputs=tuple(map(_tensor, data["outputs"])),
            shared=tuple(tuple(places) for places in data["shared"]),
            digest=data["digest"],
        )


def read(path: Path, batch_size: int = 1) -> Graph:
    """The graph of an ONNX file.

    Parameters
    ----------
    path
        The file; external data beside it is not read.
    batch_size
        What an open first dimension is bound to.

    Raises
    ------
    MissingDependencyError
        A library is not installed.
    """
    ir = _library()
    proto = onnx_counts.bind(onnx_counts.open_file(path), batch_size)
    return of(ir.from_proto(proto))


def of(graph: ir.Graph) -> Graph:
    """An `onnx_ir` graph whose shapes are known, without functions, as an annotated one.

    What has no way to an output is left out, and so is what is made of constants alone.
    """
    graph.sort()
    needed = _needed(graph)
    constants = {value for value in graph.initializers.values() if value not in graph.inputs}
    nodes: list[ir.Node] = []
    for node in graph:
        if node.op_type == "Constant" or (node.inputs and all(value in constants for value in _taken(node))):
            constants.update(node.outputs)
        elif node in needed:
            nodes.append(node)
    place = {node: at for at, node in enumerate(nodes)}
    takers: dict[ir.Value, list[int]] = {}
    edges: set[tuple[int, int]] = set()
    for at, node in enumerate(nodes):
        for value in dict.fromkeys(_taken(node)):
            if value in constants:
                continue
            takers.setdefault(value, []).append(at)
            producer = value.producer()
            if producer in place:
                edges.add((place[producer], at))
    fed = [value for value in graph.inputs if value not in constants]
    shapes = _shapes(graph)
    return Graph(
        operators=tuple(_annotated(node, constants, shapes) for node in nodes),
        edges=tuple(sorted(edges)),
        inputs=tuple(map(_described, fed)),
        outputs=tuple(map(_described, graph.outputs)),
        shared=tuple(sorted({tuple(places) for places in takers.values() if len(places) > 1})),
        digest=_digest(nodes, fed, graph.outputs, constants),
    )


def _needed(graph: ir.Graph) -> set[ir.Node]:
    """The nodes that an output follows from."""
    waiting = [value.producer() for value in graph.outputs]
    found: set[ir.Node] = set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            waiting += [value.producer() for value in _taken(node)]
    return found


def _library() -> Any:
    """onnx_ir, where it is installed."""
    try:
        import onnx_ir
    except ImportError as error:
        raise MissingDependencyError("onnx-ir", "predict") from error
    return onnx_ir


def _taken(node: ir.Node) -> Iterator[ir.Value]:
    """The values that a node takes, those of its inner graphs included."""
    import onnx_ir as ir

    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        inner: Iterable[ir.Graph] = ()
        if attribute.type == ir.AttributeType.GRAPH:
            inner = [attribute.as_graph()]
        elif attribute.type == ir.AttributeType.GRAPHS:
            inner = attribute.as_graphs()
        for graph in inner:
            own = {value for each in graph for value in each.outputs} | {*graph.inputs, *graph.initializers.values()}
            taken = [value for each in graph for value in _taken(each)]
            yield from (value for value in [*taken, *graph.outputs] if value not in own)


def _annotated(node: ir.Node, constants: set[ir.Value], shapes: onnx_counts.Shapes) -> Operator:
    import onnx_ir as ir

    taken = list(_taken(node))
    try:
        idle = onnx_counts.is_idle(node.domain, node.op_type)
        macs = 0 if idle else onnx_counts.work(ir.to_proto(node), shapes)
    except onnx_counts.UncountableError:
        macs = None
    return Operator(
        name=node.name or "",
        kind=_kind(node),
        inputs=tuple(_described(value) for value in taken if value not in constants),
        outputs=tuple(map(_described, node.outputs)),
        weights=tuple(_described(value) for value in taken if value in constants),
        attributes=_attributes(node),
        macs=macs,
    )


def _kind(node: ir.Node) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def _attributes(node: ir.Node) -> dict[str, Attribute]:
    import onnx_ir as ir

    plain = {ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING}
    lists = {ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS}
    found: dict[str, Attribute] = {}
    for name, attribute in sorted(node.attributes.items()):
        if attribute.type in plain:
            found[name] = attribute.value
        elif attribute.type in lists:
            found[name] = tuple(attribute.value)
    return found


def _described(value: ir.Value) -> Tensor:
    dims = None if value.shape is None else tuple(value.shape)
    known = [size for size in dims or () if isinstance(size, int)]
    shape = tuple(known) if dims is not None and len(known) == len(dims) else None
    if value.dtype is None:
        return Tensor(shape=shape, dtype="", bytes=0)
    bits = math.prod(shape) * value.dtype.bitwidth if shape is not None else 0
    return Tensor(shape=shape, dtype=value.dtype.name.lower(), bytes=-(-bits // 8))


def _shapes(graph: ir.Graph) -> dict[str, tuple[int, ...]]:
    """The shapes that are known, by the name of the value."""
    values = [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]
    known = ((value.name or "", _described(value).shape) for value in values)
    return {name: shape for name, shape in known if shape is not None}


def _digest(
    nodes: Sequence[ir.Node], fed: Sequence[ir.Value], outputs: Sequence[ir.Value], constants: set[ir.Value]
) -> str:
    """The same for two graphs that differ in names, in the order of operators and in the values of weights only."""
    known = {value: _hashed("input", at, _written(value)) for at, value in enumerate(fed)}

    def digest(value: ir.Value) -> str:
        return known[value] if value in known else _hashed("constant", _written(value))

    marks = []
    for node in nodes:
        taken = [digest(value) for value in _taken(node)]
        made = [_written(value) for value in node.outputs]
        marks.append(_hashed(_kind(node), _attributes(node), taken, made))
        known.update((value, _hashed(marks[-1], at)) for at, value in enumerate(node.outputs))
    return _hashed(sorted(marks), [digest(value) for value in outputs if value not in constants])


def _written(value: ir.Value) -> list[Any]:
    found = _described(value)
    return [found.shape, found.dtype]


def _hashed(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=12).hexdigest()


def _tensor(data: Mapping[str, Any]) -> Tensor:
    shape = None if data["shape"] is None else tuple(data["shape"])
    return Tensor(shape=shape, dtype=data["dtype"], bytes=data["bytes"])


def _operator(data: Mapping[str, Any]) -> Operator:
    attributes = {
        name: tuple(value) if isinstance(value, list) else value for name, value in data["attributes"].items()
    }
    tensors = {name: tuple(map(_tensor, data[name])) for name in ("inputs", "outputs", "weights")}
    return Operator(name=data["name"], kind=data["kind"], macs=data["macs"], attributes=attributes, **tensors)
