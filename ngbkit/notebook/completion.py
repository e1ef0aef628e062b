"""Tab completion for the line of a magic: its options, and values for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ngbkit import registry
from ngbkit.commands import listing
from ngbkit.errors import NgbkitError
from ngbkit.notebook import modules, option_completion
from ngbkit.notebook.tables import TABLES
from ngbkit.sweep.argument import Argument
from ngbkit.sweep.conversion import parse_workload
from ngbkit.sweep.parsing import restore_quotes
from ngbkit.sweep.records import RETRIABLE
from ngbkit.sweep.trials import split_labels
from ngbkit.workloads import files

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext, SimpleMatcherResult
    from IPython.core.interactiveshell import InteractiveShell

# `%ngbench …`, `%%ngbench …`, `ds = %ngbench …`
_MAGIC = re.compile(r"^\s*(?:[\w.\[\], ]+=\s*)?%%?(ng\w+)[ \t]+(.*)$")

_BLANKS = re.compile(r"\s+(?![^{}]*\})")


def register(shell: InteractiveShell) -> None:
    """Add the completions of magics to the completer of a shell."""
    from IPython.core.completer import context_matcher

    unregister(shell)

    @context_matcher(identifier="ngbkit", priority=200)  # type: ignore[untyped-decorator]  # IPython's own
    def complete_magic(context: CompletionContext) -> SimpleMatcherResult:
        return _match(context, shell)

    shell.Completer.custom_matchers.append(complete_magic)


def unregister(shell: InteractiveShell) -> None:
    """Remove the completions of magics from the completer of a shell."""
    matchers = shell.Completer.custom_matchers
    matchers[:] = [matcher for matcher in matchers if getattr(matcher, "matcher_identifier", "") != "ngbkit"]


def complete(magic: str, line: str, namespace: Mapping[str, Any], rest: str = "") -> tuple[str, list[str]]:
    """Complete the line of a magic up to the cursor; return the part of it that the completions replace, and those.

    `rest` is the text after the cursor.

    >>> complete("ngbench", "resnet18 -c identity,openv", {})
    ('openv', ['openvino'])
    """
    if parts := option_completion.split_braces(line):
        return _complete_option(magic, *parts, rest)
    *words, word = _split_blanks(line)
    if word.startswith("-") and "=" not in word:
        return word, sorted(flag for argument in TABLES[magic] for flag in argument.flags if flag.startswith(word))
    argument, typed = _find_argument(TABLES[magic], words, word)
    if argument is None:
        return typed, []
    if argument.completes in _LISTS:
        typed = typed.rpartition(",")[2]
    cursor = _Cursor(
        typed=typed, words=words, positionals=_select_positionals(TABLES[magic], words), namespace=namespace
    )
    values = argument.settings.get("choices") or _LISTERS[argument.completes](cursor)
    return typed, list(dict.fromkeys(value for value in values if value.startswith(typed)))


def _split_blanks(line: str) -> list[str]:
    """Split a line, the last word of which may be empty, at blanks that are not in braces."""
    return _BLANKS.split(line.lstrip())


def _complete_option(magic: str, line: str, inside: str, rest: str) -> tuple[str, list[str]]:
    """Complete inside the braces at the end of a line, if they are those of a compiler."""
    *words, word = _split_blanks(line)
    argument, typed = _find_argument(TABLES[magic], words, word)
    if argument is None or argument.completes != "compiler":
        return "", []
    return option_completion.complete(split_labels(typed)[-1].lstrip("'"), inside, rest)


def _find_argument(table: Sequence[Argument], words: Sequence[str], word: str) -> tuple[Argument | None, str]:
    """Find the argument whose value a word is (None without completions), and the typed part of that value."""
    flag, equals, value = word.partition("=")
    if not (equals and flag.startswith("--")):
        flag, value = (words[-1] if words else ""), word
    for argument in table:
        if flag in argument.flags and _takes_value(argument):
            return (argument if argument.completes or "choices" in argument.settings else None), value
    # The last positional argument takes all further words.
    positionals = [argument for argument in table if not argument.flags[0].startswith("-")]
    index = min(len(_select_positionals(table, words)), len(positionals) - 1)
    return (positionals[index] if positionals else None), value


def _select_positionals(table: Sequence[Argument], words: Sequence[str]) -> list[str]:
    """Select the words that are neither a flag nor the value of one."""
    flags = {flag for argument in table if _takes_value(argument) for flag in argument.flags if flag.startswith("-")}
    pairs = zip(["", *words], words, strict=False)
    return [word for previous, word in pairs if not word.startswith("-") and previous not in flags]


def _takes_value(argument: Argument) -> bool:
    return argument.settings.get("action") != "store_true"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cursor:
    """The context of a completion."""

    typed: str  # the part of the value before the cursor
    words: Sequence[str]  # of the line before that value
    positionals: Sequence[str]  # the words that are neither a flag nor the value of one
    namespace: Mapping[str, Any]  # the user's variables


def _list_workloads(cursor: _Cursor) -> Iterator[str]:
    yield from modules.find(cursor.namespace)
    for source in registry.load_all(registry.WORKLOADS).values():
        yield from source.complete(cursor.typed)


def _list_compilers(_cursor: _Cursor) -> Iterable[str]:
    return registry.list_names(registry.COMPILERS)


def _list_devices(_cursor: _Cursor) -> Iterator[str]:
    from ngbkit.cluster import devices

    with suppress(NgbkitError):  # the command that uses the devices file reports what is invalid in it
        yield from devices.load()


def _list_factors(cursor: _Cursor) -> Iterator[str]:
    """List the factors of the workloads on the line, and those of blocks."""
    for word in cursor.words:
        with suppress(NgbkitError):
            yield from (f"{name}=" for name in parse_workload(restore_quotes(word)).takes)
    yield from ("width=", "depth=")


def _list_statuses(_cursor: _Cursor) -> Iterable[str]:
    return list(RETRIABLE)


def _list_runs(_cursor: _Cursor) -> Iterable[str]:
    return [row["run"] for row in listing.list_runs()]


def _list_cache_keys(cursor: _Cursor) -> Iterable[str]:
    """List the keys of a device's cache; export and import take an archive first."""
    if len(cursor.positionals) == 1 and cursor.positionals[0] in ("export", "import"):
        return [*files.complete(cursor.typed, ".tar"), *files.complete(cursor.typed, ".gz")]
    from ngbkit.cluster.caches import contents

    pairs = zip(cursor.words, cursor.words[1:], strict=False)
    device = next((word for flag, word in pairs if flag in ("-d", "--device")), "cpu")
    with suppress(NgbkitError):
        return [entry.key for entry in contents.list_items(contents.locate(device))]
    return []


