"""The user's variables in the words of a magic: the scope of its line, values to insert, clusters, and datasets."""

from __future__ import annotations

import dis
import inspect
import numbers
import os
import re
import sys
from collections import ChainMap
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from ngbkit.errors import UsageError, find_nearest
from ngbkit.sweep.parsing import IN_BRACES

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ngbkit.dataset.storage import Data

_NAME = r"[^\W\d]\w*"
_VARIABLE = re.compile(rf"\$({_NAME})|\$?\{{\s*({_NAME})\s*\}}")
_PIECE = re.compile(rf"\$\$|{_VARIABLE.pattern}|({IN_BRACES})")
# The inside of braces that are the options of a label, and no expression.
_OPTIONS = re.compile(r"""\s*(?:$|\{|"[^"]*"\s*:|'[^']*'\s*:|[\w./+-]+\s*(?::|=(?!=)))""")
# Packages whose frames are between the user's line and this module.
_MACHINERY = ("IPython", "ngbkit")
# The value of a function's variable before its assignment: Python reads no global of that name there.
_UNBOUND = object()


@dataclass(frozen=True, slots=True)
class Scope:
    """The variables that the line of a magic reads, as other lines in its place do."""

    names: Mapping[str, Any]
    function: str = ""  # of the notebook, in which the line is
    # Those of the function, where another one around it has returned: the variables of that one are lost.
    remaining: Mapping[str, Any] | None = None


class Values(str):
    """The values of a variable, joined by commas; as positional arguments they are separate words."""

    words: list[str]


def find_scope(shell: InteractiveShell) -> Scope:
    """Find the scope of the line that called a magic: its function, those around it, its module, the notebook."""
    frame = _find_frame()
    if frame is None or frame.f_locals is shell.user_ns:
        return Scope(shell.user_ns)
    module, name = frame.f_globals, frame.f_code.co_name
    function = "the function" if name.startswith("<") else f"{name}()"
    scopes = [_read_variables(frame)]
    while frame is not None and frame.f_code.co_flags & inspect.CO_NESTED:
        code, frame = frame.f_code, frame.f_back
        while frame is not None and code not in frame.f_code.co_consts:
            frame = frame.f_back
        if frame is not None:
            scopes.append(_read_variables(frame))
    return Scope(
        names=ChainMap(*scopes, module, shell.user_ns),
        function=function if module is shell.user_global_ns else "",
        remaining=ChainMap(*scopes) if frame is None else None,
    )


def is_dropped() -> bool:
    """Return whether the line that called a magic drops its value, as a line in a loop does."""
    frame = _find_frame()
    instructions = () if frame is None else dis.get_instructions(frame.f_code)
    following = (instruction for instruction in instructions if frame and instruction.offset > frame.f_lasti)
    return next((instruction.opname for instruction in following), "") == "POP_TOP"


