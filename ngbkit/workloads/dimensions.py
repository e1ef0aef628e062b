"""Dimensions of inputs: numbers, names, and expressions of names such as ``past + sequence``, evaluated without `eval`.

>>> evaluate("past + 2*sequence", {"past": 3, "sequence": 4})
11
>>> list_names("past + 2*sequence")
('past', 'sequence')
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache, reduce
from typing import Any

from ngbkit.errors import WorkloadError

Dimension = int | str
"""A number, or the text of an expression whose names are the batch and factors."""

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
# As exporters write them; sympy capitalises two.
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("floor", "int", "trunc"), math.floor),
    **dict.fromkeys(("ceil", "ceiling"), math.ceil),
    **dict.fromkeys(("max", "Max"), max),
    **dict.fromkeys(("min", "Min"), min),
    **{name: lambda *factors: reduce(operator.mul, factors) for name in ("Mul",)},
    **{name: lambda dividend, divisor: dividend // divisor for name in ("FloorDiv", "floordiv")},
}
# A dimension is short; a long text is no expression.
_LONGEST = 500


def is_expression(text: str) -> bool:
    """Return whether a text is an arithmetic expression of names and numbers, a single name included."""
    try:
        _parse(text)
    except ValueError:
        return False
    return True


def list_names(dimension: Dimension) -> tuple[str, ...]:
    """List the names in a dimension, each once, in order; none of a number."""
    if isinstance(dimension, int):
        return ()
    nodes = [node for node in ast.walk(_parse(dimension)) if isinstance(node, ast.Name)]
    calls = {id(node.func) for node in ast.walk(_parse(dimension)) if isinstance(node, ast.Call)}
    nodes.sort(key=lambda node: node.col_offset)
    return tuple(dict.fromkeys(node.id for node in nodes if id(node) not in calls))


def substitute(dimension: Dimension, values: Mapping[str, int]) -> Dimension:
    """Replace the names that have a value; a dimension without a name is a number, and WorkloadError if negative."""
    names = list_names(dimension)
    if isinstance(dimension, int) or not set(names) & values.keys():
        return dimension
    if set(names) <= values.keys():
        return evaluate(dimension, values)
    tree = _Replacement(values).visit(ast.parse(dimension, mode="eval"))
    return ast.unparse(tree)


def evaluate(dimension: Dimension, values: Mapping[str, int]) -> int:
    """Evaluate a dimension, rounded down; WorkloadError if a name has no value, or the result is no size."""
    if isinstance(dimension, int):
        return dimension
    try:
        result: int = math.floor(_evaluate(_parse(dimension), values))
    except KeyError as error:
        raise WorkloadError(f"dimension {dimension!r} needs a value of {error.args[0]}.") from None
    except (ArithmeticError, TypeError, ValueError) as error:
        raise WorkloadError(f"invalid dimension {dimension!r}: {error}.") from None
    if result < 0:
        described = ", ".join(f"{name}={values[name]}" for name in list_names(dimension))
        raise WorkloadError(f"invalid dimension {dimension!r} at {described}: got {result}; expected 0 or more.")
    return result


@cache
def _parse(text: str) -> ast.expr:
    """Parse an expression; ValueError if it is none, or has another kind of node."""
    if len(text) > _LONGEST:
        raise ValueError(f"{len(text)} characters are too long for a dimension")
    try:
        expression = ast.parse(text, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text!r} is no expression") from error
    _check(expression)
    return expression


def _check(node: ast.expr) -> None:
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        _check(node.left)
        _check(node.right)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        _check(node.operand)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        if node.keywords or not node.args:
            raise ValueError("a function of a dimension takes positional arguments")
        for argument in node.args:
            _check(argument)
    elif not isinstance(node, ast.Name) and not (isinstance(node, ast.Constant) and type(node.value) in (int, float)):
        raise ValueError(f"{ast.unparse(node)!r} is no part of a dimension")


def _evaluate(node: ast.expr, values: Mapping[str, int]) -> Any:
    if isinstance(node, ast.BinOp):
        return _BINARY[type(node.op)](_evaluate(node.left, values), _evaluate(node.right, values))
    if isinstance(node, ast.UnaryOp):
        value = _evaluate(node.operand, values)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        return Fraction(_FUNCTIONS[node.func.id](*(_evaluate(argument, values) for argument in node.args)))
    if isinstance(node, ast.Name):
        return Fraction(values[node.id])
    assert isinstance(node, ast.Constant)
    return Fraction(str(node.value))


class _Replacement(ast.NodeTransformer):
    """Replaces names by their values."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._values[node.id]) if node.id in self._values else node
