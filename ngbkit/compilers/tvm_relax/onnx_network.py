"""An ONNX file as TVM reads it: its inputs, its precision, and a hash of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngbkit.files import read_chunks
from ngbkit.workloads.onnx_traversal import find_external_files


@dataclass(frozen=True, slots=True)
class OnnxNetwork:
    """A network in an ONNX file, with any external data beside it."""

    path: Path
    model: Any = field(repr=False)  # the `onnx.ModelProto`, without external data

    @classmethod
    def read(cls, path: Path) -> OnnxNetwork:
        """Read the network in a file."""
        import onnx

        return cls(path, onnx.load(str(path), load_external_data=False))

    def digest(self) -> str:
        """Hash operators, names and weights, but no annotations, which have paths of the exporting machine."""
        import onnx

        bare = onnx.ModelProto()
        bare.CopyFrom(self.model)
        for name in ("producer_name", "producer_version", "doc_string", "metadata_props"):
            bare.ClearField(name)
        _strip(bare.graph)
        for function in bare.functions:
            _strip(function)
        hasher = hashlib.sha256(bare.SerializeToString(deterministic=True))
        for name in sorted(find_external_files(self.model)):
            with (self.path.parent / name).open("rb") as data:
                for chunk in read_chunks(data):
                    hasher.update(chunk)
        return hasher.hexdigest()

    def list_inputs(self, names: Sequence[str]) -> list[str]:
        """Return the names among `names` that are inputs of the graph, in its order."""
        return [value.name for value in self.model.graph.input if value.name in names]

    def find_precision(self) -> str:
        """Return the precision of the first floating-point output, or else input; empty for a network of integers."""
        import onnx

        kinds = onnx.TensorProto
        names = {kinds.FLOAT: "f32", kinds.DOUBLE: "f64", kinds.FLOAT16: "f16", kinds.BFLOAT16: "bf16"}
        graph = self.model.graph
        types = [value.type.tensor_type.elem_type for value in (*graph.output, *graph.input)]
        return next((names[kind] for kind in types if kind in names), "")

    def import_relax(self) -> Any:
        """Import the network as a Relax module, with its weights as constants."""
        import onnx

        from ngbkit.compilers.tvm_runtime import from_onnx

        if find_external_files(self.model):
            return from_onnx(onnx.load(str(self.path)))
        return from_onnx(self.model)


def _strip(graph: Any) -> None:
    """Remove the annotations from a graph or a function, and from the graphs inside its nodes."""
    for name in ("doc_string", "metadata_props", "value_info"):
        graph.ClearField(name)
    values = [*getattr(graph, "initializer", ()), *graph.input, *graph.output]
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    for entry in (*values, *graph.node, *attributes):
        if isinstance(entry, str):
            continue  # the inputs of a function are plain names
        entry.ClearField("doc_string")
        if hasattr(entry, "metadata_props"):
            entry.ClearField("metadata_props")
    for attribute in attributes:
        for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            _strip(inner)
