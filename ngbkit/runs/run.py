"""A run: the thread that drives the measurement of a sweep, and its live state."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ngbkit import files
from ngbkit.device.world import World
from ngbkit.errors import DeviceError, JournalError, NgbkitError, RunInterruptedError
from ngbkit.hardware.conditions import describe_other_work
from ngbkit.hardware.environment import list_refusals
from ngbkit.runs.folders import assemble_dataset
from ngbkit.runs.known import EarlierRuns
from ngbkit.runs.progress import Progress, ProgressTracker, describe_search
from ngbkit.runs.progress_display import describe_interrupt
from ngbkit.runs.recordings import Recordings
from ngbkit.runs.run_guide import RunGuide
from ngbkit.sweep import joining, records
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import INCONCLUSIVE, Record
from ngbkit.sweep.settling import count_waves, list_inconclusive
from ngbkit.sweep.trials import Trial

if TYPE_CHECKING:
    import xarray as xr

    from ngbkit.cluster.dispatch import Dispatch
    from ngbkit.cluster.engine import Engine
    from ngbkit.runs.settle import Settling

# A process that ends waits for so long for its run to stop.
_EXIT_S = 3.0
_LOGGER = logging.getLogger(__name__)

State = Literal["starting", "running", "stopping", "finished", "stopped", "failed"]
# The progress text of each kind of event.
_TEXTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "salvaged": lambda event: (
        f"the journal of {event['device']} was damaged; {event['records']} of its records were recovered"
    ),
    "round": lambda event: f"{event['text']}, round {event['done'] + 1} of {event['total']}",
    "tuning": describe_search,
    "stage": lambda event: str(event["text"]),
    "known": lambda event: str(event["text"]),
}
# The runs of this process that have not ended, in the order of their starts.
_live: dict[Run, None] = {}


def live() -> list[Run]:
    """List the runs of this process that have not ended, the earliest first."""
    return list(_live)


def stop_all() -> None:
    """Stop the runs of a process that ends, and print how to resume each."""
    runs = live()
    for run in runs:
        run.stop()
    for run in runs:
        run.wait(_EXIT_S)
        with suppress(AttributeError, OSError, ValueError):  # there is no such stream any more
            sys.__stderr__.write(f"ngbkit: {describe_interrupt(run)}\n")  # type: ignore[union-attr]


class Run:
    """One execution of a sweep, driven by a thread of its own. `start` and `resume` create runs.

    Attributes
    ----------
    id : str
        Identifies the run in listings and for `resume`.
    sweep : Grid
        The sweep that is measured.
    state : str
        ``"starting"``, ``"running"``, ``"stopping"``; at the end ``"finished"``, ``"stopped"`` or ``"failed"``.
    error : Exception or None
        Why the run failed.
    warnings : dict
        By device, sentences on disturbances when its plan last started; under ``"journal"``, what was damaged in it;
        under ``"listener"``, the exception of each listener that raised any.
    interim : dict
        By trial id, the measurements so far of trials in flight; replaced whenever a device sends some.
    known_trials : dict
        By device, a sentence on the trials that earlier runs know; devices without any are left out.
    is_replay : bool
        True if the run repeats a recording, perhaps of another machine, and measures nothing.
    """

    def __init__(
        self,
        sweep: Grid,
        run_id: str,
        folder: Path,
        retry: Collection[str],
        engines: Mapping[str, Engine],
        guide: RunGuide | None = None,
        recordings: Recordings | None = None,
        settling: Settling | None = None,
        *,
        reuses: bool = False,
        is_new: bool = False,
        is_replay: bool = False,
    ) -> None:
        self.sweep, self.id, self.folder, self.is_replay = sweep, run_id, folder, is_replay
        self._state: State = "starting"
        self.error: Exception | None = None
        self._retry, self._engines, self._guide = frozenset(retry), dict(engines), guide
        self._recordings, self._settling = recordings, settling
        self._world = World.capture(sweep.workloads).restore(folder / "world.json")
        self._trials = {trial.id: trial for trial in sweep.trials()}
        self._journal = Journal(folder / "journal.sqlite")
        statuses = self._journal.statuses()
        self._journal.forget([trial_id for trial_id, status in statuses.items() if status in self._retry])
        # The measurements of these are replaced one by one, so that none is lost if this run is stopped.
        bundles = [bundle for device in sweep.devices for bundle in sweep.bundles(device)]
        retried = list_inconclusive(bundles, self._journal.records()) if INCONCLUSIVE in self._retry else ()
        self._retry_ids = frozenset(retried)
        if settling is None:
            self._retry_ids |= self._journal.list_stopped()
        elif settling.begins_anew:
            self._retry_ids |= settling.trial_ids
        self._replaced: set[str] = set()
        self._earlier, self._contents = EarlierRuns(run_id, sweep), self._journal.notes("content")
        self._is_new, self._reuses = is_new, reuses and is_new
        statuses = self._journal.statuses()
        # The trials whose further records are joined with that in the journal.
        self._joined = set(statuses) - self._retry_ids
        current = {name: status for name, status in statuses.items() if name not in self._retry_ids}
        self._waves = 1 if guide is not None or is_replay else sweep.waves if settling is None else settling.waves
        self._tracker = ProgressTracker(self._trials, current, self._waves)
        self.warnings: dict[str, list[str]] = self._world.list_warnings(sweep.workloads)
        self.interim: dict[str, records.Record] = {}
        self.known_trials: dict[str, str] = {}
        for label, description in self._journal.notes("environment").items():
            self._set_conditions(label, description)
        if self._journal.salvaged is not None:
            self.warnings["journal"] = [
                f"it was damaged; {self._journal.salvaged} of its records were recovered, and the trials of all others "
                f"are measured again (a copy of the damaged file is in {folder})"
            ]
        self._stop, self._ended = threading.Event(), threading.Event()
        self._changed = threading.Condition()
        self._listeners: list[Callable[[Run], None]] = []
        self._faulty_listeners: list[Callable[[Run], None]] = []
        self._thread = threading.Thread(target=self._drive, name=f"ngbkit-run-{run_id}", daemon=True)

    def result(self) -> xr.Dataset | xr.DataTree:
        """Wait for the end and return the dataset. Ctrl-C stops the run cleanly and raises KeyboardInterrupt.

        Raises
        ------
        NgbkitError
            The run failed; `dataset` returns what it measured before.
        """
        try:
            self.wait()
        except KeyboardInterrupt:
            self.stop()
            with suppress(KeyboardInterrupt):  # a second one leaves at once
                self.wait()
            raise RunInterruptedError(describe_interrupt(self)) from None
        if self.error is not None:
            raise self.error
        return self.dataset()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end, at most `timeout_s` seconds; return whether the run has ended."""
        return self._ended.wait(timeout_s)

    def wait_for_change(self, timeout_s: float) -> None:
        """Wait for the next change of the run, at most `timeout_s` seconds."""
        with self._changed:
            self._changed.wait(timeout_s)

    def stop(self) -> None:
        """Ask the run to stop, and return at once. All measurements are kept, trials in flight with fewer samples."""
        self._stop.set()

    @property
    def state(self) -> State:
        # Never assigned by `stop`: its thread would overwrite that of a run which has just ended.
        return "stopping" if self._stop.is_set() and self._state in ("starting", "running") else self._state

    @property
    def ended(self) -> bool:
        """True if the run has finished, stopped or failed."""
        return self._ended.is_set()

    def subscribe(self, listener: Callable[[Run], None]) -> None:
        """Call `listener` with the run after each change, on the run's own thread.

        The run survives an exception of a listener: the first of each is logged, and is a warning of the run.
        """
        self._listeners.append(listener)

    @property
    def progress(self) -> Progress:
        """The progress of the run at this moment."""
        return self.progress_of(None)

    def progress_of(self, device: str | None) -> Progress:
        """Return how far the part of the run on one device is.

        Raises
        ------
        UnknownNameError
            The run does not measure on that device.
        """
        progress = self._tracker.snapshot(device)
        if self.is_replay:
            return replace(progress, remaining_s=None)
        return progress if self._guide is None else replace(progress, remaining_s=self._guide.left_s())

    @property
    def statuses(self) -> dict[str, str]:
        """The status of each recorded trial, by trial id."""
        return self._tracker.statuses

    def dataset(self) -> xr.Dataset | xr.DataTree:
        """Return all measurements so far; trials without a record are ``pending``, or as the guide completes them."""
        data = assemble_dataset(self.folder, self.sweep)
        return data if self._guide is None else self._guide.complete(self, data)

    def failures(self) -> list[records.Failure]:
        """Return the records of the trials that failed."""
        return [record for record in self.records() if isinstance(record, records.Failure)]

    def records(self) -> list[records.Record]:
        """Return the records of the trials so far."""
        with Journal(self.folder / "journal.sqlite", writable=False) as journal:
            return [record for record in journal.records() if record.trial_id in self._trials]

    def trial(self, trial_id: str) -> Trial:
        """Return the trial of that id."""
        return self._trials[trial_id]

    def _begin(self) -> Run:
        self._note_state()
        _live[self] = None
        self._thread.start()
        return self

    def _drive(self) -> None:
        try:
            # After that of the engines, which Python thus calls later: a run whose engine ends would start another.
            atexit.unregister(stop_all)
            atexit.register(stop_all)
            if self._is_new and self._guide is not None:
                self._journal.note("guide", "run", self._guide.key)
            is_done = self.is_replay or self._settling is not None
            state = "finished" if is_done else self._measure(self._build_dispatch())
            for wave in range(1 if self._settling is None else 0, self._waves):
                state = self._measure_wave(wave) if state == "finished" else state
            self._state = "finished" if state == "finished" else "stopped"
        except Exception as error:  # noqa: BLE001  every error that ends the thread must reach its waiters
            self.error = files.explain(error) or DeviceError(f"the run failed with {error!r}")
            self.error.__cause__ = error if self.error is not error else error.__cause__
            self._state = "failed"
        finally:
            self._tracker.set_text(self.state)
            with suppress(JournalError):  # a full disk is the error already
                self._note_state()
            self._journal.close()
            self._record()
            _live.pop(self, None)
            self._ended.set()
            self._notify()

    def _build_dispatch(self, again: frozenset[str] = frozenset()) -> Dispatch:
        """Build the dispatch of the missing trials, or of those that have processes `again`."""
        from ngbkit.cluster.dispatch import Dispatch

        return Dispatch(
            run_id=self.id,
            sweep=self.sweep.to_wave() if self._settling is None else self._settling.apply(self.sweep),
            retry=frozenset() if again else self._retry - {INCONCLUSIVE},
            retry_ids=again or self._retry_ids,
            environments=self._journal.notes("environment"),
            descriptions=self._journal.notes("description"),
            on_events=self._on_events,
            stop=self._stop,
            world=self._world,
            find_known=self._earlier.find_known if self._reuses and not again else None,
        )

    def _measure_wave(self, wave: int) -> str:
        """Measure once more, in new processes, what has had so many waves, or what settles, and join the records."""
        if self._settling is not None:
            again, is_joined = self._settling.trial_ids, wave > 0 or not self._settling.begins_anew
        else:
            measured = [each for each in self._journal.records() if isinstance(each, records.Measurement)]
            again, is_joined = frozenset(each.trial_id for each in measured if count_waves(each.rounds) <= wave), True
        if not again:
            return "finished"
        self._joined |= again if is_joined else frozenset()
        self._tracker.begin_wave(wave, again)
        recorded = {name: status for name, status in self._journal.statuses().items() if name not in again}
        skipped = set(self._trials) - set(recorded) - again
        return self._build_dispatch(again).execute(self._engines, recorded, skipped)

    def _note_state(self) -> None:
        """Note in the journal how the run ended; until then it is running, or its process has ended before it."""
        state = self.state if self.state in ("finished", "stopped", "failed") else "running"
        self._journal.note("ending", "run", {"state": state, "error": str(self.error or "")})

    def _record(self) -> None:
        if self._recordings is None or self.state != "finished":
            return
        try:
            self._recordings.save(self.sweep, "" if self._guide is None else self._guide.key, self.folder)
        except OSError as error:
            self.error = NgbkitError(f"run {self.id} finished, but recording it failed: {error}")
            self._state = "failed"

    def _measure(self, dispatch: Dispatch) -> str:
        """Measure the missing trials, or those that the guide chooses until it chooses none."""
        state = "finished"
        while state == "finished" and (missing := set(self._trials) - set(self.statuses)):
            selected = missing if self._guide is None else set(self._guide.choose(self)) & missing
            if not selected:
                break
            retried = self._retry_ids - self._replaced
            recorded = {name: status for name, status in self._journal.statuses().items() if name not in retried}
            state = dispatch.execute(self._engines, recorded, skipped=missing - selected)
            if selected <= missing - set(self.statuses):
                break  # none was recorded, and another attempt would record none either
        return state

    def _on_events(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Process events of devices: journal their records first, then update the displayed state."""
        finished = [self._join(event["record"]) for event in events if event["kind"] == "record"]
        if finished:
            self._journal.finish(finished)
            self._replaced.update(record.trial_id for record in finished)
            self.interim = {name: record for name, record in self.interim.items() if name not in self._replaced}
        unshown = iter(finished)
        for event in events:
            if event["kind"] == "record":
                record = next(unshown)
                self._tracker.record(record.trial_id, record.status, is_short=records.is_stopped(record))
                if isinstance(record, records.Measurement) and record.foreign_percent is not None:
                    state = describe_other_work({"other_busy_percent": record.foreign_percent})
                    self._tracker.set_other_work(event["device"], state)
            else:
                self._on_event(event)
        if self._state == "starting":
            self._state = "running"
        self._notify()

    def _join(self, record: Record) -> Record:
        """Join the record of a trial that was measured once more with the earlier one."""
        if self._settling is not None and isinstance(record, records.Measurement):
            # Who measures until it is conclusive is a stopping rule, which sees some equal columns differ.
            record = replace(record, looks=max(1, record.looks))
        join = joining.join if record.trial_id in self._joined else joining.replace_by
        self._joined.add(record.trial_id)
        if join is joining.replace_by and not records.is_stopped(record):
            return record
        return next((join(earlier, record) for earlier in self._journal.records([record.trial_id])), record)

    def _on_event(self, event: Mapping[str, Any]) -> None:
        kind = event["kind"]
        if kind in ("facts", "environment", "description"):
            self._journal.note(kind, event["key"], event["value"])
            if content := event["value"].get("content"):
                contents = self._contents.setdefault(event["key"], {})
                contents[event["device"]] = self._earlier.describe_content(event["device"], content)
                self._journal.note("content", event["key"], contents)
            if kind == "environment":
                self._set_conditions(event["key"], event["value"])
        elif kind == "interim":
            self.interim = {**self.interim, **{record.trial_id: record for record in event["records"]}}
        elif kind == "known":
            self.known_trials = {**self.known_trials, event["device"]: event["text"]}
        elif kind == "warning":
            self.warnings = {**self.warnings, event["key"]: [event["text"]]}
        elif event.get("step") == "prepare":
            self._tracker.prepare(event["device"])
        elif event.get("step") == "compile":
            self._tracker.compile(event["device"], event["trial_id"])
        elif kind == "round":
            self._tracker.advance(event["device"], event["trial_ids"], event["done"] / event["total"])
        if kind in _TEXTS:
            self._tracker.set_text(_TEXTS[kind](event), event["device"])

    def _set_conditions(self, device: str, description: Mapping[str, Any]) -> None:
        conditions = description.get("conditions", {})
        # Replaced, since other threads read it.
        self.warnings = {**self.warnings, device: [*list_refusals(description), *conditions.get("warnings", [])]}
        self._tracker.set_other_work(device, describe_other_work(conditions))

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
        for listener in self._listeners:
            try:
                listener(self)
            except BaseException as error:  # neither does SystemExit in a listener end a measurement
                if listener not in self._faulty_listeners:
                    self._faulty_listeners.append(listener)
                    text = f"{getattr(listener, '__qualname__', repr(listener))} raised {error!r}; the run goes on"
                    self.warnings = {**self.warnings, "listener": [*self.warnings.get("listener", []), text]}
                    _LOGGER.error("a listener of run %s: %s", self.id, text, exc_info=error)

    def __repr__(self) -> str:
        progress = self.progress
        return f"<Run {self.id} {self.state}: {progress.done} of {progress.total} trials>"
