"""The names that a cell binds and the factors of its models, read from its syntax without running it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ngbkit.errors import WorkloadError

_EXAMPLE = 'models = {"small": small, "large": large}'
_LITERAL = f"Bind it to one literal dict, {_EXAMPLE}: each key becomes a workload."
# The name of a network that is not `model`: net, nets, networks, model1, my_model, model_a.
_NETWORK = re.compile(r"(.*_)?(model|net|network)s?(_.*|\d*)", re.IGNORECASE)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The factors that a model takes, in order, and those with a default."""

    takes: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


def find_bindings(tree: ast.Module) -> dict[str, ast.AST | None]:
    """Find every name that the top level binds, with its last value if that is visible; ``*`` for a star import."""
    return dict(_walk_bindings(tree.body))


def read(tree: ast.Module, factors: Sequence[str], subject: str = "the cell") -> dict[str | None, Signature] | None:
    """Read the signature of ``model``, under the key None, or of each of ``models``; None if neither is bound.

    A model without a visible signature takes all `factors`. `WorkloadError`: both are bound, or the keys of ``models``
    are not literal.
    """
    bindings = find_bindings(tree)
    if "model" in bindings and "models" in bindings:
        raise WorkloadError(f"{subject} binds both `model` and `models`; expected one. Delete the other.")
    if "models" in bindings:
        members = _read_members(tree, bindings["models"], subject)
        return {key: _read_signature(value, bindings, factors) for key, value in members.items()}
    if "model" in bindings or "*" in bindings:
        return {None: _read_signature(bindings.get("model"), bindings, factors)}
    return None


def describe_candidates(tree: ast.Module) -> str:
    """Describe the networks that a cell without ``model`` binds, and how to name them."""
    bindings = find_bindings(tree)
    dicts = [name for name, value in bindings.items() if _is_network_dict(name, value, bindings)]
    networks = [name for name, value in bindings.items() if name not in dicts and _is_network(name, value, bindings)]
    if dicts:
        return f"it binds the dict {dicts[0]}. Rename it to `models`: each key becomes a workload."
    if len(networks) == 1:
        return f"it binds {networks[0]}. Rename it to `model`. For several networks, bind {_EXAMPLE}."
    if networks:
        pairs = ", ".join(f'"{name}": {name}' for name in networks)
        return f"it binds {', '.join(networks)}. Name one of them `model`, or bind all: models = {{{pairs}}}."
    return f"expected one of them. For several networks, bind {_EXAMPLE}."


def _is_network_dict(name: str, value: ast.AST | None, bindings: Mapping[str, ast.AST | None]) -> bool:
    values: list[ast.expr] = []
    if isinstance(value, ast.Dict):
        values = value.values
    elif isinstance(value, ast.Call) and _is_named(value.func, "dict"):
        values = [keyword.value for keyword in value.keywords]
    is_named = _NETWORK.fullmatch(name) is not None
    is_named &= not all(isinstance(member, ast.Constant) for member in values)
    return bool(values) and (is_named or all(_is_module(member, bindings) for member in values))


def _is_network(name: str, value: ast.AST | None, bindings: Mapping[str, ast.AST | None]) -> bool:
    """Return whether a binding is a module by its syntax, or is named like one and may be one."""
    is_named = _NETWORK.fullmatch(name) is not None and isinstance(value, (*_FUNCTIONS, ast.Call, ast.Name))
    return is_named or _is_module(value, bindings)


def _is_module(value: ast.AST | None, bindings: Mapping[str, ast.AST | None]) -> bool:
    """Return whether an expression calls a class of ``torch.nn``, or one of the cell that derives from ``Module``."""
    if isinstance(value, ast.Name) and value.id in bindings:
        others = {name: node for name, node in bindings.items() if name != value.id}
        return _is_module(bindings[value.id], others)
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Attribute):
        return _is_named(value.func.value, "nn")
    built = bindings.get(value.func.id) if isinstance(value.func, ast.Name) else None
    return isinstance(built, ast.ClassDef) and any(_is_named(base, "Module") for base in built.bases)


