"""A run: the thread that has a sweep measured, and what it can be asked meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ngbkit.errors import DeviceError, NgbkitError
from ngbkit.runs.folders import load_dataset
from ngbkit.runs.progress import Progress, Tally
from ngbkit.runs.time_left import describe_search
from ngbkit.sweep import records
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.trials import Trial

if TYPE_CHECKING:
    import xarray as xr

    from ngbkit.cluster.dispatch import Dispatch
    from ngbkit.cluster.engine import Engine
    from ngbkit.runs.recordings import Recordings

State = Literal["starting", "running", "stopping", "finished", "stopped", "failed"]
# What each kind of event says of what is being done.
_SAYS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "salvaged": lambda event: (
        f"the journal of {event['device']} was damaged; {event['records']} of its records were saved"
    ),
    "round": lambda event: f"{event['text']}, round {event['done'] + 1} of {event['total']}",
    "tuning": describe_search,
    "stage": lambda event: str(event["text"]),
}


class Guide(Protocol):
    """Decides what a run measures, and says something of what it leaves out: see `ngbkit.predictor.forecast.Guide`."""

    @property
    def key(self) -> str:
        """Tells it from others, in the name of a folder: the same for the same budget."""

    def choose(self, run: Run) -> Collection[str]:
        """The ids of the trials to measure next; none to end the run. Asked again when these are done."""

    def left_s(self) -> float | None:
        """How long it will still go on; None where that depends on what is measured."""

    def complete(self, run: Run, data: xr.Dataset | xr.DataTree) -> xr.Dataset | xr.DataTree:
        """The dataset of the run as its user sees it."""


# The runs of this process that have not ended.
_live: set[Run] = set()


def live() -> list[Run]:
    """The runs of this process that go on, the earliest first."""
    now = tuple(_live)  # at once: another thread may start or end one meanwhile
    return sorted(now, key=lambda run: run.id)


class Run:
    """One execution of a sweep, driven by a thread of its own. Make one by `start` or `resume`.

    Attributes
    ----------
    id : str
        Names the run, in every list and for `resume`.
    sweep : Sweep
        What is measured.
    state : str
        ``"starting"``, ``"running"``, ``"stopping"``; at the end ``"finished"``, ``"stopped"`` or ``"failed"``.
    error : Exception or None
        Why it failed.
    warnings : dict
        What disturbed each device when its plan began, in sentences.
    """

    def __init__(
        self,
        sweep: Sweep,
        run_id: str,
        folder: Path,
        retry: Collection[str],
        engines: Mapping[str, Engine],
        guide: Guide | None = None,
        recordings: Recordings | None = None,
    ) -> None:
        self.sweep, self.id, self.folder = sweep, run_id, folder
        self.state: State = "starting"
        self.error: Exception | None = None
        self._retry, self._engines, self._guide = frozenset(retry), dict(engines), guide
        self._recordings = recordings
        self._trials = {trial.id: trial for trial in sweep.trials()}
        self._anchors = {group.anchor.id for group in sweep.groups() if group.anchor is not None}
        self._journal = Journal(folder / "journal.sqlite")
        self._journal.forget([key for key, status in self._journal.statuses().items() if status in self._retry])
        self._tally = Tally(self._trials, self._journal.statuses())
        self.warnings: dict[str, list[str]] = {}
        self._stop, self._ended = threading.Event(), threading.Event()
        self._changed = threading.Condition()
        self._listeners: list[Callable[[Run], None]] = []
        self._thread = threading.Thread(target=self._drive, name=f"ngbkit-{run_id}", daemon=True)

    def result(self) -> xr.Dataset | xr.DataTree:
        """Wait for the end; the dataset. Ctrl-C stops the run cleanly and raises KeyboardInterrupt.

        Raises
        ------
        NgbkitError
            The run failed; what it had measured before is in `dataset`.
        """
        try:
            self.wait()
        except KeyboardInterrupt:
            self.stop()
            self.wait()
            raise
        if self.error is not None:
            raise self.error
        return self.dataset()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the end, at most so many seconds; whether it has come."""
        return self._ended.wait(timeout_s)

    def wait_for_change(self, timeout_s: float) -> None:
        """Wait until something has happened, at most so many seconds."""
        with self._changed:
            self._changed.wait(timeout_s)

    def stop(self) -> None:
        """Ask the run to stop; what is in flight is dropped and everything measured is kept. Returns at once."""
        if not self.ended:
            self.state = "stopping"
        self._stop.set()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def subscribe(self, listener: Callable[[Run], None]) -> None:
        """Have `listener` called with the run, on the run's own thread, whenever something has happened."""
        self._listeners.append(listener)

    @property
    def progress(self) -> Progress:
        """How far it is, at this moment."""
        now = self._tally.progress()
        return now if self._guide is None else replace(now, remaining_s=self._guide.left_s())

    def progress_of(self, device: str) -> Progress:
        """How far its part on one device is.

        Raises
        ------
        UnknownNameError
            The run does not measure there.
        """
        return self._tally.progress_of(device)

    @property
    def statuses(self) -> dict[str, str]:
        """By the ids of trials, the status of each that has a record."""
        return self._tally.statuses

    def dataset(self) -> xr.Dataset | xr.DataTree:
        """Everything measured so far; trials without a record are ``pending``, or what its guide makes of them."""
        data = load_dataset(self.folder)
        return data if self._guide is None else self._guide.complete(self, data)

    def failures(self) -> list[records.Failure]:
        """What the trials that failed left behind."""
        return [record for record in self.records() if isinstance(record, records.Failure)]

    def records(self) -> list[records.Record]:
        """What its trials left behind so far."""
        with Journal(self.folder / "journal.sqlite", writable=False) as journal:
            return [record for record in journal.records() if record.trial_id in self._trials]

    def trial(self, trial_id: str) -> Trial:
        """The trial of that id."""
        return self._trials[trial_id]

    def _begin(self) -> Run:
        _live.add(self)
        self._thread.start()
        return self

    def _drive(self) -> None:
        from ngbkit.cluster.dispatch import Dispatch

        dispatch = Dispatch(
            run_id=self.id,
            sweep=self.sweep,
            retry=self._retry,
            environments=self._journal.notes("environment"),
            on_events=self._on_events,
            stop=self._stop,
        )
        try:
            state = self._carry_out(dispatch)
            self.state = "finished" if state == "finished" else "stopped"
        except Exception as error:  # noqa: BLE001  whatever ends the thread must reach whoever waits for it
            self.error = error if isinstance(error, NgbkitError) else DeviceError(f"the run ended by {error!r}")
            self.error.__cause__ = error if self.error is not error else error.__cause__
            self.state = "failed"
        finally:
            self._tally.say(self.state)
            self._journal.close()
            self._record()
            _live.discard(self)
            self._ended.set()
            self._tell()

    def _record(self) -> None:
        if self._recordings is None or self.state != "finished":
            return
        try:
            self._recordings.keep(self.sweep, self._guide, self.folder)
        except OSError as error:
            self.error, self.state = NgbkitError(f"run {self.id} has ended and cannot be recorded: {error}"), "failed"

    def _carry_out(self, dispatch: Dispatch) -> str:
        """Measure what is missing, or what the guide asks for until that is nothing more."""
        state = "finished"
        while state == "finished" and (missing := set(self._trials) - set(self.statuses)):
            wanted = missing if self._guide is None else set(self._guide.choose(self)) & missing
            if not wanted:
                break
            have = set(self._journal.statuses())
            state = dispatch.carry_out(self._engines, have=have, leave=missing - wanted)
            if wanted <= missing - set(self.statuses):
                break  # nothing has come of it, and would not the next time either
        return state

    def _on_events(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Take in what devices tell: first the journal, then the eyes."""
        finished = [records.from_json(event["record"]) for event in events if event["kind"] == "record"]
        if finished:
            self._journal.finish(finished)
        came = iter(finished)
        for event in events:
            if event["kind"] == "record":
                record = next(came)
                self._tally.count(record.trial_id, record.status)
            else:
                self._on_event(event)
        if self.state == "starting":
            self.state = "running"
        self._tell()

    def _on_event(self, event: Mapping[str, Any]) -> None:
        kind = event["kind"]
        if kind in ("facts", "environment"):
            self._journal.note(kind, event["key"], event["value"])
            if kind == "environment":
                self.warnings[event["key"]] = event["value"].get("conditions", {}).get("warnings", [])
        elif kind == "round":
            self._tally.advance(event["device"], event["trial_ids"], event["done"] / event["total"])
        if kind in _SAYS:
            self._tally.say(_SAYS[kind](event), event["device"])

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()
        for listener in self._listeners:
            listener(self)

    def __repr__(self) -> str:
        now = self.progress
        return f"<Run {self.id} {self.state}: {now.done} of {now.total} trials>"
