"""Edits an `onnx_ir` graph in place: adds constants and nodes, and replaces values."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes import common

from ngbkit.errors import UnsupportedError
from ngbkit.predict import onnx_graphs

Array = NDArray[Any]

_SHAPE_LOGGER = logging.getLogger("onnx_ir.passes.common.shape_inference")


class Edit:
    """Edits a model in place; its functions are inlined and its shapes inferred, as by `open_model`."""

    def __init__(self, model: ir.Model) -> None:
        self.model, self.graph = model, model.graph
        self._names = {value.name for node in self.graph for value in node.outputs} | {*self.graph.initializers}
        self._names |= {node.name for node in self.graph}

    def add_constant(self, values: Array, near: ir.Node) -> ir.Value:
        """Add a constant, named after a node."""
        constant = ir.Value(
            name=self._make_name(f"{near.name}_constant"),
            shape=ir.Shape(values.shape),
            type=ir.TensorType(ir.DataType.from_numpy(values.dtype)),
            const_value=ir.tensor(np.asarray(values, order="C")),  # ascontiguousarray turns a scalar into a row
        )
        self.graph.register_initializer(constant)
        return constant

    def add_node(
        self, successor: ir.Node, kind: str, inputs: Sequence[ir.Value | None], outputs: int = 1, **attributes: Any
    ) -> list[ir.Value]:
        """Add a node before another, and return its outputs."""
        name = self._make_name(f"{successor.name}_{kind}")
        values = [ir.Value(name=self._make_name(f"{name}_{index}")) for index in range(outputs)]
        node = ir.node(kind, inputs, attributes, outputs=values, name=name)
        self.graph.insert_before(successor, node)
        return values

    def compute(self, successor: ir.Node, kind: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Add a node with one output before another, and return that output."""
        return self.add_node(successor, kind, inputs, **attributes)[0]

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Replace all uses of a value; an output of the network keeps its name."""
        if old.is_graph_output():
            name = old.name
            old.name = self._make_name(f"{name}_before")
            new.name = name
        new.shape, new.type = new.shape or old.shape, new.type or old.type
        old.replace_all_uses_with(new, replace_graph_outputs=True)

    def finish(self) -> ir.Model:
        """Remove unused nodes, and infer the shapes of new values."""
        common.RemoveUnusedNodesPass()(self.model)
        self.graph.sort()
        return infer_shapes(self.model)

    def _make_name(self, stem: str) -> str:
        name, number = stem, 1
        while name in self._names:
            number += 1
            name = f"{stem}_{number}"
        self._names.add(name)
        return name


def load_model(path: Path) -> ir.Model:
    """Load an ONNX file; UnsupportedError if onnx_ir cannot represent it."""
    try:
        return ir.load(path)
    except ir.serde.SerdeError as error:
        reason = onnx_graphs.describe_cause(error)
        if any(map(onnx_graphs.has_map, _list_types(path))):
            reason = "one of its values is a map. Export it without: for scikit-learn, options={'zipmap': False}."
        raise UnsupportedError(f"this network cannot be rewritten: {reason}") from error


def _list_types(path: Path) -> list[Any]:
    graph = onnx.load(path, load_external_data=False).graph
    return [value.type for value in (*graph.input, *graph.output, *graph.value_info)]


def open_model(model: ir.Model) -> ir.Model:
    """Copy a model for rewriting: nodes sorted, functions inlined, every node with a distinct name, shapes inferred."""
    # Runtimes accept nodes in any order; a copy needs each after its inputs.
    model.graph.sort()
    for function in model.functions.values():
        function.sort()
    copy = common.InlinePass()(model.clone()).model
    common.NameFixPass()(copy)
    name_nodes(copy.graph)
    return infer_shapes(copy)


def name_nodes(graph: ir.Graph) -> None:
    """Give every node a distinct name, and leave those that have one."""
    names: set[str] = set()
    numbers = itertools.count()
    original_names = {node.name for node in graph}
    for node in graph:
        if not node.name or node.name in names:
            node.name = next(name for number in numbers if (name := f"{node.op_type}_{number}") not in original_names)
        names.add(node.name)


def infer_shapes(model: ir.Model) -> ir.Model:
    """Infer every shape of the model that ONNX can infer."""
    # It logs the traceback of a failure, such as an operator that only the runtime knows, and changes nothing then.
    _SHAPE_LOGGER.disabled = True
    return common.ShapeInferencePass(check_type=False, strict_mode=False)(model).model


def read_constant(value: ir.Value | None) -> Array | None:
    """Return the values of a constant; None for any other value."""
    if value is None:
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def read_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return a shape that is known in all dimensions, else None."""
    if value is None or value.shape is None or not all(isinstance(side, int) for side in value.shape):
        return None
    return tuple(int(side) for side in value.shape)  # type: ignore[arg-type]


def read_attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """Return the value of an attribute; several numbers as a tuple."""
    attribute = node.attributes.get(name)
    if attribute is None:
        return default
    return tuple(attribute.value) if isinstance(attribute.value, (list, tuple)) else attribute.value


def find_only_user(value: ir.Value) -> ir.Node | None:
    """Return the only consumer of a value; None if there are several, or if it is an output of the network."""
    users = list(value.uses())
    return users[0].node if len(users) == 1 and not value.is_graph_output() else None


def find_producer(value: ir.Value | None, kind: str) -> ir.Node | None:
    """Return the node that computes a value if it is of that kind, else None."""
    node = None if value is None else value.producer()
    return node if node is not None and is_kind(node, kind) else None


def is_kind(node: ir.Node, *kinds: str) -> bool:
    """Return whether the node is one of these operators of ONNX itself."""
    return node.domain in ("", "ai.onnx") and node.op_type in kinds


def read_scalar(value: ir.Value | None) -> float | None:
    """Return the number in a constant of one value, else None."""
    values = read_constant(value)
    return float(values.reshape(-1)[0]) if values is not None and values.size == 1 else None
