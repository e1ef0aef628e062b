"""A command in a shell: its networks and datasets, the run that it waits for, and the results that it prints."""

from __future__ import annotations

import argparse
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from ngbkit.commands.answer import FAILED, OK, Answer
from ngbkit.commands.signals import ignore_interrupts
from ngbkit.errors import NgbkitError, UsageError, strip_controls
from ngbkit.report import Report
from ngbkit.runs.progress_display import describe_interrupt, describe_seconds, explain_failure, open_display, watch
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.json_values import to_json_value
from ngbkit.sweep.parsing import restore_quotes
from ngbkit.sweep.records import MEASURED
from ngbkit.user_text import format_count, parse_path

if TYPE_CHECKING:
    from pathlib import Path

    from ngbkit.dataset.storage import Data
    from ngbkit.runs import Run
    from ngbkit.workloads.base import Workload

MOST_ROWS = 100
"""The rows of a table of results."""


@dataclass(frozen=True, slots=True)
class ShellCall:
    """A call of a command in a shell: a `ngbkit.commands.command.Call`."""

    args: argparse.Namespace

    @property
    def report(self) -> Callable[[str], None] | None:
        """Print a line of progress, unless --quiet suppresses it."""
        return None if getattr(self.args, "quiet", False) else print_progress

    def list_networks(self, words: Sequence[str]) -> list[str | Workload]:
        """List the networks that words name."""
        return list(map(restore_quotes, words))

    def read(self, source: str) -> Data:
        """Read the dataset of a file, or of a run."""
        return read_stored(source)

    def wait(self, run: Run, then: str = "") -> Data:
        """Wait for a run and return its dataset; the KeyboardInterrupt of Ctrl-C says how to resume it."""
        try:
            with open_display(self.report is None) as show:
                watch(run, show)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(describe_interrupt(run, then=then)) from None
        if run.error is not None:
            remark = "; its measurements are kept" if run.progress.done else ""
            print_progress(f"ngbkit: run {run.id} failed{remark}.")
            raise run.error
        return run.dataset()

    def measure(self, start: Callable[[], Run], notices: Sequence[str] = ()) -> Answer:
        """Wait for a run, and write its results, also if it was stopped or failed."""
        for notice in notices if self.report else ():
            print_progress(f"ngbkit: {notice}")
        run = start()
        try:
            data = self.wait(run)
            self.save(run)
        except (KeyboardInterrupt, NgbkitError) as error:
            with ignore_interrupts():
                self.save(run)
            raise error if str(error) else KeyboardInterrupt(describe_interrupt(run)) from None
        self.warn(run)
        if self.report and (seconds := describe_seconds(run)):
            print_progress(f"ngbkit: the run took {seconds}.")
        line = f"run {run.id}" + (f", in {self.args.out}" if self.args.out else "")
        return answer_data(data, self.args, line, source=self.args.out, code=find_exit_code(run))

    def warn(self, run: Run) -> None:
        """Name the command that says why trials of a run failed."""
        for warning in point_to_failures(run) if self.report else ():
            print_progress(f"ngbkit: {warning}")

    def save(self, run: Run) -> None:
        """Write the dataset of a run to the file of -o, if there is one."""
        if self.args.out is None:
            return
        from ngbkit.dataset import storage

        with pointing_to(run):
            storage.save(run.dataset(), self.args.out, overwrite=self.args.overwrite)


def read_stored(source: str) -> Data:
    """Read the dataset of a file, or of a run."""
    from ngbkit import runs
    from ngbkit.dataset import schema, storage

    is_file = source.endswith(".nc") or parse_path(source).is_file()
    return schema.require_run(storage.load(source), source) if is_file else runs.load_dataset(runs.find(source))


@contextmanager
def pointing_to(run: Run) -> Iterator[None]:
    """Add to an error of writing a file where the measurements still are."""
    try:
        yield
    except NgbkitError as error:
        raise NgbkitError(
            f"{error} Nothing is lost, run {run.id} holds it: `ngbkit show {run.id}` prints it, "
            f"`ngbkit runs --resume {run.id} -o other.nc` writes it."
        ) from error


def find_exit_code(run: Run) -> int:
    """The exit code of a run; if no trial gave a result, print why."""
    if any(map(run.progress.statuses.get, MEASURED)):
        return OK
    error = explain_failure(run)
    lines = [] if error is None else error.traceback.rstrip().splitlines()
    for line in lines:
        print_progress(line)
    return print_error(str(error or "no trial gave a result."), FAILED)


