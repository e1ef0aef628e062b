"""Tab completion for the line of a magic: its options, and values for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.core.interactiveshell import InteractiveShell

from ngbkit.commands.command import load_magics
from ngbkit.commands.completion import LISTERS, LISTS, Cursor, complete_option, select_positionals, split_braces
from ngbkit.notebook import modules
from ngbkit.notebook.variables import list_datasets
from ngbkit.sweep.argument import Argument
from ngbkit.sweep.trials import split_labels

# `%ngbench …`, `%%ngbench …`, `ds = %ngbench …`
_MAGIC = re.compile(r"^\s*(?:[\w.\[\], ]+=\s*)?%%?(ng\w+)[ \t]+(.*)$")

# Between words: blanks in braces are a part of one.
_BLANKS = re.compile(r"\s+(?![^{}]*\})")


def register(shell: InteractiveShell) -> None:
    """Add the completions of magics to the completer of a shell."""
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
    if parts := split_braces(line):
        return _complete_option(magic, *parts, rest)
    table = load_magics()[magic].magic_arguments
    *words, word = _BLANKS.split(line.lstrip())
    if word.startswith("-") and "=" not in word:
        return word, sorted(flag for argument in table for flag in argument.flags if flag.startswith(word))
    argument, typed = _find_argument(table, words, word)
    if argument is None:
        return typed, []
    if argument.completes in LISTS:
        typed = typed.rpartition(",")[2]
    cursor = Cursor(typed=typed, words=words, namespace=namespace)
    values = argument.settings.get("choices") or _LISTERS[argument.completes](cursor)
    return typed, list(dict.fromkeys(value for value in values if value.startswith(typed)))


def _complete_option(magic: str, line: str, inside: str, rest: str) -> tuple[str, list[str]]:
    """Complete inside the braces at the end of a line, if they belong to a compiler or a network."""
    *words, word = _BLANKS.split(line.lstrip())
    argument, typed = _find_argument(load_magics()[magic].magic_arguments, words, word)
    if argument is None:
        return "", []
    return complete_option(argument.completes, split_labels(typed)[-1].lstrip("'"), inside, rest)


def _find_argument(table: Sequence[Argument], words: Sequence[str], word: str) -> tuple[Argument | None, str]:
    """Find the argument whose value a word is (None without completions), and the typed part of that value."""
    flag, equals, value = word.partition("=")
    if not (equals and flag.startswith("--")):
        flag, value = (words[-1] if words else ""), word
    for argument in table:
        if flag in argument.flags and argument.takes_value:
            return (argument if argument.completes or "choices" in argument.settings else None), value
    # The last positional argument takes all further words.
    positionals = [argument for argument in table if not argument.flags[0].startswith("-")]
    index = min(len(select_positionals(table, words)), len(positionals) - 1)
    return (positionals[index] if positionals else None), value


# Lists the values of each kind of `Argument.completes`, those of the notebook first.
_LISTERS: Mapping[str, Callable[[Cursor], Iterable[str]]] = {
    **LISTERS,
    "workload": lambda cursor: [*modules.find(cursor.namespace), *LISTERS["workload"](cursor)],
    "variable": lambda cursor: sorted(name for name in cursor.namespace if not name.startswith("_")),
    "result": lambda cursor: [*list_datasets(cursor.namespace), *LISTERS["result"](cursor)],
}


def _match(context: CompletionContext, shell: InteractiveShell) -> SimpleMatcherResult:
    match = _MAGIC.match(context.line_with_cursor[: context.cursor_position])
    if match is None or match[1] not in load_magics():
        return {"completions": []}
    rest = context.line_with_cursor[context.cursor_position :]
    typed, values = complete(match[1], match[2], shell.user_ns, rest)
    # The type is one word: JupyterLab splits it at blanks.
    completions = [SimpleCompletion(text=value, type="option") for value in values]
    return {"completions": completions, "matched_fragment": typed, "suppress": True, "ordered": True}
