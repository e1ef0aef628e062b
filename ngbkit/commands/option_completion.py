"""Completion inside the braces of a compiler or a network: the names of its options, and the values of each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ngbkit import registry
from ngbkit.errors import NgbkitError

if TYPE_CHECKING:
    from ngbkit.compilers.base import Compiler, Option
    from ngbkit.workloads.base import Source

Options = Mapping[str, Sequence[Any]]
"""The values to offer, by the name of an option."""

# The braces before the cursor, if they are not closed: `openvino{"hint":"latency","pre`.
_OPEN = re.compile(r"([\w.-]+)\{([^{}]*)$")
_PAIR = re.compile(r'\s*"?(\w+)"?\s*[:=]\s*(?:"[^"]*"|\[[^\]]*\]|[^",\s\[]+)\s*,')
_KEY = re.compile(r'\s*("?\w*)$')
_VALUE = re.compile(r'\s*"?(\w+)"?\s*[:=]\s*("?[^",]*)$')


def split_braces(line: str) -> tuple[str, str] | None:
    """Split a line into all before the open braces at its end, and what is in them; None without such braces."""
    match = _OPEN.search(line)
    return (line[: match.end(1)], match[2]) if match else None


def complete(kind: str, name: str, inside: str, rest: str = "") -> tuple[str, list[str]]:
    """Complete an option of a ``"compiler"`` or a ``"workload"`` from what is typed inside the braces after its name.

    `rest` is what follows the cursor. Return the part that the completions replace, and those.

    >>> complete("compiler", "openvino", '"hi')
    ('"hi', ['"hint":'])
    """
    with suppress(NgbkitError):
        fragment, values = _complete(_LISTERS[kind](name) if kind in _LISTERS else {}, inside)
        # An editor may have closed the quotes already.
        return fragment, [_drop_quote(value) if rest.startswith('"') else value for value in values]
    return "", []


def _complete(options: Options, inside: str) -> tuple[str, list[str]]:
    names = set()
    while pair := _PAIR.match(inside):
        names.add(pair[1])
        inside = inside[pair.end() :]
    if key := _KEY.match(inside):
        typed = key[1].lstrip('"')
        return key[1], [f'"{name}":' for name in options if name.startswith(typed) and name not in names]
    value = _VALUE.match(inside)
    if value is None or value[1] not in options:
        return "", []
    typed = value[2].lstrip('"')
    texts = [json.dumps(choice, separators=(",", ":")) for choice in options[value[1]]]
    return value[2], [text for text in texts if text.lstrip('"').startswith(typed)]


def _list_compiler_options(name: str) -> Options:
    compiler: Compiler = registry.load(registry.COMPILERS, name)
    return {option: _list_values(declared) for option, declared in compiler.options.items()}


def _list_values(option: Option) -> list[object]:
    """List the values of an option: its choices, or its default, and the other truth value beside a truth value."""
    if option.choices:
        return list(option.choices)
    return [option.default, not option.default] if isinstance(option.default, bool) else [option.default]


def _list_workload_arguments(name: str) -> Options:
    """List the arguments of a network, those of the first source that knows its name."""
    sources: Mapping[str, Source] = registry.load_all(registry.WORKLOADS)
    examples = next(filter(None, (source.arguments(name) for source in sources.values())), {})
    return {argument: [value] for argument, value in examples.items()}


_LISTERS: Mapping[str, Callable[[str], Options]] = {
    "compiler": _list_compiler_options,
    "workload": _list_workload_arguments,
}


def _drop_quote(text: str) -> str:
    return text[: text.rindex('"')] if '"' in text else text
