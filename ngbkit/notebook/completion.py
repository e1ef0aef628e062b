"""What Tab offers on the line of a magic: its options, and for each what could be its value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ngbkit import registry
from ngbkit.commands import listing
from ngbkit.commands.arguments import Argument
from ngbkit.errors import NgbkitError
from ngbkit.notebook import modules
from ngbkit.notebook.magics import TABLES
from ngbkit.sweep.grid import parse_workload
from ngbkit.sweep.parsing import restore_quotes
from ngbkit.sweep.records import OPEN, STATUSES
from ngbkit.workloads import files

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext, SimpleMatcherResult
    from IPython.core.interactiveshell import InteractiveShell

# `%ngbench …`, `%%ngbench …`, `ds = %ngbench …`
_MAGIC = re.compile(r"^\s*(?:[\w.\[\], ]+=\s*)?%%?(ng\w+)[ \t]+(.*)$")


def register(shell: InteractiveShell) -> None:
    """Have the completer of a shell ask this module too."""
    from IPython.core.completer import context_matcher

    unregister(shell)

    @context_matcher(identifier="ngbkit", priority=200)  # type: ignore[untyped-decorator]  # IPython's own
    def match(context: CompletionContext) -> SimpleMatcherResult:
        return _match(context, shell)

    shell.Completer.custom_matchers.append(match)


def unregister(shell: InteractiveShell) -> None:
    """Have it ask this module no more."""
    matchers = shell.Completer.custom_matchers
    matchers[:] = [matcher for matcher in matchers if getattr(matcher, "matcher_identifier", "") != "ngbkit"]


def complete(magic: str, line: str, namespace: Mapping[str, Any]) -> tuple[str, list[str]]:
    """What could stand at the end of a magic's line.

    Parameters
    ----------
    magic
        ``"ngbench"``.
    line
        What was typed after it, up to the cursor.
    namespace
        The user's variables.

    Returns
    -------
    tuple of str and list of str
        The part of the line that the completions replace, and the completions.
    """
    *before, word = re.split(r"\s+", line.lstrip())
    if word.startswith("-") and "=" not in word:
        return word, sorted(flag for argument in TABLES[magic] for flag in argument.flags if flag.startswith(word))
    argument, typed = _asked_for(TABLES[magic], before, word)
    if argument is None:
        return typed, []
    if argument.completes in _LISTS:
        typed = typed.rpartition(",")[2]
    place = _Place(typed=typed, before=before, own=_own_words(TABLES[magic], before), namespace=namespace)
    found = argument.settings.get("choices") or _VALUES[argument.completes](place)
    return typed, list(dict.fromkeys(value for value in found if value.startswith(typed)))


def _asked_for(table: Sequence[Argument], before: Sequence[str], word: str) -> tuple[Argument | None, str]:
    """The argument that a word is a value of, where one can be offered, and what there is of the value."""
    flag, equals, value = word.partition("=")
    if not (equals and flag.startswith("--")):
        flag, value = (before[-1] if before else ""), word
    for argument in table:
        if flag in argument.flags and _takes_value(argument):
            return (argument if argument.completes or "choices" in argument.settings else None), value
    # Words without a flag; the last of those arguments takes all that are left.
    own = [argument for argument in table if not argument.flags[0].startswith("-")]
    return (own[min(len(_own_words(table, before)), len(own) - 1)] if own else None), value


def _own_words(table: Sequence[Argument], before: Sequence[str]) -> list[str]:
    """Those of the words that are neither a flag nor the value of one."""
    taking = {flag for argument in table if _takes_value(argument) for flag in argument.flags if flag.startswith("-")}
    pairs = zip(["", *before], before, strict=False)
    return [word for last, word in pairs if not word.startswith("-") and last not in taking]


def _takes_value(argument: Argument) -> bool:
    return argument.settings.get("action") != "store_true"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where Tab was pressed.

    What was typed of the value, the words before it, those among them that belong to no flag, and the user's variables.
    """

    typed: str
    before: Sequence[str]
    own: Sequence[str]
    namespace: Mapping[str, Any]


def _workloads(place: _Place) -> Iterator[str]:
    yield from modules.find(place.namespace)
    for source in registry.load_all(registry.WORKLOADS).values():
        yield from source.complete(place.typed)


def _compilers(_place: _Place) -> Iterable[str]:
    return registry.names(registry.COMPILERS)


def _devices(_place: _Place) -> Iterator[str]:
    from ngbkit.cluster import devices

    with suppress(NgbkitError):  # a file that is not valid is told about where it is used
        yield from devices.load()


def _factors(place: _Place) -> Iterator[str]:
    """The factors of the workloads on the line, and those of blocks."""
    for word in place.before:
        with suppress(NgbkitError):
            yield from (f"{name}=" for name in parse_workload(restore_quotes(word)).takes)
    yield from ("width=", "depth=")


def _statuses(_place: _Place) -> Iterable[str]:
    return [status for status in STATUSES if status not in OPEN]


def _runs(_place: _Place) -> Iterable[str]:
    return [row["run"] for row in listing.list_runs()]


def _kept(place: _Place) -> Iterable[str]:
    """The keys of what a device keeps; where results of tuning are carried the file comes first."""
    if len(place.own) == 1 and place.own[0] in ("export", "import"):
        return [*files.complete(place.typed, ".tar"), *files.complete(place.typed, ".gz")]
    from ngbkit.cluster.caches import contents

    flags = [*place.before, ""]
    device = next((flags[at + 1] for at, word in enumerate(flags[:-1]) if word in ("-d", "--device")), "cpu")
    with suppress(NgbkitError):
        return [kept.key for kept in contents.look(contents.locate(device))]
    return []


def _variables(place: _Place) -> Iterable[str]:
    return sorted(name for name in place.namespace if not name.startswith("_"))


def _paths(place: _Place) -> Iterable[str]:
    return files.complete(place.typed, ".json")


# What each kind of `Argument.completes` offers.
_VALUES: Mapping[str, Callable[[_Place], Iterable[str]]] = {
    "workload": _workloads,
    "compiler": _compilers,
    "device": _devices,
    "factor": _factors,
    "status": _statuses,
    "run": _runs,
    "variable": _variables,
    "path": _paths,
    "kept": _kept,
}
_LISTS = ("compiler", "device", "status")


def _match(context: CompletionContext, shell: InteractiveShell) -> SimpleMatcherResult:
    from IPython.core.completer import SimpleCompletion

    found = _MAGIC.match(context.line_with_cursor[: context.cursor_position])
    if found is None or found[1] not in TABLES:
        return {"completions": []}
    typed, values = complete(found[1], found[2], shell.user_ns)
    # One word: JupyterLab takes the type apart at blanks.
    completions = [SimpleCompletion(text=value, type="option") for value in values]
    return {"completions": completions, "matched_fragment": typed, "suppress": True, "ordered": True}