def _list_variables(cursor: _Cursor) -> Iterable[str]:
    return sorted(name for name in cursor.namespace if not name.startswith("_"))


def _list_paths(cursor: _Cursor) -> Iterable[str]:
    return files.complete(cursor.typed, ".json")


# Lists the values of each kind of `Argument.completes`.
_LISTERS: Mapping[str, Callable[[_Cursor], Iterable[str]]] = {
    "workload": _list_workloads,
    "compiler": _list_compilers,
    "device": _list_devices,
    "factor": _list_factors,
    "status": _list_statuses,
    "run": _list_runs,
    "variable": _list_variables,
    "path": _list_paths,
    "kept": _list_cache_keys,
}
_LISTS = ("compiler", "device", "status")


def _match(context: CompletionContext, shell: InteractiveShell) -> SimpleMatcherResult:
    from IPython.core.completer import SimpleCompletion

    match = _MAGIC.match(context.line_with_cursor[: context.cursor_position])
    if match is None or match[1] not in TABLES:
        return {"completions": []}
    rest = context.line_with_cursor[context.cursor_position :]
    typed, values = complete(match[1], match[2], shell.user_ns, rest)
    # The type is one word: JupyterLab splits it at blanks.
    completions = [SimpleCompletion(text=value, type="option") for value in values]
    return {"completions": completions, "matched_fragment": typed, "suppress": True, "ordered": True}
