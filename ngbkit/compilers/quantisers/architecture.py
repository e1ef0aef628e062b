"""The kind of a network by its operators, by which each quantiser chooses the options that its vendor names for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.workloads.onnx_traversal import find_tensors, walk_graphs

if TYPE_CHECKING:
    import torch

_FUSED = {"attention", "multiheadattention", "groupqueryattention", "packedattention", "packedmultiheadattention"}
_PRODUCTS = {"matmul", "gemm", "einsum", "bmm", "baddbmm", "mm", "addmm", "linear"}
_CONVOLUTIONS = {"conv", "convtranspose", "conv1d", "conv2d", "conv3d", "conv_transpose2d", "convolution"}
# Between the products of an attention: scales, masks, casts and changes of shape.
_BETWEEN = {
    *("add", "sub", "mul", "div", "where", "cast", "castlike", "clip", "isnan", "identity", "dropout"),
    *("reshape", "view", "_unsafe_view", "transpose", "permute", "expand", "squeeze", "unsqueeze", "slice"),
    *("masked_fill", "nan_to_num", "to", "_to_copy", "contiguous", "clone", "alias"),
}
# Activations whose negative values are not zero, so that their ranges are asymmetric.
_SMOOTH = {"sigmoid", "silu", "swish", "hardswish", "gelu", "erf", "elu", "celu", "selu", "prelu", "leakyrelu", "mish"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """An operator of a graph, ONNX or torch: its kind, and its inputs and outputs that are no constants."""

    kind: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    has_weights: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The operators of a network that decide how it is quantised."""

    attentions: int
    linear_layers: int
    convolutions: int
    smooth_activations: int

    @property
    def is_transformer(self) -> bool:
        """Return whether it has attention, and at least as many linear layers as convolutions."""
        return self.attentions > 0 and self.linear_layers >= self.convolutions

    def to_settings(self) -> dict[str, str]:
        """Return the settings and notes of a quantiser that chose by it: the kind, and the counts that decide it."""
        kind = "transformer" if self.is_transformer else "convolutional" if self.convolutions else "other"
        counts = {"attentions": self.attentions, "linear layers": self.linear_layers, "convolutions": self.convolutions}
        model_type = f"{kind}: {', '.join(f'{number} {name}' for name, number in counts.items())}"
        return {"model_type": model_type, "notes": f"quantised as {model_type}"}


def read_onnx(path: Path) -> Architecture:
    """Read the architecture of an ONNX file, without its weights."""
    import onnx

    return count(_list_nodes(onnx.load(str(path), load_external_data=False).graph))


def _list_nodes(graph: Any) -> Iterator[GraphNode]:
    constants = {tensor.name for tensor in find_tensors(graph)}
    for part in walk_graphs(graph):
        for node in part.node:
            values = [name for name in node.input if name and name not in constants]
            has_weights = len(values) < sum(map(bool, node.input))
            constants |= set() if values else set(node.output)
            yield GraphNode(kind=node.op_type.lower(), inputs=values, outputs=node.output, has_weights=has_weights)


def read_program(graph: torch.fx.Graph) -> Architecture:
    """Read the architecture of an exported program's graph of ATen's operators."""
    return count(_list_calls(graph))


def _list_calls(graph: torch.fx.Graph) -> Iterator[GraphNode]:
    constants = {node.name for node in graph.nodes if node.op == "get_attr"}
    for node in graph.nodes:
        if node.op == "call_function":
            kind = str(node.target).removeprefix("aten.").partition(".")[0]
            values = [other.name for other in node.all_input_nodes if other.name not in constants]
            has_weights = len(values) < len(node.all_input_nodes)
            constants |= set() if values else {node.name}
            yield GraphNode(kind=kind, inputs=values, outputs=[node.name], has_weights=has_weights)


def count(operators: Iterable[GraphNode]) -> Architecture:
    """Count the attentions, a product that a softmax leads to another product among them, and the layers."""
    listed = list(operators)
    makers = {name: [operator] for operator in listed for name in operator.outputs}
    readers: dict[str, list[GraphNode]] = {}
    for operator in listed:
        for name in operator.inputs:
            readers.setdefault(name, []).append(operator)
    attentions = [operator for operator in listed if operator.kind in _FUSED or "scaled_dot" in operator.kind]
    attentions += [
        operator
        for operator in listed
        if operator.kind.endswith("softmax")
        and "log" not in operator.kind
        and _reaches_product(operator, makers, lambda current: current.inputs)
        and _reaches_product(operator, readers, lambda current: current.outputs)
    ]
    return Architecture(
        attentions=len(attentions),
        linear_layers=sum(operator.kind in _PRODUCTS and operator.has_weights for operator in listed),
        convolutions=sum(operator.kind in _CONVOLUTIONS for operator in listed),
        smooth_activations=sum(operator.kind.rstrip("_") in _SMOOTH for operator in listed),
    )


def _reaches_product(
    start: GraphNode, neighbours: Mapping[str, Sequence[GraphNode]], follow: Callable[[GraphNode], Sequence[str]]
) -> bool:
    """Return whether a product of two values is next to an operator, or next to those between."""
    pending, visited = list(follow(start)), set[str]()
    while pending:
        name = pending.pop()
        for operator in neighbours.get(name, ()) if name not in visited else ():
            if operator.kind in _PRODUCTS and len(operator.inputs) > 1:
                return True
            pending += follow(operator) if operator.kind in _BETWEEN else ()
        visited.add(name)
    return False
