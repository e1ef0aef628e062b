"""The traces of a build beside the network: settings of torch, replaced functions, statements that act.

A network whose tensors and code are the same runs slower with one thread, or with a function of torch that its cell has
replaced.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from ngbkit.files import hash_file
from ngbkit.workloads.content.manifests import is_own

_GETTER = re.compile(r"_get_\w*(enabled|deterministic|precision|allow|fallback|benchmark|preferred|default)\w*")
_SETTINGS = ("get_num_threads", "get_num_interop_threads", "get_default_dtype", "get_default_device")
# In the key of a table.
_ADDRESS = re.compile(r"0x[0-9a-f]+|\d{6,}")
# A number that is zero where the processor flushes those that are too small.
_DENORMAL = 1e-40
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Names = Mapping[str, Mapping[str, Any]]


def list_settings() -> list[str]:
    """List what a cell may have set: variables, and torch's settings by all of its getters that need no argument."""
    import torch

    getters = [getattr(torch, name) for name in _SETTINGS]
    getters += [getattr(torch._C, name) for name in sorted(dir(torch._C)) if _GETTER.fullmatch(name)]
    values = [f"denormal {float(torch.tensor([_DENORMAL]).mul(1.0)[0])}"]
    values += [f"{name}={value}" for name, value in os.environ.items()]
    for getter in getters:
        with suppress(Exception):  # of another build, or with arguments
            values.append(f"{getter.__name__} {getter()}")
    return values


def copy_names(modules: Iterable[str]) -> Names:
    """Copy the names of imported modules, of their classes and of their tables, to find what replaces or joins them."""
    names: dict[str, dict[str, Any]] = {}
    for module in modules:
        attributes = dict(vars(sys.modules[module])) if sys.modules.get(module) is not None else {}
        names[module] = attributes
        for name, value in attributes.items():
            kind = type(value)  # a deprecated name may warn if it is asked itself
            if issubclass(kind, type) and value.__module__ == module:
                names[f"{module}.{name}"] = dict(vars(value))
            elif issubclass(kind, Mapping) and name != "__builtins__":
                names[f"{module}.{name}"] = {str(key): entry for key, entry in tuple(value.items())}
    return names


def find_replaced(before: Names, imported: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield the code, or an installed module's hash, that has replaced what was imported before."""
    earlier_modules = frozenset(imported)
    for place, names in copy_names(earlier_modules).items():
        earlier = before.get(place, {})
        for name, value in names.items():
            if value is not earlier.get(name):
                for code in _find_code(value):
                    if code.__module__ not in earlier_modules:
                        yield _ADDRESS.sub("", f"{place}.{name}"), _describe(code)


def _find_code(value: Any) -> list[Any]:
    """Find the functions and classes that a value is or has."""
    if issubclass(type(value), ModuleType):  # in `sys.modules`
        return []
    parts = [value]
    with suppress(TypeError):
        parts += vars(value).values()
    return [part for part in parts if issubclass(type(part), (FunctionType, type))]


def _describe(code: Any) -> Any:
    file = getattr(sys.modules.get(code.__module__), "__file__", None)
    return code if file is None or is_own(Path(file)) else _hash_module(file)


@cache
def _hash_module(file: str) -> str:
    try:
        return hash_file(Path(file))
    except OSError:  # in an archive
        return file


def list_acts(source: str) -> list[str]:
    """List the calls, foreign assignments and decorated functions of a module, and the definitions that they name."""
    body = ast.parse(source).body
    definitions = {node.name: node for node in body if isinstance(node, _DEFINITIONS)}
    acts: dict[int, ast.stmt] = {}
    waiting = [*_find_acts(body)]
    while waiting:
        act = waiting.pop()
        if id(act) not in acts:
            acts[id(act)] = act
            names = {node.id for node in ast.walk(act) if isinstance(node, ast.Name)}
            waiting += [definitions[name] for name in names & definitions.keys()]
    return sorted(map(ast.dump, acts.values()))


def list_acts_of(path: Path) -> list[str]:
    """List the statements of a file that act; none if it is no Python."""
    with suppress(OSError, SyntaxError, ValueError, RecursionError):
        return list_acts(path.read_text(encoding="utf-8"))
    return []


def _find_acts(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.Expr):
            if any(isinstance(part, ast.Call) for part in ast.walk(node)):
                yield node
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)):
            targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]
            if not all(isinstance(target, (ast.Name, ast.Tuple)) for target in targets):
                yield node
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.decorator_list:
            yield node
        elif isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try)) and not _is_guard(node):
            yield from _find_acts(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt))
            yield from _find_acts(child for handler in getattr(node, "handlers", ()) for child in handler.body)


def _is_guard(node: ast.stmt) -> bool:
    """Return whether a block runs in a program alone, and not where a network is built from its file."""
    return isinstance(node, ast.If) and "'__main__'" in ast.dump(node.test)
