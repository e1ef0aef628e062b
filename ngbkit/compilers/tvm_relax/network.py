"""An ONNX file as TVM takes it: its inputs, its precision, and a hash of what it computes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ngbkit.workloads.export import external_files


@dataclass(frozen=True, slots=True)
class Network:
    """A network in an ONNX file.

    Parameters
    ----------
    path
        The file; its external data, if any, lies beside it.
    model
        The `onnx.ModelProto`, without external data.
    """

    path: Path
    model: Any = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Network:
        """The network in that file."""
        import onnx

        return cls(path, onnx.load(str(path), load_external_data=False))

    def digest(self) -> str:
        """A hash of what the network computes: its operators, their names, and its weights.

        What an exporter notes beside them does not count. It holds the paths of the machine that it ran on, and what
        was tuned on one machine is to be found again on another of its kind.
        """
        import onnx

        bare = onnx.ModelProto()
        bare.CopyFrom(self.model)
        for name in ("producer_name", "producer_version", "doc_string", "metadata_props"):
            bare.ClearField(name)
        _strip(bare.graph)
        for function in bare.functions:
            _strip(function)
        found = hashlib.sha256(bare.SerializeToString(deterministic=True))
        for name in sorted(external_files(self.model)):
            with (self.path.parent / name).open("rb") as data:
                for piece in iter(partial(data.read, 1 << 20), b""):
                    found.update(piece)
        return found.hexdigest()

    def input_names(self, known: list[str]) -> list[str]:
        """Those of the `known` inputs that the graph has, in its order."""
        return [value.name for value in self.model.graph.input if value.name in known]

    def precision(self) -> str:
        """Of the first output of floats, or input where no output is one: TVM computes in the types of the graph."""
        import onnx

        kinds = onnx.TensorProto
        names = {kinds.FLOAT: "f32", kinds.DOUBLE: "f64", kinds.FLOAT16: "f16", kinds.BFLOAT16: "bf16"}
        graph = self.model.graph
        found = [value.type.tensor_type.elem_type for value in (*graph.output, *graph.input)]
        return next((names[kind] for kind in found if kind in names), str(kinds.DataType.Name(found[0])).lower())

    def import_relax(self) -> Any:
        """The network as a Relax module, its weights inside as constants."""
        import onnx

        from ngbkit.compilers.tvm_runtime import from_onnx

        if external_files(self.model):
            return from_onnx(onnx.load(str(self.path)))
        return from_onnx(self.model)


def _strip(graph: Any) -> None:
    """Remove the notes from a graph or a function, and from the graphs inside its nodes."""
    for name in ("doc_string", "metadata_props", "value_info"):
        graph.ClearField(name)
    values = [*getattr(graph, "initializer", ()), *graph.input, *graph.output]
    attributes = [attribute for node in graph.node for attribute in node.attribute]
    for part in (*values, *graph.node, *attributes):
        if isinstance(part, str):
            continue  # the inputs of a function are bare names
        part.ClearField("doc_string")
        if hasattr(part, "metadata_props"):
            part.ClearField("metadata_props")
    for attribute in attributes:
        for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            _strip(inner)
