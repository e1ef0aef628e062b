"""``ngbkit runs`` and ``%ngruns``: list runs, and why trials failed; the magic also resumes a run."""

from __future__ import annotations

import shlex
import time
import warnings
from collections.abc import Iterable

from ngbkit import validation
from ngbkit.commands import arguments
from ngbkit.commands.answer import Answer
from ngbkit.commands.command import Call, Command, Magic
from ngbkit.errors import NgbkitError, NgbkitWarning, UsageError
from ngbkit.sweep.argument import argument
from ngbkit.tabular import Row

# Trials with one reason that are named one by one.
_MOST_NAMED = 4


def answer_runs(call: Call) -> Answer | None:
    """List runs or the failures of one; in a notebook, resume one where the line says so."""
    args = vars(call.args)
    run_id = args.get("resume") or args.get("settle")
    if run_id is None and (args.get("retry") or args.get("budget")):
        raise UsageError("--retry and --budget say how to resume a run. Name it: %ngruns --resume ID.")
    if run_id is not None:
        return _resume(call, run_id)
    if args["failures"] is not None:
        rows = list_failures(args["failures"])
        described = describe_failures(rows, args["lines"])
        return Answer(json=rows, rows=described, empty="No trial of this run failed.", form="sheets")
    rows = list_runs()
    narrow = [{**row, "created": row["created"].rpartition(" ")[0]} for row in rows]
    return Answer(json=rows, rows=narrow, empty="There is no run yet: `ngbkit run` starts one.")


def _resume(call: Call, run_id: str) -> Answer | None:
    args = call.args
    if not run_id:
        raise UsageError("--settle measures a run again. Name it: %ngruns --settle ID.")
    if args.failures is not None:
        raise UsageError("--resume measures and --failures only reports. Give one of them.")
    settling = arguments.to_settling(args, run_id)
    if settling is not None and not settling.trial_ids:
        return Answer(text=settling.description)
    notices = [] if settling is None else [settling.description]
    return call.measure(lambda: arguments.to_resumed_run(run_id, args, settling), notices)


DETAILS = """
Resuming measures only the missing trials.

::

    %ngruns --resume 20300101
    %ngruns --settle 20300101
    %ngruns --failures 20300101
"""
COMMAND = Command(
    name="runs",
    help="List earlier runs, or say why trials of one failed.",
    arguments=(
        argument(
            "--failures ID",
            "why trials of the run with this id failed, with the last lines that each compiler printed",
            completes="run",
        ),
        argument("--lines N", "number of those lines (default: 12)", type=int, default=12),
    ),
    run=answer_runs,
    magic=Magic(
        name="ngruns",
        arguments=(*(arguments.RUN, *arguments.RESUME, arguments.SETTLE_RUN, arguments.OUT, arguments.BACKGROUND),),
        details=DETAILS,
    ),
    in_python="ngbkit.runs.summaries()",
)


def list_runs() -> list[Row]:
    """Every run, the latest first: ``run``, ``created``, ``trials``, ``statuses``, ``workloads``, ``options``, and
    ``other_work_percent`` of all cores by device, where that was much.

    A run that cannot be read is left out with a warning.
    """
    from ngbkit import runs

    errors: list[NgbkitError] = []
    rows: list[Row] = [
        {
            "run": summary.id,
            "created": time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(summary.created)),
            "trials": len(summary.sweep),
            "statuses": dict(summary.statuses),
            "workloads": [workload.name for workload in summary.sweep.workloads],
            "other_work_percent": {label: round(share) for label, share in summary.other_work_percent.items()},
            "options": shlex.join(summary.sweep.to_words()),
        }
        for summary in runs.summaries(errors.append)
    ]
    for error in errors:
        warnings.warn(f"left out a run: {error}", NgbkitWarning, stacklevel=2)
    return rows


def list_failures(run_id: str) -> list[Row]:
    """Every failed trial of a run, with its ``status``, ``stage``, ``error`` and whole ``detail``.

    ``detail`` is the traceback, and the last lines that the compiler printed.
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
    """The failures for people, trials that failed alike together, with the last `lines` of their detail."""
    validation.check("--lines", validation.PositiveCount, lines)
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["compiler"], row["status"], row["stage"], row["error"]), []).append(row)
    return [
        {
            "trials": _join_trials([row["trial"] for row in group]),
            "failed in": stage if status == "failed" else f"{stage} ({status})",
            "error": error,
            "said last": "\n".join(group[-1]["detail"].rstrip().splitlines()[-lines:]),
        }
        for (_, status, stage, error), group in groups.items()
    ]


def _join_trials(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return "; ".join(names[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")
