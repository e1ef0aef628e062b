"""``ngbkit runs`` and ``%ngruns``: list, resume, note and delete runs, and why trials failed."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from ngbkit import api
from ngbkit.commands import arguments
from ngbkit.commands.answer import Answer
from ngbkit.commands.command import CLIENT_SIDE, Call, Command, Magic, require
from ngbkit.errors import NgbkitError, NgbkitWarning, UsageError
from ngbkit.report import Report
from ngbkit.sweep import parsing
from ngbkit.sweep.argument import argument
from ngbkit.tabular import Hinted, Row
from ngbkit.user_text import format_age, format_size, join_names

if TYPE_CHECKING:
    from ngbkit.runs import Run
    from ngbkit.runs.summary import Summary

# Trials with one reason that are named one by one.
_MOST_NAMED = 4
# Runs that are listed by default, and lines of a failure.
_LISTED, _LINES = 20, 12
# An earlier run of the same notebook is looked for among so many more.
_WINDOW = 200
_STATES = {"interrupted": "its process ended"}
_MAX_REASON = 80
_STEPS = (
    "`ngbkit show ID` opens a run, `ngbkit compare ID ID` compares two, `ngbkit runs --resume ID` measures what is "
    "missing, `ngbkit runs --delete ID` deletes one."
)


def answer_runs(call: Call) -> Answer | None:
    """List runs or the failures of one, resume, note or delete runs; in a notebook, also open one."""
    args = vars(call.args)
    run_id = args["resume"] or args["settle"]
    names = ("retry", "budget") if args.get("open") else ("retry", "budget", "out")
    if run_id is None and (option := next(filter(args.get, names), None)):
        raise UsageError(f"--{option} belongs to a run that is resumed. Name it: `ngbkit runs --resume ID`.")
    if run_id == "":
        raise UsageError("--settle measures a run again. Name it: `ngbkit runs --settle ID`.")
    if run_id is not None:
        if args["failures"] is not None:
            raise UsageError("--resume measures and --failures only reports. Give one of them.")
        return _resume(call, run_id)
    if args.get("open"):
        return _open(args["open"])
    if args["note"]:
        return _note(*args["note"])
    if args["delete"]:
        return _delete(args["delete"])
    if args["failures"] is not None:
        rows = list_failures(args["failures"])
        return Answer.of_rows(describe_failures(rows), "No trial of this run failed.", json=rows, form="sheets")
    return _list(args)


def _resume(call: Call, run_id: str) -> Answer | None:
    """Resume a run as a call says; where nothing would settle it, answer with that."""
    require(CLIENT_SIDE)
    from ngbkit import runs
    from ngbkit.runs.folders import read_sweep

    args, folder, settling = call.args, runs.find(run_id), None
    if args.settle is not None:
        if args.retry or args.budget:
            raise UsageError(
                f"--settle and {'--retry' if args.retry else '--budget'} measure different trials. Give one of them, "
                "then the other."
            )
        settling = runs.plan_settling(folder)
        if not settling.trial_ids:
            return Answer(json=[], report=Report(sentences=[settling.description]))

    def start() -> Run:
        return api.resume(
            run_id,
            budget=args.budget,
            predictor=args.predictor,
            earlier=args.earlier,
            retry=parsing.parse_statuses(args.retry),
            settling=settling,
            engines=arguments.to_engines(args.cluster, read_sweep(folder).devices),
        )

    return call.measure(start, [] if settling is None else [settling.description])


def _list(args: dict[str, Any]) -> Answer:
    """List the latest runs for people, and all of them for programs unless a number is given."""
    from ngbkit.runs.folders import list_ids

    rows = list_runs(None if args["all"] or args.get("json") else _LISTED)
    others = len(list_ids()) - len(rows)
    more = [f"{others} earlier runs are not listed: `ngbkit runs --all` lists all."] if others > 0 and rows else []
    return Answer.of_rows(
        map(_describe, rows),
        "There is no run yet: `ngbkit run` starts one.",
        json=rows,
        notes=[*_note_interrupted(rows), *more, *([_STEPS] if rows else [])],
    )


def _note_interrupted(rows: Sequence[Row]) -> list[str]:
    """Return a note on the latest run if its process was killed, which could say nothing itself."""
    missing = rows[0]["statuses"].get("pending", 0) if rows and rows[0]["state"] in _STATES else 0
    if not missing:
        return []
    run_id = rows[0]["run"]
    return [
        f"The process of run {run_id} ended without a word, as one that is killed for lack of memory: {missing} of "
        f"{rows[0]['trials']} trials are missing, and none that was measured is lost. "
        f"`ngbkit runs --resume {run_id}` measures the rest."
    ]


def _open(run_id: str) -> Answer:
    """Answer with the dataset of a run, as far as it is measured."""
    from ngbkit import runs

    return Answer(value=runs.load_dataset(runs.find(run_id)), binds=True)


def _note(run_id: str, *words: str) -> Answer:
    """Replace the note of a run; without words, remove it."""
    from ngbkit import runs
    from ngbkit.runs.run_context import RunContext, check_note

    folder, note = runs.find(run_id), check_note(" ".join(words))
    replace(RunContext.load(folder), note=note).save(folder)
    text = f"run {folder.name}: {note}" if note else f"run {folder.name} has no note now."
    return Answer(json={"run": folder.name, "note": note}, report=Report(sentences=[text]))


def _delete(run_ids: Sequence[str]) -> Answer:
    """Delete runs, and answer with what is gone."""
    from ngbkit.runs.deletion import delete

    deletion = delete(run_ids)
    files = "1 file" if len(deletion.artifacts) == 1 else f"{len(deletion.artifacts)} files"
    others = [f"Deleted {files} of networks that no other run has."] if deletion.artifacts else []
    return Answer(
        json={"runs": list(deletion.runs), "artifacts": list(deletion.artifacts)},
        report=Report(sentences=[f"Deleted run {', '.join(deletion.runs)}.", *others]),
    )


DETAILS = """
The latest runs, each with what changed since the one before it in the same notebook. Opening measures nothing;
resuming measures only the missing trials.

