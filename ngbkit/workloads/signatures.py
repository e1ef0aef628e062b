"""What a cell binds, and which factors its models take: read from its syntax, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ngbkit.errors import WorkloadError

_LITERAL = 'Write it as one literal dict, models = {"small": small, "large": large}: each key becomes a workload.'
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The factors that a model takes, in order, and those of them that it has a default for."""

    takes: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


def bindings(tree: ast.Module) -> dict[str, ast.AST | None]:
    """Every name that the top level binds, with what it is bound to last, where that shows; ``*`` for a star import."""
    return dict(_bindings(tree.body))


def read(tree: ast.Module, factors: Sequence[str]) -> dict[str | None, Signature] | None:
    """The signature of ``model``, under the key None, or of each of ``models``; None where neither is bound.

    Parameters
    ----------
    tree
        The parsed cell.
    factors
        What a model takes whose signature does not show.

    Raises
    ------
    WorkloadError
        Both are bound, or the keys of ``models`` cannot be read.
    """
    bound = bindings(tree)
    if "model" in bound and "models" in bound:
        raise WorkloadError("the cell binds both `model` and `models`; keep the one that is meant.")
    if "models" in bound:
        members = _members(tree, bound["models"])
        return {key: _signature(value, bound, factors) for key, value in members.items()}
    if "model" in bound or "*" in bound:
        return {None: _signature(bound.get("model"), bound, factors)}
    return None


def _bindings(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.AST | None]]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement.name, statement
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                yield alias.asname or alias.name.partition(".")[0], None
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from _targets(target, statement.value)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield from _targets(statement.target, statement.value)
        else:
            yield from _nested(statement)


def _nested(statement: ast.stmt) -> Iterator[tuple[str, ast.AST | None]]:
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        yield from _targets(statement.target, None)
    for field in ("body", "handlers", "cases", "orelse", "finalbody"):
        for child in getattr(statement, field, ()):
            yield from _bindings([child] if isinstance(child, ast.stmt) else child.body)


def _targets(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, ast.AST | None]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    for one in ast.walk(target):
        if isinstance(one, ast.Name) and one is not target and isinstance(one.ctx, ast.Store):
            yield one.id, None


def _members(tree: ast.Module, value: ast.AST | None) -> dict[str | None, ast.AST | None]:
    for node in ast.walk(tree):
        if _changes_models(node):
            raise WorkloadError(
                f"line {getattr(node, 'lineno', '?')} of the cell changes `models` after it is bound. {_LITERAL}"
            )
    pairs: list[tuple[object, ast.expr]]
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict" and not value.args:
        pairs = [(keyword.arg, keyword.value) for keyword in value.keywords]
    elif isinstance(value, ast.Dict):
        names = [key.value if isinstance(key, ast.Constant) else None for key in value.keys]
        pairs = list(zip(names, value.values, strict=True))
    else:
        raise WorkloadError(f"the keys of `models` cannot be read without running the cell. {_LITERAL}")
    members: dict[str | None, ast.AST | None] = {key: node for key, node in pairs if isinstance(key, str) and key}
    if not members or len(members) < len(pairs):
        raise WorkloadError(f"`models` needs names in quotes as keys, each once, and one or more. {_LITERAL}")
    return members


def _changes_models(node: ast.AST) -> bool:
    inner = getattr(node, "value", None)
    if not isinstance(inner, ast.Name) or inner.id != "models":
        return False
    if isinstance(node, ast.Subscript):
        return not isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Attribute) and node.attr in {"update", "setdefault", "pop", "popitem", "clear"}


def _signature(value: ast.AST | None, bound: Mapping[str, ast.AST | None], factors: Sequence[str]) -> Signature:
    if isinstance(value, _FUNCTIONS):
        return _of_arguments(value.args, factors)
    if isinstance(value, ast.ClassDef):
        return _of_class(value, bound, factors)
    if isinstance(value, ast.Name) and value.id in bound:
        rest = {name: node for name, node in bound.items() if name != value.id}  # a name bound to itself ends here
        return _signature(bound[value.id], rest, factors)
    if isinstance(value, ast.Call) and not _is_named(value.func, "partial"):
        return Signature()  # a call makes the module itself
    return Signature(takes=tuple(factors))


def _of_class(value: ast.ClassDef, bound: Mapping[str, ast.AST | None], factors: Sequence[str]) -> Signature:
    for statement in value.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            return _of_arguments(statement.args, factors, skip=1)
    if len(value.bases) == 1:
        return Signature() if _is_named(value.bases[0], "Module") else _signature(value.bases[0], bound, factors)
    return Signature(takes=tuple(factors))


def _of_arguments(arguments: ast.arguments, factors: Sequence[str], skip: int = 0) -> Signature:
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    optional = positional[len(positional) - len(arguments.defaults) :]
    named = positional[skip:]
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        named.append(argument.arg)
        optional += [argument.arg] if default is not None else []
    if arguments.kwarg is not None:
        named += [name for name in factors if name not in named]
    return Signature(takes=tuple(named), optional=tuple(name for name in optional if name in named))


def _is_named(node: ast.AST, name: str) -> bool:
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)
