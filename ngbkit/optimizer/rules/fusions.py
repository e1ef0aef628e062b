"""Functions that ONNX has an operator for: written out in smaller ones, and put together again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from ngbkit.optimizer.editing import Edit, array, attribute, is_kind, only_user, producer, scalar, shape
from ngbkit.optimizer.rules.base import Rule

# From which version of ONNX's operators on they exist.
_HARD_SWISH, _LAYER_NORM, _GELU = 14, 17, 20
_REDUCE_BY_INPUT = 18  # from here on, what a mean is taken over is an input and no attribute


def _opset(graph: ir.Graph) -> int:
    return graph.opset_imports.get("", 0)


def _find_hard_swish(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    return ((node,) for node in graph if is_kind(node, "HardSwish"))


def _unfuse_hard_swish(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    (node,) = nodes
    gate = edit.one(node, "HardSigmoid", node.inputs[0], alpha=1 / 6, beta=0.5)
    edit.replace(node.outputs[0], edit.one(node, "Mul", node.inputs[0], gate))


def _find_gated(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """A value times its own hard sigmoid."""
    if _opset(graph) < _HARD_SWISH:
        return
    for node in graph:
        if not is_kind(node, "Mul"):
            continue
        for value, gate in (node.inputs[:2], node.inputs[1::-1]):
            found = producer(gate, "HardSigmoid")
            if found is None or found.inputs[0] is not value:
                continue
            if (
                math.isclose(attribute(found, "alpha", 0.2), 1 / 6, rel_tol=1e-5)
                and attribute(found, "beta", 0.5) == 0.5
            ):
                yield found, node
                break


def _fuse_hard_swish(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    gate, product = nodes
    edit.replace(product.outputs[0], edit.one(product, "HardSwish", gate.inputs[0]))


def _find_gelu(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    return ((node,) for node in graph if is_kind(node, "Gelu") and attribute(node, "approximate", "none") == "none")


def _unfuse_gelu(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    (node,) = nodes
    taken = node.inputs[0]
    root, one, half = (edit.constant(_like(taken, number), node) for number in (math.sqrt(2), 1.0, 0.5))
    part = edit.one(node, "Erf", edit.one(node, "Div", taken, root))
    doubled = edit.one(node, "Mul", taken, edit.one(node, "Add", part, one))
    edit.replace(node.outputs[0], edit.one(node, "Mul", doubled, half))


def _find_erf(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """x (1 + erf(x / sqrt 2)) / 2, whatever the order of the factors."""
    if _opset(graph) < _GELU:
        return
    for node in graph:
        erf = _erf_of(node) if is_kind(node, "Mul") else None
        if erf is not None:
            yield erf, node


def _erf_of(product: ir.Node) -> ir.Node | None:
    """The error function in a product that is a GELU."""
    factors = _factors(product)
    numbers = [number for value in factors if (number := scalar(value)) is not None]
    values = [value for value in factors if scalar(value) is None]
    if len(values) != 2 or not math.isclose(math.prod(numbers), 0.5):
        return None
    for value, other in (values, values[::-1]):
        add = producer(other, "Add")
        parts = [] if add is None else [producer(one, "Erf") for one in add.inputs]
        ones = [] if add is None else [scalar(one) for one in add.inputs]
        erf = next((one for one in parts if one is not None), None)
        if erf is not None and 1.0 in ones and _over_root(erf.inputs[0]) is value:
            return erf
    return None


def _factors(product: ir.Node) -> list[ir.Value]:
    """What is multiplied, through products that nobody else takes."""
    found: list[ir.Value] = []
    for value in product.inputs:
        inner = producer(value, "Mul")
        if inner is not None and only_user(inner.outputs[0]) is product:
            found += _factors(inner)
        elif value is not None:
            found.append(value)
    return found


def _over_root(value: ir.Value | None) -> ir.Value | None:
    """What is divided by the square root of two."""
    for kind, number in (("Div", math.sqrt(2)), ("Mul", 1 / math.sqrt(2))):
        node = producer(value, kind)
        if (
            node is not None
            and (found := scalar(node.inputs[1])) is not None
            and math.isclose(found, number, rel_tol=1e-5)
        ):
            return node.inputs[0]
    return None


def _fuse_gelu(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    erf, last = nodes
    taken = _over_root(erf.inputs[0])
    edit.replace(last.outputs[0], edit.one(last, "Gelu", taken))


def _find_layer_norm(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    for node in graph:
        known = shape(node.inputs[0]) if is_kind(node, "LayerNormalization") and node.inputs else None
        if known is not None and len(node.outputs) == 1 and attribute(node, "axis", -1) in (-1, len(known) - 1):
            yield (node,)


def _unfuse_layer_norm(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    (node,) = nodes
    taken, *affine = node.inputs
    epsilon = edit.constant(_like(taken, attribute(node, "epsilon", 1e-5)), node)
    apart = edit.one(node, "Sub", taken, _mean(edit, node, taken))
    variance = _mean(edit, node, edit.one(node, "Mul", apart, apart))
    made = edit.one(node, "Div", apart, edit.one(node, "Sqrt", edit.one(node, "Add", variance, epsilon)))
    for kind, value in zip(("Mul", "Add"), affine, strict=False):
        if value is not None:
            made = edit.one(node, kind, made, value)
    edit.replace(node.outputs[0], made)


def _mean(edit: Edit, node: ir.Node, value: ir.Value | None) -> ir.Value:
    """Over the last dimension, which stays."""
    if _opset(edit.graph) >= _REDUCE_BY_INPUT:
        return edit.one(node, "ReduceMean", value, edit.constant(np.array([-1], np.int64), node), keepdims=1)
    return edit.one(node, "ReduceMean", value, axes=[-1], keepdims=1)


def _find_normalised(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """(x - mean) / sqrt(variance + epsilon), times a constant of the last dimension, and maybe plus one."""
    if _opset(graph) < _LAYER_NORM:
        return
    for scale in graph:
        divided = producer(scale.inputs[0], "Div") if is_kind(scale, "Mul") else None
        weight = array(scale.inputs[1]) if divided is not None else None
        if divided is None or weight is None or weight.ndim != 1 or _normalised(divided) is None:
            continue
        users = [use.node for use in scale.outputs[0].uses()]
        shift = users[0] if len(users) == 1 and is_kind(users[0], "Add") else None
        bias = array(shift.inputs[1]) if shift is not None else None
        fits = bias is not None and bias.shape == weight.shape
        yield (divided, scale, shift) if fits and shift is not None else (divided, scale)


def _normalised(divided: ir.Node) -> tuple[ir.Value, float] | None:
    """What is normalised, and epsilon; None where it is something else that is divided."""
    apart, root = producer(divided.inputs[0], "Sub"), producer(divided.inputs[1], "Sqrt")
    add = producer(root.inputs[0], "Add") if root is not None else None
    if apart is None or add is None:
        return None
    epsilon = scalar(add.inputs[1])
    variance, mean = producer(add.inputs[0], "ReduceMean"), producer(apart.inputs[1], "ReduceMean")
    if epsilon is None or variance is None or mean is None or mean.inputs[0] is not apart.inputs[0]:
        return None
    square = variance.inputs[0].producer() if variance.inputs[0] is not None else None
    squared = square is not None and _is_square(square, apart.outputs[0])
    known = shape(apart.inputs[0])
    if not squared or known is None or not all(_is_last(one, len(known)) for one in (variance, mean)):
        return None
    return (apart.inputs[0], epsilon) if apart.inputs[0] is not None else None


def _is_square(node: ir.Node, value: ir.Value) -> bool:
    if is_kind(node, "Mul"):
        return all(one is value for one in node.inputs)
    return is_kind(node, "Pow") and node.inputs[0] is value and scalar(node.inputs[1]) == 2.0


def _is_last(mean: ir.Node, rank: int) -> bool:
    """Whether a mean is over the last dimension alone, and keeps it."""
    given = array(mean.inputs[1]) if len(mean.inputs) > 1 else None
    axes = tuple(given.tolist()) if given is not None else attribute(mean, "axes", ())
    return bool(attribute(mean, "keepdims", 1)) and tuple(axes) in ((-1,), (rank - 1,))


def _fuse_layer_norm(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    divided, scale, *rest = nodes
    found = _normalised(divided)
    assert found is not None
    value, epsilon = found
    inputs = [value, scale.inputs[1], *(node.inputs[1] for node in rest)]
    last = nodes[-1]
    made = edit.one(last, "LayerNormalization", *inputs, axis=-1, epsilon=epsilon)
    edit.replace(last.outputs[0], made)


def _like(value: ir.Value | None, number: float) -> np.ndarray:
    """A number of the type of a value."""
    kind = value.dtype.numpy() if value is not None and value.dtype is not None else np.dtype(np.float32)
    return np.array(number, kind)


RULES = (
    Rule(
        name="unfuse-hardswish",
        summary="HardSwish into a product with a hard sigmoid",
        find=_find_hard_swish,
        rewrite=_unfuse_hard_swish,
        inverse="fuse-hardswish",
    ),
    Rule(
        name="fuse-hardswish",
        summary="a product with the own hard sigmoid into HardSwish",
        find=_find_gated,
        rewrite=_fuse_hard_swish,
        inverse="unfuse-hardswish",
    ),
    Rule(
        name="unfuse-gelu",
        summary="GELU into its error function",
        find=_find_gelu,
        rewrite=_unfuse_gelu,
        inverse="fuse-gelu",
    ),
    Rule(
        name="fuse-gelu",
        summary="the error function of a GELU into GELU",
        find=_find_erf,
        rewrite=_fuse_gelu,
        inverse="unfuse-gelu",
    ),
    Rule(
        name="unfuse-layernorm",
        summary="LayerNorm into means, differences and a root",
        find=_find_layer_norm,
        rewrite=_unfuse_layer_norm,
        inverse="fuse-layernorm",
    ),
    Rule(
        name="fuse-layernorm",
        summary="means, differences and a root into LayerNorm",
        find=_find_normalised,
        rewrite=_fuse_layer_norm,
        inverse="unfuse-layernorm",
    ),
)
