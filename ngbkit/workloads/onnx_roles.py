"""The roles of inputs in an ONNX graph: indices into a table, an axis, or a shape, which noise cannot replace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ngbkit.workloads.dimensions import Dimension
from ngbkit.workloads.onnx_traversal import walk_graphs

Shape = tuple[Dimension, ...]


@dataclass(frozen=True, slots=True)
class Role:
    """The bound of an input's integers, exclusive, or, where no values can be drawn, what they are used as."""

    below: Dimension | None = None
    text: str = ""


# Operators that pass values on unchanged from these places, so that a later operator still sees the input's own.
_PASSING: Mapping[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape", "Flatten", "Transpose"), (0,)),
    **dict.fromkeys(("Slice", "Gather", "Expand", "Tile", "Split"), (0,)),
    "Concat": None,
}
# Values that decide shapes or places: their operator, its input, and their name.
_SHAPES: Mapping[tuple[str, int], str] = {
    **{("Reshape", 1): "the shape", ("Expand", 1): "the shape", ("Tile", 1): "the repeats"},
    **{("ConstantOfShape", 0): "the shape", ("AffineGrid", 1): "the size", ("CenterCropPad", 1): "the shape"},
    **{("Resize", 1): "the region", ("Resize", 2): "the scales", ("Resize", 3): "the sizes"},
    **{("Upsample", 1): "the scales", ("Col2Im", 1): "the shape", ("Col2Im", 2): "the shape"},
    **{("Slice", 1): "the starts", ("Slice", 2): "the ends", ("Slice", 3): "the axes", ("Slice", 4): "the steps"},
    **{("Pad", 1): "the pads", ("Pad", 3): "the axes", ("Squeeze", 1): "the axes", ("Unsqueeze", 1): "the axes"},
    **{("TopK", 1): "the count", ("OneHot", 1): "the depth", ("Split", 1): "the sizes"},
    **{("Range", index): "a bound or the step" for index in range(3)},
    **{("NonMaxSuppression", 2): "the count", ("MaxUnpool", 1): "the places", ("MaxUnpool", 2): "the shape"},
    **{("DFT", 1): "the length", ("DFT", 2): "the axis", ("STFT", 1): "the step", ("STFT", 3): "the length"},
    **{(name, 0): "the size" for name in ("HannWindow", "HammingWindow", "BlackmanWindow")},
    **{("MelWeightMatrix", index): "a size or a frequency" for index in range(5)},
    **{(name, 4): "the lengths" for name in ("LSTM", "GRU", "RNN")},
    **{("ReverseSequence", 1): "the lengths", ("SequenceAt", 1): "the place", ("SequenceErase", 1): "the place"},
    **{("SequenceInsert", 2): "the place", ("SplitToSequence", 1): "the sizes", ("TensorScatter", 2): "the places"},
    ("Scatter", 1): "the places",
}
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
# Operators with an axis as input: any dimension of their first input.
_AXES = {("CumSum", 1), *((f"Reduce{name}", 1) for name in _REDUCTIONS)}
_SHAPE_BYTES = 10_000
_STANDARD = ("", "ai.onnx")
_INDICES = {"Gather", "GatherElements", "ScatterElements", "GatherND", "ScatterND"}


def find_roles(model: Any, shapes: Mapping[str, Shape]) -> dict[str, Role]:
    """Find the role of each input, by name, from the operators that read it directly or through passing ones."""
    graph = _Graph(model, shapes)
    return {name: _find_role(graph, name) for name in shapes}


def _find_role(graph: _Graph, name: str) -> Role:
    bounds: list[Dimension] = []
    for node, place in _walk_uses(graph, name):
        text = _SHAPES.get((node.op_type, place))
        if (node.op_type, place) in _AXES:
            count = len(graph.find_shape(node.input[0]) or ())
            if not count or graph.count_values(name) != 1:
                return Role(text=f"the axes of {node.op_type}")
            bounds.append(count)
        elif text is not None:
            return Role(text=f"{text} of {node.op_type}")
        elif node.op_type in _INDICES and place == 1:
            bounds.append(_find_bound(graph, node))
    return Role(below=_select_least(bounds)) if bounds else Role()


