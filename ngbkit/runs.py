"""One execution of a sweep: start it, watch it, stop it, resume it, list those there were."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ngbkit import options, records
from ngbkit.artifacts import Store, replacing
from ngbkit.clock import describe_search
from ngbkit.errors import DeviceError, JournalError, NgbkitError, RunNotFoundError, UsageError, nearest
from ngbkit.journal import Journal
from ngbkit.records import STATUSES
from ngbkit.sweep import ANCHOR, Sweep, Trial
from ngbkit.tally import Progress, Tally

if TYPE_CHECKING:
    import xarray as xr

    from ngbkit.cluster.engine import Engine

State = Literal["starting", "running", "stopping", "finished", "stopped", "failed"]
FORMAT = 1
# What each kind of event says of what is being done.
_SAYS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "salvaged": lambda event: (
        f"the journal of {event['device']} was damaged; {event['records']} of its records were saved"
    ),
    "round": lambda event: f"{event['text']}, round {event['done'] + 1} of {event['total']}",
    "tuning": describe_search,
    "stage": lambda event: str(event["text"]),
}


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
        self, sweep: Sweep, run_id: str, folder: Path, retry: Collection[str], engines: Mapping[str, Engine]
    ) -> None:
        self.sweep, self.id, self.folder = sweep, run_id, folder
        self.state: State = "starting"
        self.error: Exception | None = None
        self._retry, self._engines = frozenset(retry), dict(engines)
        self._trials = {trial.id: trial for trial in sweep.trials()}
        self._anchors = {group.anchor.id for group in sweep.groups() if group.anchor is not None}
        self._journal = Journal(folder / "journal.sqlite")
        self._journal.forget([key for key, status in self._journal.statuses().items() if status in self._retry])
        self._have = set(self._journal.statuses())
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
        return self._tally.progress()

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
        """Everything measured so far; trials without a record are ``pending``."""
        return load_dataset(self.folder)

    def failures(self) -> list[records.Failure]:
        """What the trials that failed left behind."""
        with Journal(self.folder / "journal.sqlite", writable=False) as journal:
            failed = [record for record in journal.records() if isinstance(record, records.Failure)]
        return [record for record in failed if record.trial_id in self._trials]

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
            missing = set(self._trials) - set(self.statuses)
            state = dispatch.carry_out(self._engines, have=self._have) if missing else "finished"
            self.state = "finished" if state == "finished" else "stopped"
        except Exception as error:  # noqa: BLE001  whatever ends the thread must reach whoever waits for it
            self.error = error if isinstance(error, NgbkitError) else DeviceError(f"the run ended by {error!r}")
            self.error.__cause__ = error if self.error is not error else error.__cause__
            self.state = "failed"
        finally:
            self._tally.say(self.state)
            self._journal.close()
            _live.discard(self)
            self._ended.set()
            self._tell()

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


def start(sweep: Sweep, *, engines: Mapping[str, Engine] | None = None) -> Run:
    """Start measuring a sweep, in the background.

    Parameters
    ----------
    sweep
        What to measure.
    engines
        An engine by device label, for devices that are not to be started here: see `ngbkit.attach`.

    Returns
    -------
    Run
        Live; `Run.result` waits for the dataset.

    Raises
    ------
    UnknownNameError
        A device that there is not.
    """
    _check_devices(sweep, engines)
    run_id = time.strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(2)
    folder = _runs_folder() / run_id
    store = Store(options.make_state_dir() / "artifacts")
    for workload in sweep.workloads:
        for digest, path in workload.artifacts.items():
            if not store.have(digest):
                store.push(path)
    folder.mkdir(parents=True, mode=0o700)
    with replacing(folder / "run.json") as temporary:
        about = {"format": FORMAT, "id": run_id, "created": time.time(), "sweep": sweep.to_json()}
        temporary.write_text(json.dumps(about))
    return Run(sweep, run_id, folder, (), engines or {})._begin()


def resume(run_id: str, *, retry: Collection[str] = (), engines: Mapping[str, Engine] | None = None) -> Run:
    """Go on with a run: only trials without a record are measured.

    Parameters
    ----------
    run_id
        Its id, or the beginning of one that no other run shares.
    retry
        Statuses of trials to run again although they have a record, such as ``["timeout", "crashed"]``.
    engines
        As for `start`.

    Raises
    ------
    RunNotFoundError, UsageError, FencedError
        No such run; not a status that can be retried; the run is still driven by another process.
    """
    valid = [status for status in STATUSES if status != "pending"]
    for status in retry:
        if status not in valid:
            raise UsageError(f"retry {status!r} is not a status; valid are {', '.join(valid)}.")
    folder = find(run_id)
    sweep = read_sweep(folder)
    _check_devices(sweep, engines)
    return Run(sweep, folder.name, folder, retry, engines or {})._begin()


def find(run_id: str) -> Path:
    """The folder of a run.

    Raises
    ------
    RunNotFoundError
        No run, or more than one, has an id that begins so.
    """
    known = [folder.name for folder in _folders()]
    found = [name for name in known if name == run_id] or [name for name in known if name.startswith(run_id)]
    if len(found) == 1:
        return _runs_folder() / found[0]
    if found:
        raise RunNotFoundError(f"{len(found)} runs begin with {run_id!r}: {', '.join(found)}. Give more of the id.")
    near = nearest(run_id, known)
    hint = f" Did you mean {near[0]}?" if near else " `ngbkit runs` lists them all."
    raise RunNotFoundError(f"there is no run {run_id!r}.{hint}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run in a line.

    Parameters
    ----------
    id
        Its id.
    created
        Seconds since the epoch.
    sweep
        What it measures.
    statuses
        How many of its trials have each status, ``pending`` among them.
    """

    id: str
    created: float
    sweep: Sweep
    statuses: Mapping[str, int]