::

    %ngruns
    ds = %ngruns --open 20300101
    %ngruns --resume 20300101
    %ngruns --settle 20300101
    %ngruns --failures
    %ngruns --note 20300101 wider blocks, half as many
    %ngruns --delete 20300101 20300102
"""
COMMAND = Command(
    name="runs",
    help="List earlier runs, resume, note or delete one, or say why trials of one failed.",
    arguments=(
        argument(
            "--resume ID",
            "go on with this run, its id or the beginning of it: only what is missing is measured",
            completes="run",
        ),
        argument(
            "--retry STATUSES",
            "measure trials of these statuses again, such as timeout,crashed; inconclusive for groups that other work "
            "contended",
            action="append",
            completes="status",
        ),
        *(*arguments.BUDGET, arguments.CLUSTER),
        argument(
            "--settle ID",
            "measure again, side by side and in as many waves of new processes as it takes, the networks and compilers "
            "of which none is the fastest for sure; of this run, or that of --resume",
            nargs="?",
            const="",
            completes="run",
        ),
        argument("--all", f"list all runs, and not only the latest {_LISTED}; --json lists all"),
        argument(
            "--note", "replace the note of this run by a text", nargs="+", metavar=("ID", "TEXT"), completes="run"
        ),
        argument(
            "--delete IDS",
            "delete these runs for good, with the files that no other run needs",
            nargs="+",
            completes="run",
        ),
        argument(
            "--failures ID",
            f"why trials of the run with this id, or of the last one, failed, with the last {_LINES} lines of each "
            "compiler; --json has all",
            nargs="?",
            const="",
            completes="run",
        ),
    ),
    run=answer_runs,
    shell=arguments.OUTCOME,
    magic=Magic(
        name="ngruns",
        arguments=(
            argument("--open ID", "open this run as far as it is measured: its dataset", completes="run"),
            *(arguments.OUT, arguments.BACKGROUND),
        ),
        details=DETAILS,
    ),
    in_python={"": "ngbkit.runs.summaries()", "--resume": "ngbkit.resume('{}')"},
)


def list_runs(count: int | None = None) -> list[Row]:
    """The latest runs, or all: ``run``, ``created``, ``note``, ``notebook``, ``cell``, ``changes`` since the run before
    it in the notebook, ``state``, ``error``, ``trials``, ``statuses``, ``workloads``, ``other_work_percent`` of all
    cores by device, where that was much, ``options`` and ``bytes``.

    A run that cannot be read is left out with a warning.
    """
    from ngbkit import runs

    errors: list[NgbkitError] = []
    latest = list(islice(runs.summaries(errors.append), None if count is None else min(count + _WINDOW, sys.maxsize)))
    rows = [_to_row(summary, previous) for summary, previous in _pair(latest)][:count]
    for error in errors:
        warnings.warn(f"left out a run: {error}", NgbkitWarning, stacklevel=2)
    return rows


def describe_run(summary: Summary) -> str:
    """A run in a few words, beside its id: its note or its place, its age, its end and its trials."""
    row = _describe(_to_row(summary, None))
    return ", ".join([row["note"] or row["from"], row["when"], row["ended"], row["trials"]])


def _pair(latest: Sequence[Summary]) -> Iterator[tuple[Summary, Summary | None]]:
    """Pair each of the latest runs with the run before it in the same notebook."""
    followers: dict[str, Summary] = {}
    previous: dict[str, Summary] = {}
    for summary in latest:
        if follower := followers.get(summary.context.notebook):
            previous[follower.id] = summary
        followers[summary.context.notebook] = summary
    return ((summary, previous.get(summary.id)) for summary in latest)


def _to_row(summary: Summary, previous: Summary | None) -> Row:
    from ngbkit.runs.summary import list_changes

    return {
        "run": summary.id,
        "created": time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(summary.created)),
        "age_s": round(time.time() - summary.created, 1),
        "note": summary.context.note,
        "notebook": summary.context.notebook,
        "cell": summary.context.cell,
        "place": summary.context.place,
        "changes": None if previous is None else list_changes(previous, summary),
        "state": summary.state,
        "error": summary.error,
        "trials": summary.trials,
        "statuses": dict(summary.statuses),
        "workloads": list(summary.networks),
        "other_work_percent": {label: round(share) for label, share in summary.other_work_percent.items()},
        "options": summary.options,
        "bytes": summary.bytes,
    }


def _describe(row: Row) -> Row:
    """A row of `list_runs` for people, where an age, a difference and a size replace what they are of."""
    reason = f": {row['error'][:_MAX_REASON]}" if row["error"] else ""
    full = f"{', '.join(row['workloads'])} {row['options']}"
    changes = full if row["changes"] is None else ", ".join(row["changes"]) or "nothing"
    return {
        "run": row["run"],
        "when": Hinted(format_age(row["age_s"]), row["created"]),
        "note": row["note"],
        "from": row["place"] or "shell",
        "what changed": Hinted(changes, full),
        "ended": f"{_STATES.get(row['state'], row['state'])}{reason}",
        "trials": ", ".join(f"{count} {status}" for status, count in row["statuses"].items()),
        "other work": ", ".join(f"{label} {share} %" for label, share in row["other_work_percent"].items()),
        "size": format_size(row["bytes"]),
    }


def list_failures(run_id: str) -> list[Row]:
    """Every failed trial of a run, or of the last one, with its ``status``, ``stage``, ``error`` and ``detail``."""
    from ngbkit.runs.folders import find, has_metadata, list_ids, read_sweep
    from ngbkit.sweep.journal import Journal
    from ngbkit.sweep.records import Failure

    folder = find(run_id or next(filter(has_metadata, list_ids()), ""))
    trials = {trial.id: trial for trial in read_sweep(folder).trials()}
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


def describe_failures(rows: Iterable[Row]) -> list[Row]:
    """The failures for people, trials that failed alike together, with the last lines of their detail."""
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["compiler"], row["status"], row["stage"], row["error"]), []).append(row)
    return [
        {
            "trials": join_names([row["trial"] for row in group], "; ", most=_MOST_NAMED),
            "failed in": stage if status == "failed" else f"{stage} ({status})",
            "error": error,
            "said last": "\n".join(group[-1]["detail"].rstrip().splitlines()[-_LINES:]),
        }
        for (_, status, stage, error), group in groups.items()
    ]
