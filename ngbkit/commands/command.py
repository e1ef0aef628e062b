"""A command: one record, from which the shell, the magic, Tab, the page of options and proposals of errors follow.

A package adds a command by an entry point of its own::

    [project.entry-points."ngbkit.commands"]
    mine = "my_package.command:COMMAND"      # a Command
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from ngbkit import registry
from ngbkit.commands.answer import Answer
from ngbkit.errors import MissingDependencyError, NgbkitError, NgbkitWarning
from ngbkit.sweep.argument import Argument, argument

if TYPE_CHECKING:
    from ngbkit.dataset.storage import Data
    from ngbkit.runs import Run
    from ngbkit.workloads.base import Workload

JSON = argument("--json", "print JSON, for programs")
QUIET = argument("--quiet", "show no progress")
OVERWRITE = argument("--overwrite", "replace the file if it exists")
CLIENT_SIDE = ("xarray", "pandas", "h5netcdf", "h5py", "rich")
"""The packages that display and save results."""


class Call(Protocol):
    """One call of a command, in a shell or in a notebook."""

    @property
    def args(self) -> argparse.Namespace:
        """The parsed arguments."""

    @property
    def report(self) -> Callable[[str], None] | None:
        """Displays a line of progress; None where no progress is wanted."""

    def list_networks(self, words: Sequence[str]) -> list[str | Workload]:
        """List the networks that words or the cell name; replace inputs that are variables by files."""

    def read(self, source: str) -> Data:
        """Read the dataset that a word names: a file, a run, or a variable of a notebook."""

    def wait(self, run: Run, then: str = "") -> Data:
        """Wait for a run, display its progress, and return its dataset; `then` names the next step after Ctrl-C."""

    def measure(self, start: Callable[[], Run], notices: Sequence[str] = ()) -> Answer | None:
        """Start a run after the notices on it, wait for it, and answer with its results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Magic:
    """The magic of a command."""

    name: str  # without the percent sign
    arguments: tuple[Argument, ...] = ()  # further ones, which a shell has not
    details: str = ""  # paragraphs and examples below the command's help, for ``?``
    takes_cell: bool = False  # register it as the magic of a whole cell too


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of the shell, of a notebook, or of both."""

    name: str  # the word after ``ngbkit``; the same as that of its entry point
    help: str  # one sentence on what it does
    arguments: tuple[Argument, ...]  # in both places
    # Carries out a `Call`, and returns its answer; None where a notebook has displayed everything already.
    run: Callable[[Call], Answer | None]
    shell: tuple[Argument, ...] | None = (JSON,)  # further ones, which a magic has not; None if a shell has it not
    magic: Magic | None = None  # None for a command that a notebook has not
    needs: tuple[str, ...] = ()  # packages of the client side without which it refuses to begin
    # For proposals of errors, the line of a magic that does the same, by default the magic of the command, and calls of
    # Python by the option that begins a line, or "" for a line without; ``{}`` in a call is an argument.
    in_magic: str = ""
    in_python: Mapping[str, str] = field(default_factory=dict)

    @property
    def shell_arguments(self) -> tuple[Argument, ...]:
        """All arguments in a shell, positional ones first."""
        return _sort((*self.arguments, *(self.shell or ())))

    @property
    def magic_arguments(self) -> tuple[Argument, ...]:
        """All arguments of the magic, positional ones first."""
        return _sort((*self.arguments, *(self.magic.arguments if self.magic else ())))

    @property
    def typed_in_magic(self) -> str:
        """The beginning of the line that does the same in a notebook; empty where no magic does."""
        return self.in_magic or (f"%{self.magic.name}" if self.magic else "")


def load_commands(names: Iterable[str] | None = None) -> dict[str, Command]:
    """Load the commands of the shell with those names, or all."""
    commands = {name: command for name, command in _load(names) if command.shell is not None}
    if not commands and names is None:
        raise NgbkitError("ngbkit has no commands: its code is newer than its installation. Install it again.")
    return commands


def require(packages: Iterable[str]) -> None:
    """Raise the error of a package of the client side that is not installed, before anything is measured."""
    for package in packages:
        if find_spec(package) is None:
            raise MissingDependencyError(package, "notebook")


def load_magics() -> dict[str, Command]:
    """Load the commands of a notebook, by the name of their magic and in its order."""
    commands = {command.magic.name: command for _, command in _load(None) if command.magic is not None}
    return dict(sorted(commands.items()))


def _load(names: Iterable[str] | None) -> Iterator[tuple[str, Command]]:
    """Load records in the order of their names, and warn about a broken plugin."""
    for name, record in sorted(registry.load_all(registry.COMMANDS, names).items()):
        if isinstance(record, Command):
            yield name, record
        else:
            message = f"invalid plugin {name!r} of {registry.COMMANDS}: got {record!r}; expected a Command."
            warnings.warn(message, NgbkitWarning, stacklevel=2)


def _sort(table: Iterable[Argument]) -> tuple[Argument, ...]:
    return tuple(sorted(table, key=lambda declared: declared.flags[0].startswith("-")))
