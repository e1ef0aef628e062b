"""A run in a shell: wait for it, write and print its results, and return an exit code."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from ngbkit.commands.signals import ignore_interrupts
from ngbkit.errors import NgbkitError, UsageError
from ngbkit.runs.progress_display import describe_interrupt, explain_failure, open_display, watch
from ngbkit.sweep.json_values import to_json_value
from ngbkit.sweep.records import MEASURED
from ngbkit.sweep.trials import BASELINE
from ngbkit.user_text import parse_path

if TYPE_CHECKING:
    from ngbkit.dataset.storage import Data
    from ngbkit.runs import Run

OK, FAILED, INVALID, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141


def report_run(run: Run, args: argparse.Namespace) -> int:
    """Wait for a run; write and print its results, also if it was stopped or failed; return the exit code."""
    try:
        data = finish(run, args.quiet)
        _write(run, args)
    except (KeyboardInterrupt, NgbkitError) as error:
        with ignore_interrupts():
            _write(run, args)
        raise error if str(error) else KeyboardInterrupt(describe_interrupt(run)) from None
    for warning in [] if args.quiet else point_to_failures(run):
        print_progress(f"ngbkit: {warning}")
    print_data(data, args.json, choose_figures(data))
    if not args.json:
        print(f"run {run.id}" + (f", in {args.out}" if args.out else ""))
    return find_exit_code(run)


def finish(run: Run, quiet: bool, then: str = "") -> Data:
    """Wait for a run, with a line of progress, and return its dataset.

    Where Ctrl-C stops it, the message of the KeyboardInterrupt says how to resume it, and what to do then.
    """
    try:
        with open_display(quiet) as show:
            watch(run, show)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(describe_interrupt(run, then=then)) from None
    if run.error is not None:
        remark = "; its measurements are kept" if run.progress.done else ""
        print_progress(f"ngbkit: run {run.id} failed{remark}.")
        raise run.error
    return run.dataset()


def _write(run: Run, args: argparse.Namespace) -> None:
    if args.out is None:
        return
    from ngbkit.dataset import storage

    with pointing_to(run):
        storage.save(run.dataset(), args.out, overwrite=args.overwrite)


@contextmanager
def pointing_to(run: Run) -> Iterator[None]:
    """Add to an error of writing a file where the measurements still are."""
    try:
        yield
    except NgbkitError as error:
        raise NgbkitError(
            f"{error} Nothing is lost, run {run.id} holds it: `ngbkit show {run.id}` prints it, "
            f"`ngbkit resume {run.id} -o other.nc` writes it."
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


def read_data(source: str) -> Data:
    """The dataset of a file, or of a run."""
    from ngbkit import runs
    from ngbkit.dataset import schema, storage

    is_file = source.endswith(".nc") or parse_path(source).is_file()
    return schema.require_run(storage.load(source), source) if is_file else runs.load_dataset(runs.find(source))


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
    """The figures to print of a run: speed-ups, if any trial can be compared with the baseline, and then throughput."""
    from ngbkit.dataset.assembly import nodes
    from ngbkit.dataset.long_form import expand_labels

    for node in nodes(data).values():
        has_result = expand_labels(node)["status"].isin(MEASURED)
        if BASELINE in has_result["compiler"]:
            others = has_result.drop_sel(compiler=BASELINE)
            if bool((others & has_result.sel(compiler=BASELINE)).any()):
                return ["speedup", "throughput"]
    return ["throughput"]


def print_data(data: Data, as_json: bool, figures: Sequence[str]) -> None:
    """Print a table for each of the figures and the conclusions, or every trial as JSON."""
    from ngbkit.metrics import tables
    from ngbkit.metrics.conclusions import conclude

    if as_json:
        rows = tables.build_trial_table(data).to_dict(orient="records")
        print(json.dumps(to_json_value(rows), indent=2))
        return
    parts = [tables.to_text(tables.compact(data, figure)) for figure in figures]
    print("\n\n".join([*parts, *filter(None, ["\n".join(conclude(data))])]))


def print_progress(line: str) -> None:
    """Print a line of progress; a full or closed stderr ends no measurement."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


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
