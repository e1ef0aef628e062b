"""Starts and resumes runs."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ngbkit import options
from ngbkit.errors import FencedError, MissingDependencyError, UsageError
from ngbkit.files import Store, explain_errors, write_atomically
from ngbkit.runs.folders import build_metadata, find, get_runs_dir, load_metadata, read_sweep
from ngbkit.runs.recordings import Recordings, copy_run
from ngbkit.runs.run import Run
from ngbkit.runs.run_context import RunContext
from ngbkit.runs.run_guide import RunGuide
from ngbkit.runs.run_index import summaries
from ngbkit.runs.summary import INTERRUPTED, Summary
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.records import INCONCLUSIVE, RETRIABLE
from ngbkit.user_text import format_age

# An interrupted run is looked for among so many of the latest; an older one is of another state of the machine.
_LATEST, _MOST_AGE_S = 50, 7 * 86_400

if TYPE_CHECKING:
    from ngbkit.cluster.engine import Engine
    from ngbkit.runs.settle import Settling


@explain_errors()
def start(
    sweep: Grid,
    *,
    engines: Mapping[str, Engine] | None = None,
    guide: RunGuide | None = None,
    note: str = "",
    reuses: bool = False,
) -> Run:
    """Start measuring a sweep, in the background.

    Parameters
    ----------
    sweep
        What to measure.
    engines
        Running engines by device label, to use instead of starting one: see `ngbkit.attach`.
    guide
        Chooses which trials to measure. Default: all. `resume` measures the others, or those that its guide chooses.
    note
        A line on this run, for the list of runs.
    reuses
        Resume the run that this cell of a notebook began with the same sweep and that a kernel left when it ended, if
        there is one; else take over what earlier runs of a device measured under the same conditions
        (`ngbkit.runs.known`), and measure the rest. Not with a guide, and not where runs are recorded.

    Returns
    -------
    Run
        The live run; `Run.result` waits for the dataset. A run that replays a recording (`ngbkit.runs.recordings`)
        ends at once.

    Raises
    ------
    UnknownNameError
        A device is unknown.
    MissingDependencyError
        A package that builds a network is not installed, and a device has no other packages than these.
    UsageError
        The sweep has no recording, and measuring is forbidden; the note is too long; a guide has a sweep in waves.
    """
    if guide is not None and sweep.waves > 1:
        raise UsageError(
            f"a budget chooses among trials, which have one wave each: got waves={sweep.waves}. Leave one of them out."
        )
    context = RunContext.capture(note)
    recordings = Recordings.from_environment(context.notebook)
    key = "" if guide is None else guide.key
    recording = recordings.find(sweep, key, again=not reuses) if recordings is not None else None
    if recordings is not None and recording is not None:
        return _replay(sweep, recording, guide, recordings)
    _check_devices(sweep, engines)
    state_dir = options.make_state_dir()
    reuses &= guide is None and (recordings is None or not recordings.records)
    if reuses and (interrupted := _find_interrupted(sweep, context)):
        with suppress(FencedError):  # another kernel has just resumed it
            return _resume_interrupted(interrupted, engines, note)
    # In UTC: local times repeat in autumn, and differ between machines.
    run_id = time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)
    folder = get_runs_dir() / run_id
    store = Store(state_dir / options.LAYOUT.artifacts)
    for workload in sweep.workloads:
        for digest, path in workload.artifacts.items():
            if not store.contains(digest):
                store.add(path)
    folder.mkdir(parents=True, mode=0o700)
    context.save(folder)
    with write_atomically(folder / "run.json") as temporary:
        temporary.write_text(json.dumps(build_metadata(run_id, sweep)))
    recorder = recordings if recordings is not None and recordings.records else None
    run = Run(sweep, run_id, folder, (), engines or {}, guide, recorder, reuses=reuses, is_new=True)
    if recordings is not None and recorder is None:
        run.known_trials = dict.fromkeys(sweep.devices, recordings.describe_lack(sweep, key))
    return run._begin()


@explain_errors()
def resume(
    run_id: str,
    *,
    retry: Collection[str] = (),
    settling: Settling | None = None,
    engines: Mapping[str, Engine] | None = None,
    guide: RunGuide | None = None,
) -> Run:
    """Resume a run: only trials without a record are measured.

    Parameters
    ----------
    run_id
        The run's id, or a prefix of it that no other run shares.
    retry
        Statuses of recorded trials to measure again, such as ``["timeout", "crashed"]``; ``"inconclusive"`` measures
        the groups again in which other work slowed too many rounds of a trial.
    settling
        What `ngbkit.runs.plan_settling` plans: these trials alone are measured, in more waves, which are joined with
        the earlier ones. Networks that did not take turns begin anew: each new record replaces the earlier one.
    engines
        As for `start`.
    guide
        Chooses which of the missing trials to measure; not those that `settling` or ``"inconclusive"`` measures again.

    Raises
    ------
    RunNotFoundError, UsageError, FencedError
        No run has that id; a status cannot be retried; a guide cannot choose; another process still drives the run.
    """
    for status in retry:
        if status not in RETRIABLE:
            raise UsageError(f"invalid status to retry: got {status!r}; expected one of {', '.join(RETRIABLE)}.")
    if guide is not None and (settling is not None or INCONCLUSIVE in retry):
        raise UsageError(
            "a budget chooses among trials that are missing, and inconclusive ones have been measured. Resume with the "
            "budget first, then settle."
        )
    folder = find(run_id)
    sweep = read_sweep(folder)
    _check_devices(sweep, engines)
    return Run(sweep, folder.name, folder, retry, engines or {}, guide, settling=settling)._begin()


def _find_interrupted(sweep: Grid, context: RunContext) -> Summary | None:
    """Find the run of a sweep that the same notebook began and whose kernel ended within it."""
    if not context.cell:
        return None
    for summary in islice(summaries(), _LATEST):
        if (summary.sweep_id, summary.state, summary.context.notebook) == (sweep.id, INTERRUPTED, context.notebook):
            return summary if summary.is_resumable and time.time() - summary.created < _MOST_AGE_S else None
    return None


def _resume_interrupted(summary: Summary, engines: Mapping[str, Engine] | None, note: str) -> Run:
    """Resume a run whose kernel ended, with a sentence that says so."""
    folder = get_runs_dir() / summary.id
    run = Run(summary.sweep, summary.id, folder, (), engines or {})
    if note:
        replace(summary.context, note=note).save(folder)
    done = summary.trials - summary.statuses["pending"]
    age = format_age(time.time() - summary.created)
    text = f"run {summary.id} of {age} goes on, whose kernel ended after {done} of {summary.trials} trials"
    run.warnings = {**run.warnings, "resumed": [text]}
    return run._begin()


def _replay(sweep: Grid, recording: Path, guide: RunGuide | None, recordings: Recordings) -> Run:
    """Replay a recording under the id of the recorded run, so that replaying it twice makes one run."""
    run_id = load_metadata(recording)["id"]
    folder = get_runs_dir() / run_id
    if not (folder / "run.json").is_file():
        options.make_state_dir()
        copy_run(recording, folder)
    run = Run(sweep, run_id, folder, (), {}, guide, is_replay=True)
    if recordings.is_default or not recordings.records:
        run.known_trials = {device: recordings.describe(recording, device) for device in sweep.devices}
    return run._begin()


def _check_devices(sweep: Grid, engines: Mapping[str, Engine] | None) -> None:
    from ngbkit.cluster import devices

    to_start = [device for device in sweep.devices if device not in (engines or {})]
    devices.check(to_start)
    if any(devices.get(device).shares_packages for device in to_start):
        for workload in sweep.workloads:
            source = workload.load_source()
            for module in source.preload:
                if find_spec(module) is None:
                    raise MissingDependencyError(module, source.extra)
