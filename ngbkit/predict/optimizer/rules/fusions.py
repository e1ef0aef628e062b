"""Functions that ONNX has an operator for: fuses the smaller operators that compute them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from ngbkit.predict.optimizer.editing import (
    Edit,
    find_only_user,
    find_producer,
    is_kind,
    read_attribute,
    read_constant,
    read_scalar,
    read_shape,
)
from ngbkit.predict.optimizer.rules.base import Rule

# The first opset of each operator.
_HARD_SWISH, _LAYER_NORM, _GELU = 14, 17, 20


def _read_opset(graph: ir.Graph) -> int:
    return graph.opset_imports.get("", 0)


def _find_gated(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Find a value times its own hard sigmoid."""
    if _read_opset(graph) < _HARD_SWISH:
        return
    for node in graph:
        if not is_kind(node, "Mul"):
            continue
        for value, gate in (node.inputs[:2], node.inputs[1::-1]):
            sigmoid = find_producer(gate, "HardSigmoid")
            if sigmoid is None or sigmoid.inputs[0] is not value:
                continue
            if (
                math.isclose(read_attribute(sigmoid, "alpha", 0.2), 1 / 6, rel_tol=1e-5)
                and read_attribute(sigmoid, "beta", 0.5) == 0.5
            ):
                yield sigmoid, node
                break


def _fuse_hard_swish(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    gate, product = nodes
    edit.replace(product.outputs[0], edit.compute(product, "HardSwish", gate.inputs[0]))


def _find_erf(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Find x (1 + erf(x / sqrt 2)) / 2, in any order of the factors."""
    if _read_opset(graph) < _GELU:
        return
    for node in graph:
        erf = _find_gelu_erf(node) if is_kind(node, "Mul") else None
        if erf is not None:
            yield erf, node


def _find_gelu_erf(product: ir.Node) -> ir.Node | None:
    """Return the error function in a product that is a GELU."""
    factors = _list_factors(product)
    numbers = [number for value in factors if (number := read_scalar(value)) is not None]
    values = [value for value in factors if read_scalar(value) is None]
    if len(values) != 2 or not math.isclose(math.prod(numbers), 0.5):
        return None
    for value, other in (values, values[::-1]):
        add = find_producer(other, "Add")
        parts = [] if add is None else [find_producer(summand, "Erf") for summand in add.inputs]
        ones = [] if add is None else [read_scalar(summand) for summand in add.inputs]
        erf = next((summand for summand in parts if summand is not None), None)
        if erf is not None and 1.0 in ones and _find_numerator(erf.inputs[0]) is value:
            return erf
    return None


def _list_factors(product: ir.Node) -> list[ir.Value]:
    """List the factors of a product, through inner products without other consumers."""
    factors: list[ir.Value] = []
    for value in product.inputs:
        inner = find_producer(value, "Mul")
        if inner is not None and find_only_user(inner.outputs[0]) is product:
            factors += _list_factors(inner)
        elif value is not None:
            factors.append(value)
    return factors


def _find_numerator(value: ir.Value | None) -> ir.Value | None:
    """Return the value that is divided by the square root of two."""
    for kind, number in (("Div", math.sqrt(2)), ("Mul", 1 / math.sqrt(2))):
        node = find_producer(value, kind)
        if (
            node is not None
            and (constant := read_scalar(node.inputs[1])) is not None
            and math.isclose(constant, number, rel_tol=1e-5)
        ):
            return node.inputs[0]
    return None


def _fuse_gelu(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    erf, last = nodes
    source = _find_numerator(erf.inputs[0])
    edit.replace(last.outputs[0], edit.compute(last, "Gelu", source))


def _find_normalised(graph: ir.Graph) -> Iterator[Sequence[ir.Node]]:
    """Find (x - mean) / sqrt(variance + epsilon), times a constant of the last dimension, optionally plus another."""
    if _read_opset(graph) < _LAYER_NORM:
        return
    for scale in graph:
        quotient = find_producer(scale.inputs[0], "Div") if is_kind(scale, "Mul") else None
        weight = read_constant(scale.inputs[1]) if quotient is not None else None
        if quotient is None or weight is None or weight.ndim != 1 or _parse_normalisation(quotient) is None:
            continue
        users = [use.node for use in scale.outputs[0].uses()]
        shift = users[0] if len(users) == 1 and is_kind(users[0], "Add") else None
        bias = read_constant(shift.inputs[1]) if shift is not None else None
        fits = bias is not None and bias.shape == weight.shape
        yield (quotient, scale, shift) if fits and shift is not None else (quotient, scale)


def _parse_normalisation(quotient: ir.Node) -> tuple[ir.Value, float] | None:
    """Return the normalised value and epsilon; None if the quotient is not a normalisation."""
    difference, root = find_producer(quotient.inputs[0], "Sub"), find_producer(quotient.inputs[1], "Sqrt")
    add = find_producer(root.inputs[0], "Add") if root is not None else None
    if difference is None or add is None:
        return None
    epsilon = read_scalar(add.inputs[1])
    variance, mean = find_producer(add.inputs[0], "ReduceMean"), find_producer(difference.inputs[1], "ReduceMean")
    if epsilon is None or variance is None or mean is None or mean.inputs[0] is not difference.inputs[0]:
        return None
    square = variance.inputs[0].producer() if variance.inputs[0] is not None else None
    squared = square is not None and _is_square(square, difference.outputs[0])
    sides = read_shape(difference.inputs[0])
    if not squared or sides is None or not all(_is_last(mean_node, len(sides)) for mean_node in (variance, mean)):
        return None
    return (difference.inputs[0], epsilon) if difference.inputs[0] is not None else None


def _is_square(node: ir.Node, value: ir.Value) -> bool:
    if is_kind(node, "Mul"):
        return all(factor is value for factor in node.inputs)
    return is_kind(node, "Pow") and node.inputs[0] is value and read_scalar(node.inputs[1]) == 2.0


def _is_last(mean: ir.Node, rank: int) -> bool:
    """Return whether a mean is over the last dimension alone, and keeps it."""
    axes_input = read_constant(mean.inputs[1]) if len(mean.inputs) > 1 else None
    axes = tuple(axes_input.tolist()) if axes_input is not None else read_attribute(mean, "axes", ())
    return bool(read_attribute(mean, "keepdims", 1)) and tuple(axes) in ((-1,), (rank - 1,))


def _fuse_layer_norm(edit: Edit, nodes: Sequence[ir.Node]) -> None:
    quotient, scale, *rest = nodes
    normalisation = _parse_normalisation(quotient)
    assert normalisation is not None
    value, epsilon = normalisation
    inputs = [value, scale.inputs[1], *(node.inputs[1] for node in rest)]
    last = nodes[-1]
    result = edit.compute(last, "LayerNormalization", *inputs, axis=-1, epsilon=epsilon)
    edit.replace(last.outputs[0], result)


RULES = (
    Rule(
        name="fuse-hardswish",
        summary="a product with the own hard sigmoid into HardSwish",
        find=_find_gated,
        rewrite=_fuse_hard_swish,
    ),
    Rule(
        name="fuse-gelu",
        summary="the error function of a GELU into GELU",
        find=_find_erf,
        rewrite=_fuse_gelu,
    ),
    Rule(
        name="fuse-layernorm",
        summary="means, differences and a root into LayerNorm",
        find=_find_normalised,
        rewrite=_fuse_layer_norm,
    ),
)