def expand(word: str, scope: Scope) -> str:
    """Replace ``$name`` and ``{name}`` in a word by the user's variables; ``$$`` is a dollar sign.

    UsageError: there is no such variable, its value is no text, number or list of these, or braces hold an expression.
    """

    def fill(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        if not (braces := match[3]):
            return ",".join(_insert(match, scope))
        inside = braces[1:-1].strip()
        if not _OPTIONS.match(inside):
            raise UsageError(
                f"invalid expression in the line of a magic: got {braces}; expected a variable, $name or {{name}}. "
                f"Assign it in a line before: value = {inside}, and write $value here."
            )
        return f"{{{_PIECE.sub(fill, braces[1:-1])}}}"

    if variable := _VARIABLE.fullmatch(word):
        words = _insert(variable, scope)
        values = Values(",".join(words))
        values.words = words
        return values
    return _PIECE.sub(fill, word)


def split_values(words: Collection[str]) -> list[str]:
    """Split the words that are the values of a list."""
    return [text for word in words for text in (word.words if isinstance(word, Values) else [word])]


def find_cluster(word: str, names: Mapping[str, Any]) -> Any:
    """Find the ipyparallel client, cluster or view in the variable that a word names; the word itself if none."""
    match = _VARIABLE.fullmatch(word)
    value = names.get(match[1] or match[2]) if match else None
    return value if _is_cluster(value) else word


def list_datasets(names: Mapping[str, Any]) -> list[str]:
    """List the variables with datasets, those that begin with an underscore left out."""
    import xarray as xr

    kinds = (xr.Dataset, xr.DataTree)
    return [name for name, value in names.items() if isinstance(value, kinds) and not name.startswith("_")]


def find_dataset(name: str | None, names: Mapping[str, Any]) -> Data:
    """Find the dataset in a variable of the notebook."""
    import xarray as xr

    datasets = {key: value for key, value in names.items() if isinstance(value, (xr.Dataset, xr.DataTree))}
    if name is None or name not in datasets:
        reason = "missing the name of a dataset" if name is None else f"{name!r} is not a dataset"
        labels = ", ".join(list_datasets(names))
        choices = f"expected one of {labels}" if labels else "this notebook has none: measure one, or ngbkit.load() it"
        raise UsageError(f"{reason}; {choices}.")
    return datasets[name]


def _find_frame() -> FrameType | None:
    """Find the frame of the line that called a magic."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _MACHINERY:
        frame = frame.f_back
    return frame


def _read_variables(frame: FrameType) -> dict[str, Any]:
    code = frame.f_code
    return dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars), _UNBOUND) | frame.f_locals


def _insert(variable: re.Match[str], scope: Scope) -> list[str]:
    """List the texts that a variable inserts; a cluster stays a variable, which `find_cluster` replaces."""
    name = variable[1] or variable[2]
    value = (scope.names if scope.remaining is None else scope.remaining).get(name, _UNBOUND)
    if value is _UNBOUND:
        raise UsageError(_describe_missing(variable[0], name, scope))
    return [variable[0]] if _is_cluster(value) else _list_texts(variable[0], name, value)


def _describe_missing(text: str, name: str, scope: Scope) -> str:
    if scope.remaining is not None:
        return (
            f"unknown variable {text}: {scope.function or 'its function'} does not use {name} itself, and the function "
            f"around it has returned. Add {name} to its parameters."
        )
    if name in scope.names:
        return f"unknown variable {text}: {scope.function or 'its function'} assigns {name} later. Assign it before."
    places = f"neither {scope.function} nor the notebook has" if scope.function else "the notebook does not have"
    nearest = find_nearest(name, [key for key in scope.names if not key.startswith("_")])
    advice = f"Did you mean {' or '.join(nearest)}?" if nearest else "Assign it in a line before; $$ is a dollar sign."
    return f"unknown variable {text}: {places} a variable {name}. {advice}"


def _list_texts(text: str, name: str, value: Any) -> list[str]:
    """List the texts that a value inserts: one for a text, a number or a path, and one for each item of a list."""
    array = value if hasattr(value, "tolist") or not hasattr(value, "to_numpy") else value.to_numpy()
    values = array.tolist() if hasattr(array, "tolist") else array  # of NumPy, pandas, xarray and torch
    is_list = isinstance(values, Collection) and not isinstance(values, (str, bytes, Mapping))
    items = values if is_list else [values]
    try:
        texts = [_to_text(item) for item in (sorted(items) if isinstance(items, (set, frozenset)) else items)]
    except TypeError:
        texts = []
    if not texts:
        kind = "None" if value is None else f"a value of type {type(value).__name__}"
        raise UsageError(
            f"invalid variable {text}: got {'an empty list' if is_list and not values else kind}; expected a text, a "
            "number, a path, or a list of these. Assign what the line needs of it to a variable; a network or a "
            f"dataset is named without a sign, as {name}."
        )
    return texts


def _to_text(item: Any) -> str:
    """Write a value as a word; TypeError if it has no such form."""
    if isinstance(item, bool):
        return "true" if item else "false"  # as in the options of a label, which are JSON
    if isinstance(item, str):
        return str.__str__(item)  # of a member of an enum, its value
    return f"{item}".removesuffix(".0") if isinstance(item, numbers.Number) else os.fsdecode(item)


def _is_cluster(value: object) -> bool:
    """Return whether a value is of a class of ipyparallel, or of a class derived from one."""
    return any(kind.__module__.partition(".")[0] == "ipyparallel" for kind in type(value).__mro__)
