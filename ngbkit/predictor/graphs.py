"""Any network as an annotated graph: its operators with their shapes, work and bytes, and the values between them.

An ONNX file is read without the values of its weights, at one batch size. A value computed from constants alone is a
constant, as every compiler folds it. Graphs are plain data, small enough to be stored beside the measurements.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.errors import MissingDependencyError, WorkloadError
from ngbkit.workloads import onnx_counts

if TYPE_CHECKING:
    import onnx_ir as ir

Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]

LAYOUT = 2
"""The version of the graph format: a change invalidates all cached graphs."""

# A value with more consumers makes no siblings: the number of pairs grows with the square.
_MOST_SIBLINGS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A value of a graph: a flowing one or a constant.

    Parameters
    ----------
    shape
        Includes the batch; None if it is unknown before the network runs.
    dtype
        NumPy's name, or ONNX's if NumPy has none.
    bytes
        0 if the shape is unknown.
    """

    shape: tuple[int, ...] | None
    dtype: str
    bytes: int

    @property
    def size(self) -> int:
        """The number of elements; 0 if the shape is unknown."""
        return 0 if self.shape is None else math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator of a graph.

    Parameters
    ----------
    name
        The name of the node in the file.
    kind
        ``"Conv"``; with its domain if that is not ONNX's own: ``"com.microsoft.FusedConv"``.
    inputs, outputs
        The flowing values, in order.
    weights
        The constant inputs.
    attributes
        Numbers and texts by name, without tensors and graphs.
    macs
        Multiply-accumulate operations; None if its work is undefined.
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
        """A hash of its work: equal for two operators that differ only in their names and in the values of weights."""
        groups = (self.inputs, self.weights, self.outputs)
        signature = [[[tensor.shape, tensor.dtype] for tensor in tensors] for tensors in groups]
        return _hash(self.kind, dict(self.attributes), signature)

    @property
    def bytes(self) -> int:
        """The bytes that it reads and writes at least: inputs, weights and outputs, each once."""
        return sum(tensor.bytes for tensor in (*self.inputs, *self.weights, *self.outputs))


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A network at one batch size.

    Parameters
    ----------
    operators
        In topological order.
    edges
        Distinct pairs of indices in `operators`: the second operator consumes a value of the first.
    inputs, outputs
        The values of the network.
    shared
        For each value with several consumers, the indices of these operators.
    digest
        Equal for graphs that differ only in names, in the order of operators and in the values of weights.
    dropped
        The number of operators of the file that feed no output or are fed constants alone, and are left out; None if it
        is unknown, as of graphs that an earlier version stored.
    lowering
        The compiler that optimised the network, if these are the operators that it executes: see
        `ngbkit.predictor.lowering`. Empty for the network as it was exported.
    """

    operators: tuple[Operator, ...]
    edges: tuple[tuple[int, int], ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    shared: tuple[tuple[int, ...], ...]
    digest: str
    dropped: int | None = field(default=None, compare=False)
    lowering: str = ""

    @cached_property
    def siblings(self) -> tuple[tuple[int, int], ...]:
        """Pairs of operators that consume the same value, the smaller index first."""
        pairs = (pair for group in self.shared if len(group) <= _MOST_SIBLINGS for pair in combinations(group, 2))
        return tuple(sorted(set(pairs)))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """By operator, the number of operators on the longest path from an input to it, itself included."""
        depths = [1] * len(self.operators)
        for start, end in self.edges:  # sorted by start, so that each start is final
            depths[end] = max(depths[end], depths[start] + 1)
        return tuple(depths)

    @property
    def macs(self) -> int | None:
        """Multiply-accumulate operations; None if those of an operator are unknown."""
        counts = [operator.macs for operator in self.operators if operator.macs is not None]
        return sum(counts) if len(counts) == len(self.operators) else None

    @property
    def weight_bytes(self) -> int:
        """The bytes of all constants; a constant that several operators consume counts for each."""
        return sum(tensor.bytes for operator in self.operators for tensor in operator.weights)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Graph:
        return cls(
            operators=tuple(_load_operator(operator) for operator in data["operators"]),
            edges=tuple((start, end) for start, end in data["edges"]),
            inputs=tuple(map(_load_tensor, data["inputs"])),
            outputs=tuple(map(_load_tensor, data["outputs"])),
            shared=tuple(tuple(places) for places in data["shared"]),
            digest=data["digest"],
            dropped=data.get("dropped"),
            lowering=data.get("lowering", ""),
        )


def read(
    path: str | Path,
    batch_size: int = 1,
    *,
    keep_dead: bool = False,
    shapes: Mapping[str, Sequence[tuple[int, ...]]] | None = None,
) -> Graph:
    """The graph of an ONNX file.

    Parameters
    ----------
    path
        The file; external data beside it is not read.
    batch_size
        The size of an open first dimension.
    keep_dead
        Whether operators that feed no output, or are fed constants alone, are part of the graph: for labels of a
        runtime that executes them. `Graph.dropped` counts those that are left out.
    shapes
        The shapes of the outputs of nodes, by the name of the node, where the file does not tell them.

    Raises
    ------
    WorkloadError
        The file is missing, damaged or not ONNX.
    MissingDependencyError
        A library is not installed.
    """
    ir = _load_library()
    model = onnx_counts.load_without_weights(Path(path))
    try:
        bound = onnx_counts.bind(model, batch_size)
        _add_shapes(bound, shapes or {})
        return annotate(ir.from_proto(bound), keep_dead=keep_dead)
    except Exception as error:  # the libraries raise anything about a graph that contradicts itself
        reason = str(error).strip().partition("\n")[0]
        raise WorkloadError(
            f"{path} contains no valid graph ({type(error).__name__}: {reason}). Export it again."
        ) from error


def _add_shapes(graph: Any, shapes: Mapping[str, Sequence[tuple[int, ...]]]) -> None:
    """Add the shapes of outputs that an `onnx.GraphProto` lacks; such outputs are taken for floats."""
    import onnx

    described = {value.name for value in (*graph.value_info, *graph.output) if value.type.tensor_type.HasField("shape")}
    for node in graph.node:
        outputs = [name for name in node.output if name]
        for name, shape in zip(outputs, shapes.get(node.name, ()), strict=False):
            if name not in described:
                graph.value_info.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))


def write_named(path: Path, target: Path) -> Path:
    """Return an ONNX file whose nodes have distinct names, by which a runtime tells them: `path`, or a copy of it."""
    ir = _load_library()
    model = ir.load(path)
    names = [node.name for node in model.graph]
    if all(names) and len(set(names)) == len(names):
        return path
    for index, node in enumerate(model.graph):
        node.name = f"node_{index}"
    ir.save(model, target)
    return target


def annotate(graph: ir.Graph, *, keep_dead: bool = False) -> Graph:
    """Annotate an `onnx_ir` graph without functions whose shapes are inferred.

    Unused nodes and those of constants are dropped, unless they are to be kept.
    """
    graph.sort()
    needed = _find_needed(graph)
    constants = {value for value in graph.initializers.values() if value not in graph.inputs}
    nodes: list[ir.Node] = []
    dropped = 0
    for node in graph:
        if node.op_type == "Constant":
            constants.update(node.outputs)
        elif not keep_dead and node.inputs and all(value in constants for value in _iterate_inputs(node)):
            constants.update(node.outputs)
            dropped += 1
        elif keep_dead or node in needed:
            nodes.append(node)
        else:
            dropped += 1
    indices = {node: index for index, node in enumerate(nodes)}
    consumers: dict[ir.Value, list[int]] = {}
    edges: set[tuple[int, int]] = set()
    for index, node in enumerate(nodes):
        for value in dict.fromkeys(_iterate_inputs(node)):
            if value in constants:
                continue
            consumers.setdefault(value, []).append(index)
            producer = value.producer()
            if producer in indices:
                edges.add((indices[producer], index))
    inputs = [value for value in graph.inputs if value not in constants]
    shapes = _collect_shapes(graph)
    return Graph(
        operators=tuple(_annotate_node(node, constants, shapes) for node in nodes),
        edges=tuple(sorted(edges)),
        inputs=tuple(map(_describe_value, inputs)),
        outputs=tuple(map(_describe_value, graph.outputs)),
        shared=tuple(sorted({tuple(group) for group in consumers.values() if len(group) > 1})),
        digest=_compute_digest(nodes, inputs, graph.outputs, constants),
        dropped=dropped,
    )


def _find_needed(graph: ir.Graph) -> set[ir.Node]:
    """Return the nodes that an output depends on."""
    queue = [value.producer() for value in graph.outputs]
    needed: set[ir.Node] = set()
    while queue:
        node = queue.pop()
        if node is not None and node not in needed:
            needed.add(node)
            queue += [value.producer() for value in _iterate_inputs(node)]
    return needed


def _load_library() -> Any:
    """Return onnx_ir, or raise the error that names its extra."""
    try:
        import onnx_ir
    except ImportError as error:
        raise MissingDependencyError("onnx-ir", "predict") from error
    return onnx_ir


def _iterate_inputs(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the inputs of a node, those of its inner graphs included."""
    import onnx_ir as ir

    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        inner: Iterable[ir.Graph] = ()
        if attribute.type == ir.AttributeType.GRAPH:
            inner = [attribute.as_graph()]
        elif attribute.type == ir.AttributeType.GRAPHS:
            inner = attribute.as_graphs()
        for graph in inner:
            inner_values = {value for node in graph for value in node.outputs}
            inner_values |= {*graph.inputs, *graph.initializers.values()}
            inner_inputs = [value for node in graph for value in _iterate_inputs(node)]
            yield from (value for value in [*inner_inputs, *graph.outputs] if value not in inner_values)


