"""The magics: one loop over the records of commands, `ngbkit.commands.command.Command`."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from IPython.core.magic import no_var_expand
from IPython.core.magic_arguments import MagicArgumentParser
from IPython.display import display

from ngbkit import files
from ngbkit.commands.answer import Answer
from ngbkit.commands.arguments import OUT, to_label
from ngbkit.commands.command import Command, Magic, load_magics
from ngbkit.commands.parser import add_arguments, build_parser, find_repeatable, parse
from ngbkit.commands.shell import read_stored
from ngbkit.commands.signals import ignore_interrupts, stop_in_order
from ngbkit.errors import RunInterruptedError, UsageError
from ngbkit.notebook import bound_datasets, modules, variables
from ngbkit.notebook.display import RunDisplay, call_at_end
from ngbkit.runs.progress_display import describe_interrupt, explain_failure, watch
from ngbkit.sweep import parsing

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ngbkit.dataset.storage import Data
    from ngbkit.runs import Run
    from ngbkit.workloads.base import Workload


def register(shell: InteractiveShell) -> None:
    """Register the magics with a shell."""
    manager: Any = shell.magics_manager
    for command in load_magics().values():
        if magic := command.magic:
            kind = "line_cell" if magic.takes_cell else "line"
            manager.register_function(_build_function(shell, command, magic), kind, magic.name)


def unregister(shell: InteractiveShell) -> None:
    """Remove the magics from a shell."""
    for kind in shell.magics_manager.magics.values():
        for name in load_magics():
            kind.pop(name, None)


def _build_function(shell: InteractiveShell, command: Command, magic: Magic) -> Callable[..., Any]:
    """Build the function of a magic; its docstring, which ``?`` displays, is the help of its parser."""
    parser: Any = MagicArgumentParser(  # type: ignore[no-untyped-call]  # IPython's own
        magic.name, description=f"{command.help}\n\n{magic.details.strip()}"
    )
    add_arguments(parser, command.magic_arguments)
    help_text = parser.format_help()

    def call(line: str, cell: str | None = None) -> Any:
        words = parsing.split_words(line)
        if {"-h", "--help"} & {*words}:
            print(help_text)  # noqa: T201  as a shell does
            return None
        notebook = Notebook(shell, _parse(shell, command, magic, words), cell)
        try:
            with stop_in_order([signal.SIGINT]):
                answer = command.run(notebook)
        except KeyboardInterrupt as interrupt:
            if isinstance(interrupt, RunInterruptedError):
                raise
            raise RunInterruptedError(str(interrupt) or "stopped.", "magic") from None
        finally:
            notebook.display.clear()
        if answer is not None and answer.previous is not None:
            display(answer.previous)  # type: ignore[no-untyped-call]  # IPython's own
            answer = replace(answer, previous=None)
        value = answer if answer is None or answer.value is None else answer.value
        if answer is not None and answer.binds and notebook.args.out:
            shell.user_ns[notebook.args.out] = value
        if value is not None and variables.is_dropped():
            display(value)  # type: ignore[no-untyped-call]  # IPython's own
        return value

    def call_shortly(line: str, cell: str | None = None) -> Any:
        with shorten_errors():
            return call(line, cell)

    call_shortly.__name__, call_shortly.__doc__ = magic.name, help_text
    no_var_expand(call_shortly)  # IPython would expand the braces of compiler options; `_parse` does not
    return call_shortly


@contextmanager
def shorten_errors() -> Iterator[None]:
    """Raise an error that every front end displays and stores as its message alone, in the words of magics."""
    try:
        yield
    except Exception as error:
        explained = files.explain(error)
        if explained is None:
            raise
        explained.place = "magic"
        raise explained from None


@dataclass(slots=True)
class Notebook:
    """A call of a magic: a `ngbkit.commands.command.Call`."""

    shell: InteractiveShell
    args: argparse.Namespace
    cell: str | None
    display: RunDisplay = field(init=False)

    def __post_init__(self) -> None:
        self.display = RunDisplay(self.shell)

    @property
    def report(self) -> Callable[[str], None]:
        """Display a line of progress."""
        return self.display.write

    @property
    def _names(self) -> Mapping[str, Any]:
        """The variables in the scope of the line."""
        return variables.find_scope(self.shell).names

    def list_networks(self, words: Sequence[str]) -> list[str | Workload]:
        """List the networks of a line and of its cell; files replace the variables that options of values name."""
        args, names = self.args, self._names
        networks = modules.to_workloads(words, names, args)
        needs_files = self.cell is not None or any(isinstance(network, str) for network in networks)
        args.inputs = modules.store_inputs(args.inputs, names) if needs_files else None
        for option in ("calibrate", "evaluate"):
            setattr(args, option, modules.store_inputs(getattr(args, option, None), names))
        if self.cell is None:
            return networks
        from ngbkit.workloads import cell

        label = {} if args.name is None else {"name": args.name}
        factors = list(parsing.parse_factors(args.factor or ()))
        # The line of the magic is the first of the cell: the blank line keeps the line numbers of tracebacks right.
        return [*networks, *cell.from_source(f"\n{self.cell}", factors=factors, **label)]

    def read(self, source: str | None) -> Data:
        """Read the dataset in a variable; of another word the dataset of a file, or of a run."""
        if source is None or source in self._names or source.isidentifier():
            return variables.find_dataset(source, self._names)
        return read_stored(source)

    def wait(self, run: Run, then: str = "") -> Data:
        """Wait for a run, display its progress, and return its dataset."""
        try:
            watch(run, self.display.show)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(describe_interrupt(run, then=then)) from None
        raise_failure(run)
        return run.dataset()

    def measure(self, start: Callable[[], Run], notices: Sequence[str] = ()) -> Answer | None:
        """Wait for a run, display it and bind its dataset; with --background bind that later and return the run."""
        run, out = start(), self.args.out
        if self.args.background:
            call_at_end(run, lambda run: self._bind(run))
            return Answer(value=run)
        self.display.notices = () if run.is_replay else notices
        try:
            watch(run, self.display.show)
        except KeyboardInterrupt:
            with ignore_interrupts():
                self.display.show_results(run, self._bind(run))
            raise RunInterruptedError(describe_interrupt(run, out), "magic") from None
        data = self._bind(run)
        is_value = not out and run.state == "finished" and explain_failure(run) is None
        # The display of a dataset has the same tables.
        self.display.show_results(run, data, with_tables=not is_value)
        beside = to_label(vars(self.args).get("beside") or "")
        if (out or beside) and (changes := bound_datasets.bind(self.shell, out or "", data, beside)) is not None:
            display(changes)  # type: ignore[no-untyped-call]  # IPython's own
        raise_failure(run)
        return Answer(value=data) if is_value else None

    def _bind(self, run: Run) -> Data:
        data = run.dataset()
        if self.args.out is not None:
            self.shell.user_ns[self.args.out] = data
        return data


def raise_failure(run: Run) -> None:
    """Raise the error of a run, or the reason why none of its trials gave a result, with the user's own traceback."""
    if error := run.error or explain_failure(run):
        raise error


def _parse(shell: InteractiveShell, command: Command, magic: Magic, words: Sequence[str]) -> argparse.Namespace:
    """Parse the words of a line, with the variables that they name."""
    scope = variables.find_scope(shell)
    # The errors of the parser that IPython makes are IPython's, which no front end stores.
    parser = build_parser(f"%{magic.name}", command.magic_arguments)
    args = parse(parser, [variables.expand(word, scope) for word in words])
    if repeatable := find_repeatable(parser):
        setattr(args, repeatable, variables.split_values(getattr(args, repeatable)))
    if isinstance(cluster := getattr(args, "cluster", None), str):
        args.cluster = variables.find_cluster(cluster, scope.names)
    out = args.out if OUT in command.magic_arguments else None
    if out is not None and scope.function:
        raise UsageError(
            f"invalid -o {out}: got it in {scope.function}, whose variables no magic can bind. Assign the value "
            f"instead: {out} = %{magic.name} …, without -o."
        )
    if out is not None and not out.isidentifier():
        raise UsageError(
            f"invalid variable name -o {out!r}; expected a name such as ds. "
            "`ngbkit.save(ds, 'out.nc')` writes a dataset to a file."
        )
    return args
