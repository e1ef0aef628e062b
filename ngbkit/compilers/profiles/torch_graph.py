"""Source graphs of torch networks: the operators that modules call, as Dynamo captures them.

Names are those of eager torch's profile, ``layer3.1.conv2:convolution``, so that columns of torch have nodes in common.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ngbkit.compilers.profiles.profile import SourceNode
from ngbkit.compilers.profiles.source_graph import SourceGraph

if TYPE_CHECKING:
    import torch

CONVOLUTION = "convolution"

# Names of an operator for other ranks, in place, or as Python's own.
_SYNONYMS: Mapping[str, str] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "_convolution"), CONVOLUTION),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), "transposed convolution"),
    **dict.fromkeys(("iadd", "_add"), "add"),
    **dict.fromkeys(("imul", "multiply"), "mul"),
    **dict.fromkeys(("truediv", "itruediv", "divide", "true_divide"), "div"),
    **dict.fromkeys(("isub", "subtract", "rsub"), "sub"),
    **dict.fromkeys(("concat", "concatenate"), "cat"),
    "_softmax": "softmax",
    "native_layer_norm": "layer_norm",
}
# Operators that move, rename or convert values and compute nothing.
_MOVES = frozenset(
    {
        *("alias", "cat", "chunk", "clone", "contiguous", "detach", "dropout", "expand", "expand_as"),
        *("feature_dropout", "flatten", "identity", "narrow", "pad", "permute", "repeat", "reshape", "reshape_as"),
        *("roll", "select", "slice"),
        *("split", "split_with_sizes", "squeeze", "stack", "swapaxes", "t", "to", "transpose", "type_as", "unbind"),
        *("unflatten", "unsafe_chunk", "unsafe_split", "unsqueeze", "view", "view_as", "float", "half", "movedim"),
    }
)
# Reading a part of a result, an attribute or a size, and checks: no operators of the network.
_IDLE = frozenset({"getitem", "getattr", "getattr_fn", "size", "dim", "Int", "item", "sym_size", "lift_fresh_copy"})
_CHECKS = ("_assert", "sym_", "_check", "_log_api")
# A step of a path in Dynamo's words: ``L['self'].layers[0]``, ``L['self']._modules['head']``.
_INDEX = re.compile(r"\[['\"]?([^\]'\"]+)['\"]?\]")
_ROOT = re.compile(r"^L\[['\"]\w+['\"]\]\.?|\b_modules\b\.?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operator in a captured graph: its name there, and those of the operators whose values it reads."""

    key: str
    operator: str
    module: str = ""
    inputs: tuple[str, ...] = ()


def build(operations: Iterable[Operation], modules: Mapping[str, torch.nn.Module]) -> SourceGraph:
    """Build the source graph of operations in topological order; `modules` are those of the network by path."""
    counts: Counter[str] = Counter()
    names: dict[str, int] = {}
    nodes: list[SourceNode] = []
    for operation in operations:
        path = _find_path(operation.module, modules)
        operator = simplify(operation.operator)
        names[operation.key] = len(nodes)
        nodes.append(
            SourceNode(
                name=name_node(path, operator, counts),
                operator=describe_operator(operator, modules.get(path)),
                module=path,
                inputs=tuple(sorted({names[key] for key in operation.inputs if key in names})),
                moves=operator in _MOVES,
            )
        )
    return SourceGraph(nodes=tuple(nodes), names=names)


def simplify(operator: str) -> str:
    """Return the plain name of an operator: ``"relu"`` of ``"aten::relu_"``, ``"convolution"`` of ``"conv2d"``."""
    name = operator.rpartition("::")[2]
    if not name.startswith("__"):
        name = name.rstrip("_") or name
    return _SYNONYMS.get(name, name)


def name_node(path: str, operator: str, counts: Counter[str]) -> str:
    """Name a node by its module and operator, with a number from the second of these on; `counts` has those so far."""
    name = f"{path or 'network'}:{operator}"
    counts[name] += 1
    return name if counts[name] == 1 else f"{name}_{counts[name]}"


def describe_operator(operator: str, module: torch.nn.Module | None) -> str:
    """Describe an operator that a module calls: a convolution with a group a channel is ``"Conv depthwise"``."""
    groups, channels = getattr(module, "groups", 1), getattr(module, "in_channels", None)
    if operator != CONVOLUTION or not isinstance(groups, int) or groups <= 1:
        return operator
    return "Conv depthwise" if groups == channels else "Conv grouped"


def _find_path(path: str, modules: Mapping[str, torch.nn.Module]) -> str:
    """Find the path of a module of the network, which a wrapper around it may have prefixed."""
    path = _INDEX.sub(r".\1", _ROOT.sub("", path)).strip(".")
    while path and path not in modules:
        path = path.partition(".")[2]
    return path


def list_captured(graph: torch.fx.Graph, prefix: str = "") -> Iterator[Operation]:
    """List the operations of a graph of Dynamo; `prefix` makes the names of several distinct."""
    sources: dict[Any, tuple[str, ...]] = {}
    for node in graph.nodes:
        reads = tuple(dict.fromkeys(key for each in node.all_input_nodes for key in sources[each]))
        operator = _read_operator(node)
        if not operator:
            sources[node] = reads
            continue
        sources[node] = (f"{prefix}{node.name}",)
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        yield Operation(
            key=f"{prefix}{node.name}", operator=operator, module=str(stack[-1][0]) if stack else "", inputs=reads
        )


def _read_operator(node: Any) -> str:
    """Read the operator of a node of a captured graph; empty if it computes nothing of the network."""
    if node.op not in {"call_function", "call_method", "call_module"}:
        return ""
    if isinstance(node.meta.get("example_value"), int | float | bool):
        return ""
    schema = getattr(node.target, "_schema", None)
    name = str(schema.name if schema else getattr(node.target, "__name__", node.target))
    plain = simplify(name)
    return "" if plain in _IDLE or plain.startswith(_CHECKS) else name
