"""The runs there were, as rows, and why trials of them failed."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Iterable

from ngbkit.commands.arguments import Argument, to_words
from ngbkit.commands.listing.answer import Answer
from ngbkit.commands.listing.layout import Row
from ngbkit.errors import UsageError

#: The words of the verb that is about runs.
RUNS: tuple[Argument, ...] = (
    Argument(
        flags=("--failures",),
        help="why trials of this run failed, with the last lines that each compiler printed: its id, or how it begins",
        completes="run",
        settings={"metavar": "ID"},
    ),
    Argument(
        flags=("--lines",),
        help="how many of those lines (default: 12)",
        settings={"metavar": "N", "type": int, "default": 12},
    ),
)
# Trials of one reason that are named one by one.
_MOST_NAMED = 4


def see_to_runs(asked: argparse.Namespace) -> Answer:
    """Carry out the verb that is about runs, with the words `RUNS`.

    Raises
    ------
    RunNotFoundError, UsageError
        There is no such run; or a number of lines that does not fit.
    """
    if asked.failures is None:
        rows = list_runs()
        return Answer(json=rows, rows=rows, empty="There is no run yet: `ngbkit run` and %ngbench start one.")
    rows = list_failures(asked.failures)
    written = describe_failures(rows, asked.lines)
    return Answer(json=rows, rows=written, empty="No trial of this run failed.", sheets=True)


def list_runs() -> list[Row]:
    """Every run, the latest first: ``run``, ``created``, ``trials``, ``statuses``, ``workloads``, ``options``."""
    from ngbkit import runs

    return [
        {
            "run": summary.id,
            "created": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(summary.created)),
            "trials": len(summary.sweep),
            "statuses": dict(summary.statuses),
            "workloads": [workload.name for workload in summary.sweep.workloads],
            "options": shlex.join(to_words(summary.sweep)),
        }
        for summary in runs.summaries()
    ]


def list_failures(run_id: str) -> list[Row]:
    """Every failed trial of a run: what it was, its ``status``, ``stage`` and ``error``, and all of its ``detail``.

    ``detail`` is the traceback, and what the compiler printed last.

    Raises
    ------
    RunNotFoundError
        No run, or more than one, has an id that begins so.
    """
    from ngbkit import runs
    from ngbkit.sweep.journal import Journal
    from ngbkit.sweep.records import Failure

    folder = runs.find(run_id)
    trials = {trial.id: trial for trial in runs.read_sweep(folder).trials()}
    with Journal(folder / "journal.sqlite", writable=False) as journal:
        failed = [record for record in journal.records() if isinstance(record, Failure)]
    return [
        {
            "run": folder.name,
            "trial": str(trials[record.trial_id]),
            "workload": trials[record.trial_id].workload,
            "factors": dict(trials[record.trial_id].factors),
            "compiler": trials[record.trial_id].compiler,
            "device": trials[record.trial_id].device,
            "batch_size": trials[record.trial_id].batch_size,
            "status": record.status,
            "stage": record.stage,
            "error": record.error,
            "detail": record.detail,
        }
        for record in failed
        if record.trial_id in trials
    ]


def describe_failures(rows: Iterable[Row], lines: int) -> list[Row]:
    """The same for people, a sheet each: trials that failed alike together, with the last `lines` of the detail.

    Raises
    ------
    UsageError
        `lines` is not positive.
    """
    if lines < 1:
        raise UsageError(f"--lines {lines} does not fit; valid is an integer of at least 1.")
    alike: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        alike.setdefault((row["compiler"], row["status"], row["stage"], row["error"]), []).append(row)
    return [
        {
            "trials": _write_trials([row["trial"] for row in together]),
            "failed in": stage if status == "failed" else f"{stage} ({status})",
            "error": error,
            "said last": "\n".join(together[-1]["detail"].rstrip().splitlines()[-lines:]),
        }
        for (_, status, stage, error), together in alike.items()
    ]


def _write_trials(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return "; ".join(names[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")
