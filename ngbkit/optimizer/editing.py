"""Changing an `onnx_ir` graph at one place: constants and nodes that come, values that take the place of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes import common

Array = NDArray[Any]


class Edit:
    """A graph that is being changed.

    Parameters
    ----------
    model
        Changed in place. Its shapes are known, and its functions inlined: see `open_model`.
    """

    def __init__(self, model: ir.Model) -> None:
        self.model, self.graph = model, model.graph
        self._names = {value.name for node in self.graph for value in node.outputs} | {*self.graph.initializers}
        self._names |= {node.name for node in self.graph}

    def constant(self, array: Array, near: ir.Node) -> ir.Value:
        """A constant for a node, called after it."""
        found = ir.Value(
            name=self._free(f"{near.name}_constant"),
            shape=ir.Shape(array.shape),
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            const_value=ir.tensor(np.asarray(array, order="C")),  # ascontiguousarray makes a row of a single number
        )
        self.graph.register_initializer(found)
        return found

    def add(
        self, before: ir.Node, kind: str, taken: Sequence[ir.Value | None], outputs: int = 1, **attributes: Any
    ) -> list[ir.Value]:
        """A node in front of another; the values that it makes."""
        name = self._free(f"{before.name}_{kind}")
        made = [ir.Value(name=self._free(f"{name}_{at}")) for at in range(outputs)]
        node = ir.node(kind, taken, attributes, outputs=made, name=name)
        self.graph.insert_before(before, node)
        return made

    def one(self, before: ir.Node, kind: str, *taken: ir.Value | None, **attributes: Any) -> ir.Value:
        """`add`, for a node with one output."""
        return self.add(before, kind, taken, **attributes)[0]

    def replace(self, old: ir.Value, new: ir.Value) -> None:
        """Have everybody take `new` where `old` was taken; an output of the network keeps its name."""
        if old.is_graph_output():
            name = old.name
            old.name = self._free(f"{name}_before")
            new.name = name
        new.shape, new.type = new.shape or old.shape, new.type or old.type
        old.replace_all_uses_with(new, replace_graph_outputs=True)

    def finish(self) -> ir.Model:
        """Drop what nobody takes any more, and infer the shapes of what is new."""
        common.RemoveUnusedNodesPass()(self.model)
        self.graph.sort()
        return infer(self.model)

    def _free(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._names:
            number += 1
            name = f"{wanted}_{number}"
        self._names.add(name)
        return name


def open_model(model: ir.Model) -> ir.Model:
    """A copy of a model that rules can be applied to: functions inlined, every node with a name, shapes inferred."""
    found = common.InlinePass()(model.clone()).model
    common.NameFixPass()(found)
    seen: set[str] = set()
    for at, node in enumerate(found.graph):
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{at}"
        seen.add(node.name)
    return infer(found)


def infer(model: ir.Model) -> ir.Model:
    """The model with every shape that onnx can infer."""
    return common.ShapeInferencePass(check_type=False, strict_mode=False)(model).model


def array(value: ir.Value | None) -> Array | None:
    """What a constant holds; None of anything else."""
    if value is None:
        return None
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None else tensor.numpy()


def shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """A shape, where all of it is known."""
    if value is None or value.shape is None or not all(isinstance(side, int) for side in value.shape):
        return None
    return tuple(int(side) for side in value.shape)  # type: ignore[arg-type]


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:
    """The value of an attribute; of several numbers, a tuple."""
    found = node.attributes.get(name)
    if found is None:
        return default
    return tuple(found.value) if isinstance(found.value, (list, tuple)) else found.value


def only_user(value: ir.Value) -> ir.Node | None:
    """The node that alone takes a value; None where there are several, or where it is an output of the network."""
    users = list(value.uses())
    return users[0].node if len(users) == 1 and not value.is_graph_output() else None


def producer(value: ir.Value | None, kind: str) -> ir.Node | None:
    """The node that makes a value, where it is of that kind."""
    node = None if value is None else value.producer()
    return node if node is not None and is_kind(node, kind) else None


def is_kind(node: ir.Node, *kinds: str) -> bool:
    """Whether it is one of ONNX's own operators of these names."""
    return node.domain in ("", "ai.onnx") and node.op_type in kinds


def scalar(value: ir.Value | None) -> float | None:
    """The number that a constant of one value holds."""
    found = array(value)
    return float(found.reshape(-1)[0]) if found is not None and found.size == 1 else None
