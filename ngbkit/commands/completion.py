"""The values that Tab offers for an argument, in a shell and in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ngbkit import registry
from ngbkit.commands import listing
from ngbkit.errors import NgbkitError
from ngbkit.sweep.argument import Argument
from ngbkit.sweep.conversion import parse_workload
from ngbkit.sweep.parsing import restore_quotes
from ngbkit.sweep.records import RETRIABLE
from ngbkit.workloads import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The context of a completion."""

    typed: str  # the part of the value before the cursor
    words: Sequence[str]  # of the line before that value
    positionals: Sequence[str]  # the words that are neither a flag nor the value of one
    namespace: Mapping[str, Any] = field(default_factory=dict)  # the user's variables, in a notebook


def select_positionals(table: Sequence[Argument], words: Sequence[str]) -> list[str]:
    """Select the words that are neither a flag nor the value of one."""
    flags = {flag for argument in table if argument.takes_value for flag in argument.flags if flag.startswith("-")}
    pairs = zip(["", *words], words, strict=False)
    return [word for previous, word in pairs if not word.startswith("-") and previous not in flags]


def _list_workloads(cursor: Cursor) -> Iterator[str]:
    for source in registry.load_all(registry.WORKLOADS).values():
        yield from source.complete(cursor.typed)


def _list_compilers(_cursor: Cursor) -> Iterable[str]:
    return registry.list_names(registry.COMPILERS)


def _list_devices(_cursor: Cursor) -> Iterator[str]:
    from ngbkit.cluster import devices

    with suppress(NgbkitError):  # the command that uses the devices file reports what is invalid in it
        yield from devices.load()


def _list_factors(cursor: Cursor) -> Iterator[str]:
    """List the factors of the workloads on the line, and those of blocks."""
    for word in cursor.words:
        with suppress(NgbkitError):
            yield from (f"{name}=" for name in parse_workload(restore_quotes(word)).takes)
    yield from ("width=", "depth=")


def _list_simplifiers(_cursor: Cursor) -> Iterable[str]:
    return [*registry.list_names(registry.SIMPLIFIERS), "all"]


def _list_statuses(_cursor: Cursor) -> Iterable[str]:
    return list(RETRIABLE)


def _list_runs(_cursor: Cursor) -> Iterable[str]:
    return [row["run"] for row in listing.list_runs()]


def _list_cache_keys(cursor: Cursor) -> Iterable[str]:
    """List the keys of a device's cache; export and import take an archive first."""
    if len(cursor.positionals) == 1 and cursor.positionals[0] in ("export", "import"):
        return [*files.complete(cursor.typed, ".tar"), *files.complete(cursor.typed, ".gz")]
    from ngbkit.cluster.caches import contents

    pairs = zip(cursor.words, cursor.words[1:], strict=False)
    device = next((word for flag, word in pairs if flag in ("-d", "--device")), "cpu")
    with suppress(NgbkitError):
        return [entry.key for entry in contents.list_items(contents.locate(device))]
    return []


def _list_paths(cursor: Cursor) -> Iterable[str]:
    return files.complete(cursor.typed, ".json")


def _list_results(cursor: Cursor) -> Iterable[str]:
    return [*files.complete(cursor.typed, ".nc"), *_list_runs(cursor)]


LISTERS: Mapping[str, Callable[[Cursor], Iterable[str]]] = {
    "workload": _list_workloads,
    "compiler": _list_compilers,
    "device": _list_devices,
    "factor": _list_factors,
    "simplifier": _list_simplifiers,
    "status": _list_statuses,
    "run": _list_runs,
    "result": _list_results,
    "path": _list_paths,
    "kept": _list_cache_keys,
}
"""Lists the values of each kind of `Argument.completes`."""

LISTS = ("compiler", "device", "simplifier", "status")
"""The kinds of which an argument takes several, separated by commas."""
