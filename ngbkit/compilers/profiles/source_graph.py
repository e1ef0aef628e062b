"""The source graph of an ONNX file: its nodes, what each reads, and the torch modules that they come from."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ngbkit.compilers.profiles.profile import SourceNode
from ngbkit.workloads.onnx_binding import load
from ngbkit.workloads.onnx_traversal import find_reads, sort_nodes

MOVES = frozenset(
    {
        *("Cast", "Concat", "DepthToSpace", "Expand", "Flatten", "Identity", "Pad", "Reshape", "Shape", "Slice"),
        *("SpaceToDepth", "Split", "Squeeze", "Transpose", "Unsqueeze"),
    }
)
"""Operators that move, rename or convert values and compute nothing."""

# The paths of the modules around a node, outermost first, and the node itself.
_SCOPES = "pkg.torch.onnx.name_scopes"
# Operators with weights of a module, whose exporter may have merged a normalisation into them.
_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm"})
_WEIGHT = ".weight"
# ONNX Runtime appends it to the name of the node that it fuses others with.
_FUSION = re.compile(r"/\w+Fusion$")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceGraph:
    """The nodes of a network in topological order; `names` finds a node by its own name or by a value it computes."""

    nodes: tuple[SourceNode, ...]
    names: Mapping[str, int] = field(default_factory=dict)

    def to_text(self) -> str:
        """Return the graph as text, which a file of another format can carry."""
        return json.dumps({"nodes": list(map(asdict, self.nodes)), "names": dict(self.names)})

    @classmethod
    def from_text(cls, text: str) -> SourceGraph:
        """Read what `to_text` has written."""
        parts = json.loads(text)
        nodes = (SourceNode(**{**node, "inputs": tuple(node["inputs"])}) for node in parts["nodes"])
        return cls(nodes=tuple(nodes), names=parts["names"])


def write_named(path: Path, folder: Path) -> Path:
    """Return an ONNX file whose nodes have distinct names, by which a runtime reports them: `path`, or a copy of it."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    names = name_nodes(graph)
    if names == [node.name for node in graph.node]:
        return path
    model = load(path, folder)
    for node, name in zip(model.graph.node, names, strict=True):
        node.name = name
    onnx.save(model, str(folder / "named.onnx"))
    return folder / "named.onnx"


def name_nodes(graph: Any) -> list[str]:
    """Return distinct names of the nodes of an `onnx.GraphProto`: their own, or else that of their first value.

    A tool that rewrites a graph, as a quantiser does, leaves the other names alone, so that both graphs share them.
    """
    originals = [_FUSION.sub("", node.name) for node in graph.node]
    counts = Counter(originals)
    used = {name for name, count in counts.items() if name and count == 1}
    names: list[str] = []
    for index, (node, name) in enumerate(zip(graph.node, originals, strict=True)):
        if counts[name] > 1 or not name:
            value = next(filter(None, node.output), "")
            name = value if value and value not in used else f"node_{index}"
            used.add(name)
        names.append(name)
    return names


def read(path: Path) -> SourceGraph:
    """Read the source graph of an ONNX file, without nodes that are fed constants alone: those never run."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    for node, name in zip(graph.node, name_nodes(graph), strict=True):
        node.name = name
    sort_nodes(graph)
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    constants = set(shapes)
    owners: dict[str, int] = {}
    names: dict[str, int] = {}
    nodes: list[SourceNode] = []
    for node in graph.node:
        reads = [name for name in sorted(find_reads(node)) if name]
        if node.op_type == "Constant" or (reads and constants.issuperset(reads)):
            constants.update(node.output)
            continue
        index = len(nodes)
        inputs = sorted({owners[name] for name in reads if name in owners})
        nodes.append(
            SourceNode(
                name=node.name,
                operator=_describe_operator(node, shapes),
                module=find_module(node, constants),
                inputs=tuple(inputs),
                moves=node.op_type in MOVES,
            )
        )
        owners.update(dict.fromkeys(filter(None, node.output), index))
        names.setdefault(node.name, index)
    return SourceGraph(nodes=tuple(nodes), names={**names, **owners})


def _describe_operator(node: Any, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Describe the operator of a node: ``"Conv"``, ``"Conv depthwise"`` with a group a channel, ``"Conv grouped"``."""
    groups = next((each.i for each in node.attribute if each.name == "group"), 1)
    if node.op_type != "Conv" or groups <= 1:
        return format_kind(node)
    weights = shapes.get(node.input[1], ()) if len(node.input) > 1 else ()
    return "Conv depthwise" if weights[1:2] == (1,) else "Conv grouped"


def format_kind(node: Any) -> str:
    """Format the operator of an `onnx.NodeProto`, with the last part of a domain that is not ONNX's own."""
    domain = str(node.domain).rpartition(".")[2]
    return str(node.op_type) if domain in ("", "onnx", "microsoft") else f"{domain}.{node.op_type}"


def find_module(node: Any, constants: set[str]) -> str:
    """Find the path of the torch module that a node comes from, as its exporter recorded it; empty without a record.

    Weights decide first: an exporter that folds a BatchNorm into a convolution records the module of the BatchNorm.
    """
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    scopes = _parse_scopes(metadata.get(_SCOPES, ""))
    if not scopes:
        return _parse_name(node.name)
    if node.op_type in _WEIGHTED:
        for name in node.input:
            if name in constants and name.endswith(_WEIGHT):
                return str(name).removesuffix(_WEIGHT)
    return scopes[-2] if len(scopes) > 1 else ""


def _parse_scopes(text: str) -> Sequence[str]:
    try:
        scopes = ast.literal_eval(text) if text else []
    except (ValueError, SyntaxError):
        return []
    return [str(scope) for scope in scopes] if isinstance(scopes, list) else []


def _parse_name(name: str) -> str:
    """Parse the module out of a name of torch's older exporter: ``/layer1/layer1.0/conv1/Conv``."""
    if not name.startswith("/"):
        return ""
    path = ""
    for part in name.split("/")[1:-1]:
        path = part if not path or part.startswith(f"{path}.") else f"{path}.{part}"
    return path