def summaries() -> Iterator[Summary]:
    """Every run of this user, the latest first. A folder that does not read as one is passed over."""
    for folder in sorted(_folders(), reverse=True):
        try:
            about = _about(folder)
            with Journal(folder / "journal.sqlite", writable=False) as journal:
                found = journal.statuses().items()
            statuses = Counter(status for trial_id, status in found if not trial_id.startswith(ANCHOR))
            sweep = read_sweep(folder)
        except (NgbkitError, OSError, KeyError, ValueError):
            continue
        statuses["pending"] = len(sweep) - sum(statuses.values())
        yield Summary(id=folder.name, created=about["created"], sweep=sweep, statuses=+statuses)


def read_sweep(folder: Path) -> Sweep:
    """The sweep of the run in that folder."""
    return Sweep.from_json(_about(folder)["sweep"], locate=Store(options.state_dir() / "artifacts").path)


def load_dataset(folder: Path) -> xr.Dataset | xr.DataTree:
    """The dataset of the run in that folder, as far as it has come."""
    from ngbkit.dataset import assemble_rows

    with Journal(folder / "journal.sqlite", writable=False) as journal:
        return assemble_rows(
            read_sweep(folder),
            journal.rows(),
            environments=journal.notes("environment"),
            facts=journal.notes("facts"),
            run_id=folder.name,
        )


def _check_devices(sweep: Sweep, engines: Mapping[str, Engine] | None) -> None:
    from ngbkit.cluster import devices

    devices.check(device for device in sweep.devices if device not in (engines or {}))


def _about(folder: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads((folder / "run.json").read_text())
    if about["format"] != FORMAT:
        raise JournalError(
            f"run {folder.name} has format {about['format']}; this ngbkit reads {FORMAT}. Install a newer ngbkit."
        )
    return about


def _runs_folder() -> Path:
    return options.state_dir() / "runs"


def _folders() -> list[Path]:
    folder = _runs_folder()
    return [run for run in folder.iterdir() if (run / "run.json").is_file()] if folder.is_dir() else []
