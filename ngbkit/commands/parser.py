"""The parser of a command's words, in a shell and in the line of a magic."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.sweep.argument import Argument


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are `UsageError`, for the caller to print."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. `{self.prog} --help` says what is valid.")


def build_parser(prog: str, table: Iterable[Argument]) -> Parser:
    """Build a parser of those arguments, without a help option of its own."""
    parser = Parser(prog=prog, add_help=False)
    add_arguments(parser, table)
    return parser


def add_arguments(parser: argparse.ArgumentParser, table: Iterable[Argument]) -> None:
    """Add the arguments of a table to a parser."""
    for declared in table:
        parser.add_argument(*declared.flags, **declared.keywords)


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Parse words; repeatable ones, such as workloads, may be before, between and after the options."""
    args, rest = parser.parse_known_args(words)
    parser = getattr(args, "parser", parser)
    unknown = next((word.partition("=")[0] for word in rest if word.startswith("-")), None)
    if unknown is not None:
        raise UnknownNameError("option", unknown, parser._option_string_actions)
    repeatable = find_repeatable(parser)
    if rest and repeatable is None:
        raise UsageError(f"unexpected argument {rest[0]!r}. `{parser.prog} --help` says what is valid.")
    if rest and repeatable is not None:
        setattr(args, repeatable, [*getattr(args, repeatable), *rest])
    return args


def find_repeatable(parser: argparse.ArgumentParser) -> str | None:
    """Find the positional argument of any number of words; None if there is none."""
    actions: Any = parser._actions
    return next((action.dest for action in actions if action.nargs == "*" and not action.option_strings), None)
