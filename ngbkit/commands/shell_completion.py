"""Completes the command line in a shell, by argcomplete: bash, zsh and others run ngbkit for it at each Tab."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from ngbkit.commands.command import Command
from ngbkit.commands.completion import LISTERS, LISTS, Cursor, complete_option, split_braces
from ngbkit.sweep.trials import split_labels

# The metavars and the kind of arguments for which argcomplete lists files.
_FILES = {"FILE", "DIR", "SITE", "NOTEBOOKS", "path"}


def split_words() -> list[str]:
    """Split the line that the shell hands over, up to the cursor; nothing if argcomplete is not installed."""
    try:
        from argcomplete.lexers import split_line
    except ImportError:
        return []
    _, _, _, words, _ = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))
    return words


def complete_line(parser: argparse.ArgumentParser, commands: Mapping[str, Command]) -> None:
    """Print the completions of the line that the shell hands over, and exit; return if argcomplete is not installed."""
    try:
        import argcomplete
    except ImportError:
        return
    words = split_words()[2:]
    (subparsers,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for name, subparser in subparsers.choices.items():
        for declared in commands[name].shell_arguments:
            action = next(action for action in subparser._actions if action.dest == declared.dest)
            if declared.completes in LISTERS and declared.completes != "path":
                action.completer = partial(_complete_value, declared.completes, words)
            elif not {declared.settings.get("metavar"), declared.completes} & _FILES and action.choices is None:
                # argcomplete would list files, and its own completer of nothing hides the options too.
                action.completer = lambda **_context: ()
    argcomplete.autocomplete(parser, always_complete_options="long", exit_method=sys.exit)


def _complete_value(kind: str, words: Sequence[str], *, prefix: str, **_context: object) -> list[str] | dict[str, str]:
    """Complete a value of that kind after the words of a line, as argcomplete calls it."""
    if braces := split_braces(prefix):
        return _complete_option(kind, prefix, *braces)
    first, comma, typed = prefix.rpartition(",") if kind in LISTS else ("", "", prefix)
    values = LISTERS[kind](Cursor(typed=typed, words=words))
    if isinstance(values, dict):  # zsh and fish display the descriptions
        return {value: text for value, text in values.items() if value.startswith(typed)}
    return [f"{first}{comma}{value}" for value in dict.fromkeys(values) if value.startswith(typed)]


def _complete_option(kind: str, prefix: str, before: str, inside: str) -> list[str]:
    """Complete inside the open braces of a compiler or a network, without quotes unless the user has typed some."""
    fragment, texts = complete_option(kind, split_labels(before)[-1], inside)
    start = prefix.removesuffix(fragment) if fragment else prefix
    return [start + (text if '"' in inside else text.replace('"', "")) for text in texts]
