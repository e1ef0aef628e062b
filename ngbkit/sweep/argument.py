"""One argument of a command line, the same in a shell, in a magic, in its completion and in its help."""

from __future__ import annotations

import argparse
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ngbkit.errors import UsageError
from ngbkit.user_text import parse_path

# The kinds of values that are files, or that may be.
_PATHS = ("path", "result", "workload")


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a command.

    Parameters
    ----------
    flags
        As argparse takes them: ``("-c", "--compilers")``, or a bare name for a positional one.
    help
        One line; the same in a shell and in ``%ngbench?``.
    completes
        The kind of values that Tab offers, which `ngbkit.commands.completion` lists; empty for none.
    settings
        Further keywords of ``add_argument``.
    """

    flags: tuple[str, ...]
    help: str
    completes: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def keywords(self) -> dict[str, Any]:
        """The keywords of ``add_argument``."""
        return {"help": self.help, **({"type": _check_file} if self.names_file else {}), **self.settings}

    @property
    def names_file(self) -> bool:
        """True if a value may be the path of a file."""
        return self.completes in _PATHS or "FILE" in str(self.settings.get("metavar"))

    @property
    def dest(self) -> str:
        """The attribute of parsed arguments that holds its value: argparse names it after the first long flag."""
        long = next((flag for flag in self.flags if flag.startswith("--")), self.flags[0])
        return long.lstrip("-").replace("-", "_")

    @property
    def takes_value(self) -> bool:
        """True if a word follows the flag."""
        return self.settings.get("action") != "store_true"


def _check_file(word: str) -> str:
    """Return a word; no pipe, which would block, and no device, which may have no end, also after ``NETWORK=``."""
    for path in (word, word.partition("=")[2]):
        with suppress(OSError, UsageError):
            mode = parse_path(path).stat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise argparse.ArgumentTypeError(f"got {path}, a device or a pipe; expected a file")
    return word


def argument(usage: str, help: str, *, completes: str = "", **settings: Any) -> Argument:
    """Declare an `Argument` by its flags and the name of its value; an option without such a name is a switch.

    A name such as ``list|init`` declares choices, of which the first is the default.

    >>> argument("-b, --batch-size N", "samples in a call (default: 1)", type=int, default=1).flags
    ('-b', '--batch-size')
    """
    words = usage.split(" ")
    count = max(1, sum(word.startswith("-") for word in words))
    metavar = " ".join(words[count:])
    if "|" in metavar:
        choices = tuple(metavar.split("|"))
        settings |= {"choices": choices, "default": choices[0], **({} if usage.startswith("-") else {"nargs": "?"})}
    if metavar:
        settings["metavar"] = metavar
    elif usage.startswith("-") and not settings:
        settings["action"] = "store_true"
    flags = tuple(word.removesuffix(",") for word in words[:count])
    return Argument(flags=flags, help=help, completes=completes, settings=settings)


def to_markdown(table: Iterable[Argument]) -> str:
    """The arguments as a table of a page."""
    rows = ["| argument | |", "| --- | --- |"]
    for declared in table:
        metavar = declared.settings.get("metavar") or "|".join(declared.settings.get("choices", ()))
        metavar = metavar if isinstance(metavar, str) else " ".join(metavar)
        is_option = declared.flags[0].startswith("-")
        words = [*declared.flags[:-1], f"{declared.flags[-1]} {metavar}".strip()] if is_option else [str(metavar)]
        row = f"`{', '.join(words)}` | {declared.help.replace('%%', '%')}"
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row.split(" | ", 1)) + " |")
    return "\n".join(rows) + "\n"
