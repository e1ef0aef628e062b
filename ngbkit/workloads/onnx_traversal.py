"""The parts of an ONNX graph, with its subgraphs and functions: inputs, tensors, nodes, shapes, and external data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Any


def open_negative(graph: Any) -> None:
    """Make negative dimensions of inputs and outputs dynamic: Paddle's exporter writes dynamic ones that way."""
    for value in (*graph.input, *graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_value < 0:
                dimension.ClearField("value")


def find_external_files(model: Any) -> dict[str, int]:
    """Find the external files of an `onnx.ModelProto`, and their least sizes; ValueError if these are invalid."""
    from onnx.external_data_helper import ExternalDataInfo

    sizes: dict[str, int] = {}
    for info in map(ExternalDataInfo, _find_external_tensors(model)):
        end = (info.offset or 0) + (info.length or 0)
        sizes[info.location] = max(end, sizes.get(info.location, 0))
    return sizes


def rename_external_files(model: Any, names: Mapping[str, str]) -> None:
    """Rename the external data of an `onnx.ModelProto`, in place."""
    for entry in chain.from_iterable(tensor.external_data for tensor in _find_external_tensors(model)):
        if entry.key == "location":
            entry.value = names[entry.value]


def _find_external_tensors(model: Any) -> Iterator[Any]:
    from onnx.external_data_helper import uses_external_data

    tensors = chain(find_tensors(model.graph), *(_find_constants(function.node) for function in model.functions))
    return filter(uses_external_data, tensors)


def find_tensors(graph: Any) -> Iterator[Any]:
    """Yield every constant tensor of an `onnx.GraphProto`: initialisers and attributes of nodes, with subgraphs."""
    yield from graph.initializer
    yield from _split_sparse(graph.sparse_initializer)
    yield from _find_constants(graph.node)


def _find_constants(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("sparse_tensor"):
                yield from _split_sparse([attribute.sparse_tensor])
            yield from _split_sparse(attribute.sparse_tensors)
        for subgraph in find_subgraphs(node):
            yield from find_tensors(subgraph)


def _split_sparse(tensors: Iterable[Any]) -> Iterator[Any]:
    for tensor in tensors:
        yield from (tensor.values, tensor.indices)


def find_subgraphs(node: Any) -> Iterator[Any]:
    """Yield the subgraphs of an `onnx.NodeProto`, such as the branches of an ``If``."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def find_inputs(graph: Any) -> list[Any]:
    """Find the inputs of an `onnx.GraphProto` that are not initialisers."""
    initializers = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in initializers]


def walk_graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph and its subgraphs, at any depth."""
    yield graph
    for node in graph.node:
        for subgraph in find_subgraphs(node):
            yield from walk_graphs(subgraph)


def sort_nodes(graph: Any) -> None:
    """Sort the nodes of a graph so that each follows those whose results it reads, in place; a circle stays."""
    makers = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    reads = [{makers[name] for name in find_reads(node) if name in makers} for node in graph.node]
    if all(maker < index for index, indices in enumerate(reads) for maker in indices):
        return
    with suppress(CycleError):
        order = list(TopologicalSorter(dict(enumerate(reads))).static_order())
        copies = [type(node).FromString(node.SerializeToString()) for node in graph.node]
        del graph.node[:]
        graph.node.extend(copies[index] for index in order)


def find_reads(node: Any) -> set[str]:
    """Find the names that a node and its subgraphs read."""
    return set(node.input).union(*(find_reads(inner) for graph in find_subgraphs(node) for inner in graph.node))


def infer_shapes(model: Any) -> Any:
    """Return a copy of a model with the shapes that onnx infers, or the model itself if they contradict each other."""
    import onnx

    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError):  # a model may also be too large
        return model