def _walk_uses(graph: _Graph, name: str) -> Iterator[tuple[Any, int]]:
    """Yield each operator that reads an input's own values, with the place."""
    pending, visited = [name], {name}
    while pending:
        for node, place in graph.readers.get(pending.pop(), ()):
            yield node, place
            places = _PASSING.get(node.op_type, ())
            if node.domain in _STANDARD and (places is None or place in places):
                pending += [output for output in node.output if output not in visited]
                visited.update(node.output)


def _find_bound(graph: _Graph, node: Any) -> Dimension:
    """Find the bound of the indices of a node; 1, which every table has, if no shape tells."""
    shape = graph.find_shape(node.input[0])
    if shape is None:
        return 1
    if node.op_type in ("GatherND", "ScatterND"):
        indices = graph.find_shape(node.input[1])
        skipped = next((attribute.i for attribute in node.attribute if attribute.name == "batch_dims"), 0)
        depth = indices[-1] if indices else None
        return _select_least(shape[skipped : skipped + depth]) if isinstance(depth, int) and depth else 1
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    return shape[axis] if -len(shape) <= axis < len(shape) else 1


def _select_least(bounds: Sequence[Dimension]) -> Dimension:
    """Return the least of some bounds, as an expression where a size is open."""
    numbers = [bound for bound in bounds if isinstance(bound, int)]
    texts = [bound for bound in dict.fromkeys(bounds) if isinstance(bound, str)]
    terms = [*map(str, [min(numbers)] if numbers else []), *texts]
    if not texts:
        return min(numbers, default=1)
    return texts[0] if len(terms) == 1 else f"min({', '.join(terms)})"


class _Graph:
    """The readers of each value of a model, and the shapes of values, whose open dimensions are the inputs'."""

    def __init__(self, model: Any, shapes: Mapping[str, Shape]) -> None:
        self._model = model
        self._inputs = shapes
        self.readers: dict[str, list[tuple[Any, int]]] = {}
        for graph in walk_graphs(model.graph):
            for node in graph.node:
                for place, name in enumerate(node.input):
                    if name:
                        self.readers.setdefault(name, []).append((node, place))

    def find_shape(self, name: str) -> Shape | None:
        """Return the shape of a value; None if it is unknown, 1 stands for a dimension that is."""
        if name in self._inputs:
            return self._inputs[name]
        return self._constants.get(name) or self._inferred.get(name)

    def count_values(self, name: str) -> int | None:
        """Count the values of an input; None if its shape is open."""
        shape = self._inputs[name]
        sizes = [side for side in shape if isinstance(side, int)]
        return math.prod(sizes) if len(sizes) == len(shape) else None

    @cached_property
    def _constants(self) -> dict[str, Shape]:
        return {tensor.name: tuple(tensor.dims) for tensor in self._model.graph.initializer}

    @cached_property
    def _inferred(self) -> dict[str, Shape]:
        import onnx

        bare = _copy_without_weights(self._model)
        symbols: dict[str, Dimension] = {}
        for value in bare.graph.input:
            for dimension, side in zip(
                value.type.tensor_type.shape.dim, self._inputs.get(value.name, ()), strict=False
            ):
                if isinstance(side, str):
                    dimension.dim_param = f"ngbkit_{len(symbols)}"
                    symbols[dimension.dim_param] = side
        try:
            graph = onnx.shape_inference.infer_shapes(bare).graph
        except Exception:  # noqa: BLE001  a file that runs may confuse it, and bounds are then small
            return {}
        return {
            value.name: tuple(
                side.dim_value if side.HasField("dim_value") else symbols.get(side.dim_param, 1)
                for side in value.type.tensor_type.shape.dim
            )
            for value in (*graph.value_info, *graph.output)
            if value.type.tensor_type.HasField("shape")
        }


def _copy_without_weights(model: Any) -> Any:
    """Copy a model without the values of its large weights: inference needs only their shapes."""
    import onnx

    copy = onnx.ModelProto(ir_version=model.ir_version)
    copy.opset_import.extend(model.opset_import)
    copy.functions.extend(model.functions)
    copy.graph.name = model.graph.name
    for field in ("node", "input", "output", "value_info"):
        getattr(copy.graph, field).extend(getattr(model.graph, field))
    for tensor in model.graph.initializer:
        is_small = tensor.ByteSize() < _SHAPE_BYTES
        bare = onnx.TensorProto(dims=tensor.dims, data_type=tensor.data_type, name=tensor.name)
        copy.graph.initializer.append(tensor if is_small else bare)
    return copy
