"""The annotated graph of an ONNX file.

A file is read without the values of its weights, at one batch size. A value computed from constants alone is a
constant, as every compiler folds it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.errors import WorkloadError, import_optional
from ngbkit.predict.graphs import UNPRUNED, Attribute, Graph, Operator, Tensor, hash_parts
from ngbkit.workloads import onnx_counts
from ngbkit.workloads.onnx_traversal import walk_graphs

if TYPE_CHECKING:
    import onnx_ir as ir


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
        runtime that executes them. `Graph.dropped` counts those that are left out; `Graph.lowering` of the others is
        ``"unpruned"``.
    shapes
        The shapes of the outputs of nodes, by the name of the node, where the file does not tell them.

    Raises
    ------
    WorkloadError
        The file is missing, damaged or not ONNX.
    MissingDependencyError
        A library is not installed.
    """
    ir = import_optional("onnx_ir", "onnx-ir", "predict")
    model = onnx_counts.load_without_weights(Path(path))
    _import_domains(model)
    try:
        bound = onnx_counts.bind(model, batch_size)
        _add_shapes(bound, shapes or {})
        _forget_maps(bound)
        return annotate(ir.from_proto(bound), keep_dead=keep_dead)
    except Exception as error:  # the libraries raise anything about a graph that contradicts itself
        raise WorkloadError(f"{path} contains no readable graph: {describe_cause(error)} Export it again.") from error


def _import_domains(model: Any) -> None:
    """Import the operators that an `onnx.ModelProto` uses without an import, as runtimes do."""
    imported = {opset.domain for opset in model.opset_import} | {"", "ai.onnx"}
    domains = {node.domain for graph in walk_graphs(model.graph) for node in graph.node} - imported
    for domain in sorted(domains):
        model.opset_import.add(domain=domain, version=1)


def describe_cause(error: BaseException) -> str:
    """Describe in a sentence the first of the errors that caused this one."""
    while error.__cause__ is not None:
        error = error.__cause__
    reason = str(error).strip().partition("\n")[0].rstrip(".") or "no reason is given"
    return f"{type(error).__name__}: {reason}."


def has_map(value_type: Any) -> bool:
    """Return whether an `onnx.TypeProto` is a map, or a sequence or an optional of maps."""
    kind = value_type.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return has_map(getattr(value_type, kind).elem_type)
    return bool(kind == "map_type")


def _forget_maps(graph: Any) -> None:
    """Drop the types of maps from an `onnx.GraphProto`: onnx_ir has none, and they have no shape."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        if has_map(value.type):
            value.ClearField("type")


def _add_shapes(graph: Any, shapes: Mapping[str, Sequence[tuple[int, ...]]]) -> None:
    """Add the shapes of outputs that an `onnx.GraphProto` lacks; such outputs are taken for floats."""
    import onnx

    described = {value.name for value in (*graph.value_info, *graph.output) if value.type.tensor_type.HasField("shape")}
    for node in graph.node:
        outputs = [name for name in node.output if name]
        for name, shape in zip(outputs, shapes.get(node.name, ()), strict=False):
            if name not in described:
                graph.value_info.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))


def annotate(graph: ir.Graph, *, keep_dead: bool = False) -> Graph:
    """Annotate an inlined `onnx_ir` graph with shapes, without unused and constant nodes unless they are to be kept."""
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
        lowering=UNPRUNED if keep_dead else "",
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


def _iterate_inputs(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the inputs of a node, including the inputs of its inner graphs."""
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
    import onnx_ir as ir

    # The number of tensors in a sequence is unknown; its shape is that of each.
    dims = None if value.shape is None or isinstance(value.type, ir.SequenceType) else tuple(value.shape)
    sizes = [size for size in dims or () if isinstance(size, int)]
    shape = tuple(sizes) if dims is not None and len(sizes) == len(dims) else None
    if value.dtype is None:
        return Tensor(shape=shape, dtype="", bytes=0)
    return Tensor(shape=shape, dtype=value.dtype.name.lower(), bytes=_count_bytes(shape, value.dtype))


def _count_bytes(shape: tuple[int, ...] | None, dtype: ir.DataType) -> int:
    """Count the bytes of numbers; texts have none, as their length is unknown."""
    import onnx_ir as ir

    if shape is None or dtype in (ir.DataType.STRING, ir.DataType.UNDEFINED):
        return 0
    return -(-math.prod(shape) * dtype.bitwidth // 8)


def _collect_shapes(graph: ir.Graph) -> dict[str, tuple[int, ...]]:
    """Return the known shapes, by the name of the value."""
    values = [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]
    shapes = ((value.name or "", _describe_value(value).shape) for value in values)
    return {name: shape for name, shape in shapes if shape is not None}


def _compute_digest(
    nodes: Sequence[ir.Node], inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], constants: set[ir.Value]
) -> str:
    """Hash a graph without its names, its order of operators and the values of weights."""
    digests = {value: hash_parts("input", index, _summarise_value(value)) for index, value in enumerate(inputs)}

    def find_digest(value: ir.Value) -> str:
        return digests[value] if value in digests else hash_parts("constant", _summarise_value(value))

    marks = []
    for node in nodes:
        sources = [find_digest(value) for value in _iterate_inputs(node)]
        results = [_summarise_value(value) for value in node.outputs]
        marks.append(hash_parts(_format_kind(node), _parse_attributes(node), sources, results))
        digests.update((value, hash_parts(marks[-1], index)) for index, value in enumerate(node.outputs))
    return hash_parts(sorted(marks), [find_digest(value) for value in outputs if value not in constants])


def _summarise_value(value: ir.Value) -> list[Any]:
    tensor = _describe_value(value)
    return [tensor.shape, tensor.dtype]