def _annotate_node(node: ir.Node, constants: set[ir.Value], shapes: onnx_counts.Shapes) -> Operator:
    import onnx_ir as ir

    inputs = list(_iterate_inputs(node))
    try:
        idle = onnx_counts.is_free(node.domain, node.op_type)
        macs = 0 if idle else onnx_counts.count_node_macs(ir.to_proto(node), shapes)
    except onnx_counts.UncountableError:
        macs = None
    return Operator(
        name=node.name or "",
        kind=_format_kind(node),
        inputs=tuple(_describe_value(value) for value in inputs if value not in constants),
        outputs=tuple(map(_describe_value, node.outputs)),
        weights=tuple(_describe_value(value) for value in inputs if value in constants),
        attributes=_parse_attributes(node),
        macs=macs,
    )


def _format_kind(node: ir.Node) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def _parse_attributes(node: ir.Node) -> dict[str, Attribute]:
    import onnx_ir as ir

    scalars = {ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING}
    lists = {ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS}
    attributes: dict[str, Attribute] = {}
    for name, attribute in sorted(node.attributes.items()):
        if attribute.type in scalars:
            attributes[name] = attribute.value
        elif attribute.type in lists:
            attributes[name] = tuple(attribute.value)
    return attributes


def _describe_value(value: ir.Value) -> Tensor:
    dims = None if value.shape is None else tuple(value.shape)
    sizes = [size for size in dims or () if isinstance(size, int)]
    shape = tuple(sizes) if dims is not None and len(sizes) == len(dims) else None
    if value.dtype is None:
        return Tensor(shape=shape, dtype="", bytes=0)
    bits = math.prod(shape) * value.dtype.bitwidth if shape is not None else 0
    return Tensor(shape=shape, dtype=value.dtype.name.lower(), bytes=-(-bits // 8))


def _collect_shapes(graph: ir.Graph) -> dict[str, tuple[int, ...]]:
    """Return the known shapes, by the name of the value."""
    values = [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]
    shapes = ((value.name or "", _describe_value(value).shape) for value in values)
    return {name: shape for name, shape in shapes if shape is not None}


def _compute_digest(
    nodes: Sequence[ir.Node], inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], constants: set[ir.Value]
) -> str:
    """Hash a graph without its names, its order of operators and the values of weights."""
    digests = {value: _hash("input", index, _summarise_value(value)) for index, value in enumerate(inputs)}

    def find_digest(value: ir.Value) -> str:
        return digests[value] if value in digests else _hash("constant", _summarise_value(value))

    marks = []
    for node in nodes:
        sources = [find_digest(value) for value in _iterate_inputs(node)]
        results = [_summarise_value(value) for value in node.outputs]
        marks.append(_hash(_format_kind(node), _parse_attributes(node), sources, results))
        digests.update((value, _hash(marks[-1], index)) for index, value in enumerate(node.outputs))
    return _hash(sorted(marks), [find_digest(value) for value in outputs if value not in constants])


def _summarise_value(value: ir.Value) -> list[Any]:
    tensor = _describe_value(value)
    return [tensor.shape, tensor.dtype]


def _hash(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=12).hexdigest()


def _load_tensor(data: Mapping[str, Any]) -> Tensor:
    shape = None if data["shape"] is None else tuple(data["shape"])
    return Tensor(shape=shape, dtype=data["dtype"], bytes=data["bytes"])


def _load_operator(data: Mapping[str, Any]) -> Operator:
    attributes = {
        name: tuple(value) if isinstance(value, list) else value for name, value in data["attributes"].items()
    }
    tensors = {name: tuple(map(_load_tensor, data[name])) for name in ("inputs", "outputs", "weights")}
    return Operator(name=data["name"], kind=data["kind"], macs=data["macs"], attributes=attributes, **tensors)
