"""What becomes of a run in a shell: it is waited for, written, printed, and told by an exit code."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ngbkit.errors import NgbkitError, UsageError
from ngbkit.runs.progress_display import remarks, shown, watch
from ngbkit.sweep.to_json import plain

if TYPE_CHECKING:
    from ngbkit.dataset.storage import Data
    from ngbkit.runs import Run

OK, FAILED, INVALID, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141


def carry_out(run: Run, asked: argparse.Namespace) -> int:
    """Wait for a run; write and print what it measured, also where it was stopped or failed."""
    try:
        data = finish(run, asked.quiet)
    except (KeyboardInterrupt, NgbkitError):
        _write(run, asked)
        raise
    _write(run, asked)
    for remark in [] if asked.quiet else [*remarks(run), *_failed(run)]:
        print(f"ngbkit: {remark}", file=sys.stderr)
    print_data(data, asked.json, ["throughput"])
    if not asked.json:
        print(f"run {run.id}" + (f", in {asked.out}" if asked.out else ""))
    return exit_code(run)


def finish(run: Run, quiet: bool, then: str = "") -> Data:
    """Wait for the end of a run, showing how far it is; its dataset. `then` is what else to say where it is stopped.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C stopped it; the message says how to go on.
    NgbkitError
        It failed.
    """
    try:
        with shown(quiet) as show:
            watch(run, show)
    except KeyboardInterrupt:
        now = run.progress
        raise KeyboardInterrupt(
            f"stopped after {now.done} of {now.total} trials, which are kept. Go on with: ngbkit resume {run.id}"
            f"{then.format(run=run.id)}"
        ) from None
    if run.error is not None:
        print(f"ngbkit: run {run.id} failed; what it measured is kept.", file=sys.stderr)
        raise run.error
    return run.dataset()


def _write(run: Run, asked: argparse.Namespace) -> None:
    if asked.out is None:
        return
    from ngbkit.dataset import storage

    with naming(run):
        storage.save(run.dataset(), asked.out, overwrite=asked.overwrite)


@contextmanager
def naming(run: Run) -> Iterator[None]:
    """Say where the measurements are when the file that was to hold them cannot be written."""
    try:
        yield
    except NgbkitError as error:
        raise NgbkitError(
            f"{error} Nothing is lost, run {run.id} holds it: `ngbkit show {run.id}` prints it, "
            f"`ngbkit resume {run.id} -o other.nc` writes it."
        ) from error


def exit_code(run: Run) -> int:
    """What the process is to exit with; where no trial gave a result it also says why."""
    now = run.progress
    if now.statuses.get("ok"):
        return OK
    reasons = {failure.error: failure.status for failure in run.failures()}
    told = "; ".join(f"{status}: {error}" for error, status in list(reasons.items())[:3])
    return complain(f"no trial gave a result. {told}", FAILED)


def _failed(run: Run) -> list[str]:
    """Where to read why trials gave no result, if any did not."""
    count = len(run.failures())
    return [f"{count} of its trials gave no result: `ngbkit runs --failures {run.id}` says why"] if count else []


def check_target(asked: argparse.Namespace) -> None:
    """Refuse, before anything is measured, a file that could not be written after it."""
    if asked.out is None:
        return
    target = Path(asked.out)
    if target.is_dir():
        raise UsageError(f"{target} is a folder; name a file in it, such as {target / 'out.nc'}.")
    if target.exists() and not asked.overwrite:
        raise UsageError(f"{target} exists. Choose another name, or replace it with --overwrite.")


def print_data(data: Data, as_json: bool, figures: Sequence[str]) -> None:
    """Print a table for each of the figures, or every trial as JSON."""
    from ngbkit.metrics import tables

    if as_json:
        rows = tables.trial_table(data).to_dict(orient="records")
        print(json.dumps(plain(rows), indent=2))
        return
    print("\n\n".join(tables.to_text(tables.compact(data, figure)) for figure in figures))


def tell(line: str) -> None:
    """A line on what is being done."""
    print(line, file=sys.stderr, flush=True)


def complain(message: str, code: int) -> int:
    """Say what is wrong; the exit code."""
    print(f"ngbkit: {message}", file=sys.stderr)
    return code