def point_to_failures(run: Run) -> list[str]:
    """Name the command that shows why trials failed, if any did."""
    count = len(run.failures())
    return [f"{count} of its trials gave no result: `ngbkit runs --failures {run.id}` says why"] if count else []


def check_target(args: argparse.Namespace) -> None:
    """Refuse, before anything is measured, a file that could not be written after it."""
    if args.out is None:
        return
    target = parse_path(args.out)
    if target.is_dir():
        raise UsageError(f"{target} is a folder. Name a file in it, such as {target / 'out.nc'}.")
    if target.exists() and not args.overwrite:
        raise UsageError(f"{target} exists. Choose another name, or replace it with --overwrite.")


def choose_figures(data: Data) -> list[str]:
    """The figures to print of a run: speed-ups, if any trial can be compared, throughput, and the cost of precision."""
    from ngbkit.dataset.assembly import nodes
    from ngbkit.dataset.long_form import expand_labels

    costs = [name for name in ("accuracy", "agreement") if any(name in node for node in nodes(data).values())]
    rest = ["throughput", *costs[:1]]
    for node in nodes(data).values():
        has_result = expand_labels(node)["status"].isin(MEASURED)
        if BASELINE in has_result["compiler"]:
            others = has_result.drop_sel(compiler=BASELINE)
            if bool((others & has_result.sel(compiler=BASELINE)).any()):
                return ["speedup", *rest]
    return rest


def answer_data(
    data: Data, args: argparse.Namespace, *lines: str, source: str | Path | None = None, code: int = OK
) -> Answer:
    """Answer with the verdict, the first table and lines, and with --all all tables; or with every trial as JSON."""
    from ngbkit.metrics import frames
    from ngbkit.metrics.tables import build_report

    if args.json:
        return Answer(json=to_json_value(frames.to_dataframe(data).to_dict(orient="records")), code=code)
    figure = getattr(args, "figure", None)
    figures = [figure] if figure else [*choose_figures(data), *_list_scaling(data)]
    beside = _compare_beside(data, args)
    if getattr(args, "all", False):
        report = build_report(data, figures)
    else:
        report = build_report(data, figures[:1], MOST_ROWS)
        details = len(report.more.notes) if report.more else 0
        rest = [*figures[1:], *([format_count(details, "more line", "more lines")] if details else [])]
        rest += ["all rows"] if any(note.startswith("…") for note in report.frames[0].notes) else []
        command = shlex.join(["ngbkit", "show", str(source or data.attrs.get("run_id") or "FILE"), "--all"])
        report = replace(report, hint=f"More: `{command}` prints {', '.join(rest)}." if rest else "")
    tables = [*report.frames, *beside.frames]
    notes = [*beside.sentences, *beside.notes, *lines]
    return Answer(report=replace(report, frames=tables, notes=notes), code=code)


def _list_scaling(data: Data) -> list[str]:
    """List the metrics of larger batches, if there are any over batch size 1."""
    from ngbkit.dataset.assembly import nodes
    from ngbkit.dataset.long_form import list_labels

    sizes = [list_labels(node, "batch_size") for node in nodes(data).values()]
    if not any(1 in each and len(each) > 1 for each in sizes):
        return []
    return ["ase", *(["bsr"] if "speedup" in choose_figures(data) else [])]


def _compare_beside(data: Data, args: argparse.Namespace) -> Report:
    """Compare the networks of --beside with the new ones, if there are any."""
    source = vars(args).get("beside")
    if not source:
        return Report()
    from ngbkit.commands.arguments import to_label
    from ngbkit.metrics.pairing import compare_sides

    return compare_sides(data, to_label(source), to_label(args.out) if args.out else "this run").to_report()


def print_progress(line: str) -> None:
    """Print a line of progress; a full or closed stderr ends no measurement."""
    with suppress(OSError):
        print(strip_controls(line), file=sys.stderr, flush=True)


@contextmanager
def show_warnings() -> Iterator[None]:
    """Print warnings of ngbkit within the block as errors are, without the line of code that gave them."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def print_warning(message: Warning | str, category: type[Warning], *place: Any) -> None:
            if issubclass(category, UserWarning):
                print_progress(f"ngbkit: warning: {message}")
            else:
                show(message, category, *place)

        warnings.showwarning = cast("Any", print_warning)
        yield


def print_error(message: str, code: int) -> int:
    """Print an error; return the exit code."""
    print_progress(f"ngbkit: {message}")
    return code