def _walk_bindings(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.AST | None]]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement.name, statement
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                yield alias.asname or alias.name.partition(".")[0], None
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from _walk_targets(target, statement.value)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield from _walk_targets(statement.target, statement.value)
        else:
            yield from _walk_nested(statement)


def _walk_nested(statement: ast.stmt) -> Iterator[tuple[str, ast.AST | None]]:
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        yield from _walk_targets(statement.target, None)
    for field in ("body", "handlers", "cases", "orelse", "finalbody"):
        for child in getattr(statement, field, ()):
            yield from _walk_bindings([child] if isinstance(child, ast.stmt) else child.body)


def _walk_targets(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, ast.AST | None]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and node is not target and isinstance(node.ctx, ast.Store):
            yield node.id, None


def _read_members(tree: ast.Module, value: ast.AST | None, subject: str) -> dict[str | None, ast.AST | None]:
    for node in ast.walk(tree):
        if _changes_models(node):
            raise WorkloadError(
                f"line {getattr(node, 'lineno', '?')} of {subject} changes `models` after binding it. {_LITERAL}"
            )
    pairs: list[tuple[object, ast.expr]]
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict" and not value.args:
        pairs = [(keyword.arg, keyword.value) for keyword in value.keywords]
    elif isinstance(value, ast.Dict):
        names = [key.value if isinstance(key, ast.Constant) else None for key in value.keys]
        pairs = list(zip(names, value.values, strict=True))
    else:
        raise WorkloadError(f"invalid `models`: its keys are unknown until {subject} runs. {_LITERAL}")
    members: dict[str | None, ast.AST | None] = {key: node for key, node in pairs if isinstance(key, str) and key}
    if not members or len(members) < len(pairs):
        raise WorkloadError(f"invalid keys of `models`; expected one or more strings, each once. {_LITERAL}")
    return members


def _changes_models(node: ast.AST) -> bool:
    owner = getattr(node, "value", None)
    if not isinstance(owner, ast.Name) or owner.id != "models":
        return False
    if isinstance(node, ast.Subscript):
        return not isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Attribute) and node.attr in {"update", "setdefault", "pop", "popitem", "clear"}


def _read_signature(value: ast.AST | None, bindings: Mapping[str, ast.AST | None], factors: Sequence[str]) -> Signature:
    if isinstance(value, _FUNCTIONS):
        return _read_arguments(value.args, factors)
    if isinstance(value, ast.ClassDef):
        return _read_class(value, bindings, factors)
    if isinstance(value, ast.Name) and value.id in bindings:
        others = {name: node for name, node in bindings.items() if name != value.id}  # a name may be bound to itself
        return _read_signature(bindings[value.id], others, factors)
    if isinstance(value, ast.Call) and not _is_named(value.func, "partial"):
        return Signature()  # a call returns the module itself
    return Signature(takes=tuple(factors))


def _read_class(value: ast.ClassDef, bindings: Mapping[str, ast.AST | None], factors: Sequence[str]) -> Signature:
    for statement in value.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            return _read_arguments(statement.args, factors, skip=1)
    if len(value.bases) == 1:
        base = value.bases[0]
        return Signature() if _is_named(base, "Module") else _read_signature(base, bindings, factors)
    return Signature(takes=tuple(factors))


def _read_arguments(arguments: ast.arguments, factors: Sequence[str], skip: int = 0) -> Signature:
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    optional = positional[len(positional) - len(arguments.defaults) :]
    takes = positional[skip:]
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        takes.append(argument.arg)
        optional += [argument.arg] if default is not None else []
    if arguments.kwarg is not None:
        takes += [name for name in factors if name not in takes]
    return Signature(takes=tuple(takes), optional=tuple(name for name in optional if name in takes))


def _is_named(node: ast.AST, name: str) -> bool:
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)
