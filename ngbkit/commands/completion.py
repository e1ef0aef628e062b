"""The values that Tab offers for an argument, and for options in braces, in a shell and in a notebook."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from ngbkit import registry
from ngbkit.errors import NgbkitError
from ngbkit.registry import find_version
from ngbkit.sweep.argument import Argument
from ngbkit.sweep.column import Column
from ngbkit.sweep.conversion import parse_workload
from ngbkit.sweep.parsing import restore_quotes
from ngbkit.sweep.records import RETRIABLE
from ngbkit.workloads import files

if TYPE_CHECKING:
    from ngbkit.compilers.base import Option
    from ngbkit.workloads.base import Source


# Of ten thousand runs nobody chooses one from a list.
_MOST_RUNS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The context of a completion."""

    typed: str  # the part of the value before the cursor
    words: Sequence[str]  # of the line before that value
    namespace: Mapping[str, Any] = field(default_factory=dict)  # the user's variables, in a notebook


def select_positionals(table: Sequence[Argument], words: Sequence[str]) -> list[str]:
    """Select the words that are neither a flag nor the value of one."""
    flags = {flag for argument in table if argument.takes_value for flag in argument.flags if flag.startswith("-")}
    pairs = zip(["", *words], words, strict=False)
    return [word for previous, word in pairs if not word.startswith("-") and previous not in flags]


def _list_workloads(cursor: Cursor) -> Iterator[str]:
    for source in registry.load_all(registry.WORKLOADS).values():
        yield from source.complete(cursor.typed)


def _list_compilers(cursor: Cursor) -> Iterator[str]:
    """List the compilers or, after the sign of a release, the releases of one that are installed."""
    names, column = registry.list_names(registry.COMPILERS), Column.read(cursor.typed)
    if column.compiler == cursor.typed:
        yield from names
    elif column.compiler in names:
        from ngbkit.device.releases import list_releases

        compiler = column.load_compiler()
        for release in dict.fromkeys(filter(None, [*list_releases(compiler), find_version(compiler.distribution)])):
            yield replace(column, release=release).label


def _list_devices(_cursor: Cursor) -> Iterator[str]:
    from ngbkit.cluster import devices

    with suppress(NgbkitError):  # the command that uses the devices file reports what is invalid in it
        yield from devices.load()


def _list_factors(cursor: Cursor) -> Iterator[str]:
    """List the factors of the workloads on the line, and of blocks."""
    for word in cursor.words:
        with suppress(NgbkitError):
            yield from (f"{name}=" for name in parse_workload(restore_quotes(word)).takes)
    yield from ("width=", "depth=")


def _list_runs(cursor: Cursor) -> dict[str, str]:
    """List the latest runs with a description of each that the index has: Tab reads no run."""
    from ngbkit.commands.runs import describe_run
    from ngbkit.runs import folders, run_index

    run_ids = (name for name in folders.list_ids() if name.startswith(cursor.typed) and folders.has_metadata(name))
    latest = list(islice(run_ids, _MOST_RUNS))
    summaries = run_index.recall(latest)
    return {run_id: describe_run(summaries[run_id]) if run_id in summaries else "" for run_id in latest}


def _list_cache_keys(cursor: Cursor) -> Iterable[str]:
    """List the keys of a device's cache."""
    from ngbkit.cluster.caches import list_items, locate

    pairs = zip(cursor.words, cursor.words[1:], strict=False)
    device = next((word for flag, word in pairs if flag in ("-d", "--devices")), "cpu")
    with suppress(NgbkitError):
        return [entry.key for entry in list_items(locate(device))]
    return []


def _list_metrics(_cursor: Cursor) -> Iterable[str]:
    from ngbkit.metrics.metric import load_frame_metrics

    return load_frame_metrics()


def _list_figures(_cursor: Cursor) -> Iterable[str]:
    from ngbkit.metrics.tables import list_figures

    return list_figures()


LISTERS: Mapping[str, Callable[[Cursor], Iterable[str]]] = {
    "workload": _list_workloads,
    "compiler": _list_compilers,
    "device": _list_devices,
    "factor": _list_factors,
    "simplifier": lambda _: [*registry.list_names(registry.SIMPLIFIERS), "all"],
    "status": lambda _: list(RETRIABLE),
    "run": _list_runs,
    "result": lambda cursor: {**dict.fromkeys(files.complete(cursor.typed, ".nc"), ""), **_list_runs(cursor)},
    "path": lambda cursor: files.complete(cursor.typed, ".json"),
    "kept": _list_cache_keys,
    "metric": _list_metrics,
    "figure": _list_figures,
}
"""Lists the values of each kind of `Argument.completes`; a mapping has a description of each."""

LISTS = ("compiler", "device", "simplifier", "status")
"""The kinds of values that an argument takes as a list, separated by commas."""

Options = Mapping[str, Sequence[Any]]
"""The values to offer, by the name of an option."""

# The braces before the cursor, if they are not closed: `openvino{"hint":"latency","pre`.
_OPEN = re.compile(r"([\w.@+-]+)\{([^{}]*)$")
_PAIR = re.compile(r'\s*"?(\w+)"?\s*[:=]\s*(?:"[^"]*"|\[[^\]]*\]|[^",\s\[]+)\s*,')
_KEY = re.compile(r'\s*("?\w*)$')
_VALUE = re.compile(r'\s*"?(\w+)"?\s*[:=]\s*("?[^",]*)$')


def split_braces(line: str) -> tuple[str, str] | None:
    """Split a line into all before the open braces at its end, and what is in them; None without such braces."""
    match = _OPEN.search(line)
    return (line[: match.end(1)], match[2]) if match else None


def complete_option(kind: str, name: str, inside: str, rest: str = "") -> tuple[str, list[str]]:
    """Complete an option of a ``"compiler"`` or a ``"workload"`` from what is typed inside the braces after its name.

    `rest` is what follows the cursor. Return the part that the completions replace, and those.

    >>> complete_option("compiler", "openvino", '"hi')
    ('"hi', ['"hint":'])
    """
    with suppress(NgbkitError):
        fragment, values = _complete_name_or_value(
            _OPTION_LISTERS[kind](name) if kind in _OPTION_LISTERS else {}, inside
        )
        # An editor may have closed the quotes already.
        return fragment, [value.rpartition('"')[0] or value if rest.startswith('"') else value for value in values]
    return "", []


def _complete_name_or_value(options: Options, inside: str) -> tuple[str, list[str]]:
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
    options = Column.read(name).load_compiler().list_options()
    return {option: _list_values(declared) for option, declared in options.items()}


def _list_values(option: Option) -> list[object]:
    """List the values of an option: its choices, or its default, and the other truth value beside a truth value."""
    if option.choices:
        return list(option.choices)
    return [option.default, not option.default] if isinstance(option.default, bool) else [option.default]


def _list_workload_arguments(name: str) -> Options:
    """List the arguments of a network, from the first source that knows its name."""
    sources: Mapping[str, Source] = registry.load_all(registry.WORKLOADS)
    examples = next(filter(None, (source.arguments(name) for source in sources.values())), {})
    return {argument: [value] for argument, value in examples.items()}


_OPTION_LISTERS: Mapping[str, Callable[[str], Options]] = {
    "compiler": _list_compiler_options,
    "workload": _list_workload_arguments,
}
