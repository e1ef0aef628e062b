"""Plans on devices: a sweep on all of its devices at once, which survives a lost engine."""

from __future__ import annotations

import json
import queue
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from ngbkit import errors, options
from ngbkit.cluster import devices, engines, replies
from ngbkit.cluster.engine import Engine, EngineLostError, Plan
from ngbkit.cluster.launchers.base import Starter
from ngbkit.cluster.machines import Starts
from ngbkit.cluster.replies import Event
from ngbkit.device.spec import Spec
from ngbkit.device.world import World
from ngbkit.errors import DeviceError, NgbkitError
from ngbkit.hardware.environment import find_changes, find_differences
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.records import MEASURED, Record
from ngbkit.sweep.trials import list_references
from ngbkit.user_text import clean_line
from ngbkit.workloads import cell

# An engine is not started again after so many losses without a new record in between.
_MAX_LOSSES = 4
# An interrupted plan kills its trial and returns; after this time its engine is killed.
_STOP_S = 15.0
_POLL_S = 0.1
# The interval between checks of the connection.
_CHECK_S = 1.0
# The most networks that are built only to find out whether earlier runs know them.
_MOST_BUILT = 8
_RESULTS = ("ngbkit.metrics.tables", "ngbkit.metrics.conclusions")
# The most events that are written in one transaction and reported at once.
_BATCH = 500


class Known(Protocol):
    """The trials of a device that earlier runs know: see `ngbkit.runs.known.KnownTrials`."""

    @property
    def records(self) -> Mapping[str, Record]: ...
    @property
    def facts(self) -> Mapping[str, Any]: ...
    @property
    def environment(self) -> Mapping[str, Any]: ...
    @property
    def text(self) -> str: ...


Contents = Mapping[str, tuple[str, str]]
"""The content of each network by the key of its facts; where it is empty, with the reason."""
FindKnown = Callable[[str, Mapping[str, Any], Contents], Known]


@dataclass(slots=True, kw_only=True)
class Dispatch:
    """The work of one run on its devices."""

    run_id: str
    sweep: Grid
    # The statuses and the trials to measure again.
    retry: frozenset[str]
    retry_ids: frozenset[str]
    # The environment of each device when this run measured on it before.
    environments: Mapping[str, Mapping[str, Any]]
    # Its description before this run last measured on it (`Engine.describe`).
    descriptions: dict[str, Mapping[str, Any]]
    # Receives each batch of events, on the thread that called `execute`.
    on_events: Callable[[Sequence[Event]], None]
    # Set to stop the run.
    stop: threading.Event
    # The surroundings of the line that asked for the run.
    world: World
    # Finds what earlier runs know of the trials of a device with this description; None measures all.
    find_known: FindKnown | None = None
    _events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    _recorded: set[str] = field(default_factory=set)
    # The recorded trials with a measurement.
    _measured: set[str] = field(default_factory=set)
    # By device, those that its present plan measures once more.
    _beside: dict[str, frozenset[str]] = field(default_factory=dict)
    _skipped: frozenset[str] = frozenset()
    _retry_id: str = field(default_factory=lambda: secrets.token_hex(8))

    def execute(self, engines: Mapping[str, Engine], statuses: Mapping[str, str], skipped: Collection[str] = ()) -> str:
        """Measure the trials without a status; return ``"finished"`` or ``"stopped"``, or in the end raise an error."""
        self._recorded, self._skipped = set(statuses), frozenset(skipped)
        self._measured = {trial_id for trial_id, status in statuses.items() if status in MEASURED}
        labels = self.sweep.devices
        starts = Starts(labels)
        pending = [self._start_device(label, engines.get(label), starts) for label in labels]
        import_results()  # while engines start
        try:
            while not all(future.done() for future in pending):
                self._report(_POLL_S)
        except BaseException:
            self.stop.set()  # the client's journal failed: nothing more may be measured
            futures.wait(pending)
            raise
        self._report(0)
        states = {future.result() for future in pending}
        return "finished" if states == {"finished"} else "stopped"

    def _start_device(self, label: str, attached: Engine | None, starts: Starts) -> futures.Future[str]:
        """Start a device's plan on a daemon thread: Python would wait at its exit for those of a pool."""
        future: futures.Future[str] = futures.Future()

        def measure() -> None:
            try:
                future.set_result(self._measure(label, attached, starts))
            except BaseException as error:  # noqa: BLE001  raised again by `execute`
                future.set_exception(error)

        threading.Thread(target=measure, name=f"ngbkit-device-{label}", daemon=True).start()
        return future

    def _report(self, timeout_s: float) -> None:
        """Report one batch of events and wait for its first; report all events if there is no timeout."""
        batch: list[Event] = []
        try:
            batch.append(self._events.get(timeout=timeout_s) if timeout_s else self._events.get_nowait())
            while True:
                if len(batch) == _BATCH:
                    self.on_events(batch)
                    batch = []
                    if timeout_s:
                        return
                batch.append(self._events.get_nowait())
        except queue.Empty:
            if batch:
                self.on_events(batch)

    def _measure(self, label: str, attached: Engine | None, starts: Starts) -> str:
        """Execute one device's plan, on as many engines as it takes."""
        losses = 0
        trial_ids = {trial.id for group in self.sweep.groups(label) for trial in (*group.trials, *group.anchors)}
        starter = Starter(
            report=lambda text: self._put({"kind": "stage", "device": label, "text": text}), stopped=self.stop.is_set
        )
        while True:
            if self.stop.is_set():
                return "stopped"
            count = len(self._recorded & trial_ids)
            engine: Engine | None = None
            try:
                engine = attached or self._start(label, starter, again=losses > 0)
                return self._execute_plan(engine, trial_ids, starts, starter)
            except InterruptedError:
                return "stopped"
            except EngineLostError as error:
                if engine is not None:
                    engine.close()
                losses = losses + 1 if len(self._recorded & trial_ids) == count else 1
                if attached is not None or losses >= _MAX_LOSSES:
                    raise DeviceError(
                        f"{error}. Its records are kept: `ngbkit runs --resume {self.run_id}` continues."
                    ) from error
                starter.report(f"{error}; starting another")
            finally:
                starts.finish(label)

    def _start(self, label: str, starter: Starter, again: bool) -> Engine:
        """Start the device's engine; a failure to start it again counts as one more loss."""
        starter.report(f"starting the engine of {label}")
        try:
            return engines.acquire(label, starter)
        except DeviceError as error:
            if again:
                raise EngineLostError(str(error)) from error
            raise

    def _execute_plan(self, engine: Engine, trial_ids: Collection[str], starts: Starts, starter: Starter) -> str:
        label = engine.device
        environment = engine.hello()
        self._check_environment(label, environment)
        world = engine.adapt(self.world)
        description = engine.describe(build_spec(engine, self.sweep, run_id=self.run_id, world=world))
        self._note_description(label, description)
        if self._take_over(engine, description, trial_ids):
            return "finished"
        push_artifacts(engine, self.sweep)
        if not self.retry and not self.retry_ids:
            self._collect(engine, trial_ids)
        spec = build_spec(
            engine,
            self.sweep,
            run_id=self.run_id,
            retry=self.retry,
            retry_ids=self.retry_ids & set(trial_ids),
            retry_id=self._retry_id,
            have=frozenset((self._recorded | self._skipped) & set(trial_ids)),
            beside_ids=self._list_beside(label),
            world=world,
        )
        if spec.world is None:
            self._warn_of_other_surroundings(label)
        starts.finish(label)
        starts.wait(label, starter.report, self.stop.is_set)
        import_results()  # or waits for that of `execute`, which would disturb the measurement
        plan = engine.submit(spec)
        for event in follow(plan, trial_ids, self.stop):
            self._put(event)
            if event["kind"] == "facts" and (files := event["value"].get("built_from")):
                self._warn(label, f"the build of {json.loads(event['key'])[0]}", f"it read {files}")
        if not plan.is_done:
            engine.close()
            return "stopped"
        outcome = plan.fetch_outcome()
        self._collect(engine, trial_ids)
        if outcome["state"] == "error":
            raise to_error(label, outcome)
        return str(outcome["state"])

    def _note_description(self, label: str, description: Mapping[str, Any]) -> None:
        """Note a device before its plan, with the change where this run has measured on it before in another state."""
        before = self.descriptions.get(label, {})
        change = before.get("change") or next(iter(find_changes(before, description)), "") if before else ""
        if description:
            self.descriptions[label] = {**description, "change": change}
            self._put({"kind": "description", "device": label, "key": label, "value": self.descriptions[label]})

    def _take_over(self, engine: Engine, description: Mapping[str, Any], trial_ids: Collection[str]) -> bool:
        """Take over the known trials of a device, once; return whether these are all."""
        label = engine.device
        if self.find_known is None or label in self._beside:
            return False
        earlier = self.find_known(label, description, self._identify(engine, trial_ids))
        for key, value in earlier.facts.items():
            self._put({"kind": "facts", "device": label, "key": key, "value": value})
        if earlier.records:
            self._put({"kind": "environment", "device": label, "key": label, "value": earlier.environment})
        if earlier.text:
            self._put({"kind": "known", "device": label, "text": earlier.text})
        for record in earlier.records.values():
            self._put({"kind": "record", "device": label, "record": record})
        self._measured |= {name for name, record in earlier.records.items() if record.status in MEASURED}
        self._beside[label] = frozenset()
        return bool(earlier.records) and {trial.id for trial in self.sweep.trials(label)} <= self._recorded

    def _identify(self, engine: Engine, trial_ids: Collection[str]) -> Contents:
        """Identify the networks by what their builds loaded; those of which that has changed, by building them."""
        spec = build_spec(engine, self.sweep, run_id=self.run_id, world=engine.adapt(self.world), only_prepares=True)
        contents = dict(engine.identify(spec))
        unknown = sum(not content for content, _ in contents.values())
        # More would delay the first results, and a sweep of that many is rarely one that was renamed.
        if 0 < unknown <= _MOST_BUILT and not self.stop.is_set():
            push_artifacts(engine, self.sweep)
            plan = engine.submit(spec)
            for event in follow(plan, trial_ids, self.stop):
                self._put(event)
                if event["kind"] == "facts" and event["value"].get("content"):
                    contents[event["key"]] = (event["value"]["content"], contents.get(event["key"], ("", ""))[1])
            if not plan.is_done:
                engine.close()
                raise InterruptedError
        return contents

    def _list_beside(self, label: str) -> frozenset[str]:
        """List the measured trials that this plan measures once more, beside pending ones."""
        groups = self.sweep.groups(label) if self.sweep.interleave else ()
        references = list_references(groups, self._measured, self._recorded | self._skipped)
        self._beside[label] = frozenset(references)
        return self._beside[label]

    def _warn_of_other_surroundings(self, label: str) -> None:
        """Warn of cells that use the folder, variables or modules of an engine elsewhere, which may have others."""
        folders = [self.world.folder, *self.world.list_additions()]
        for workload in self.sweep.workloads:
            names = cell.list_surroundings(workload, folders) if workload.source == cell.SOURCE.name else []
            if names:
                self._warn(label, workload.name, f"it uses {', '.join(names)}")

    def _warn(self, label: str, network: str, use: str) -> None:
        text = (
            f"{use}, and {label} has a folder, variables and modules of its own. Pass values with --inputs, or put the "
            "same files there"
        )
        self._put({"kind": "warning", "device": label, "key": f"{network} on {label}", "text": text})

    def _check_environment(self, label: str, environment: Mapping[str, Any]) -> None:
        """Refuse a device that has changed since this run measured on it, because its numbers would not compare."""
        previous = self.environments.get(label)
        changes = find_differences(previous, environment) if previous else []
        if changes:
            raise DeviceError(
                f"device {label} has changed since run {self.run_id} measured on it: {'; '.join(changes)}. "
                "Start a new run, or give the changed device a label of its own."
            )

    def _collect(self, engine: Engine, trial_ids: Collection[str]) -> None:
        """Queue the records that only the device has: their events were lost, or are of an earlier session."""
        retry_id = self._retry_id if self.retry or self.retry_ids & set(trial_ids) else ""
        recorded = (self._recorded & set(trial_ids)) - self._beside.get(engine.device, frozenset())
        for event in engine.collect(self.run_id, recorded, trial_ids, retry_id):
            self._put(event)

    def _put(self, event: Event) -> None:
        if event["kind"] == "record":
            trial_id = event["record"].trial_id
            if trial_id in self._recorded and trial_id not in self._beside.get(event["device"], ()):
                return
            self._recorded.add(trial_id)
        self._events.put(event)


def build_spec(engine: Engine, sweep: Grid, **fields: Any) -> Spec:
    """Build the spec of a plan for an engine, with the threads and the chip that the devices file states."""
    device = devices.load().get(engine.device)
    return Spec(
        device=engine.device,
        state_dir=engine.state_dir or options.get_state_dir(),
        sweep=sweep,
        threads=device.threads if device else None,
        accelerator=device.accelerator if device else "cpu",
        **fields,
    )


def import_results() -> None:
    """Import what a client tells of a run, which takes seconds; what needs a missing package reports it."""
    for name in _RESULTS:
        with suppress(ImportError):
            import_module(name)


def push_artifacts(engine: Engine, sweep: Grid) -> None:
    """Send a device the files of a sweep's networks that it lacks."""
    engine.push({digest: path for workload in sweep.workloads for digest, path in workload.artifacts.items()})


def follow(plan: Plan, trial_ids: Collection[str], stop: threading.Event) -> Iterator[Event]:
    """Yield a plan's events until it is done, or ignores an interrupt; raise EngineLostError if the engine dies."""
    label = plan.engine.device
    running_at = checked_at = time.monotonic()
    fault = ""
    while not plan.is_done:
        yield from _parse(plan, plan.next_event(_POLL_S), trial_ids)
        now = time.monotonic()
        if not stop.is_set():
            running_at = now
        else:
            plan.interrupt()
            if now - running_at > _STOP_S:
                return
        if now - checked_at > _CHECK_S:
            checked_at = now
            if not plan.engine.is_alive() and not plan.is_done:
                raise EngineLostError(f"the engine of device {label} was lost")
            previous, fault = fault, plan.engine.trouble()
            if fault != previous:
                down = f"the link to {label} is down ({clean_line(fault)}); trying again"
                yield {"kind": "stage", "device": label, "text": down if fault else "the link is back"}
    while (text := plan.next_event(0.01)) is not None:
        yield from _parse(plan, text, trial_ids)


def _parse(plan: Plan, text: str | None, trial_ids: Collection[str]) -> list[Event]:
    """Check the text of an event; there is none in a text of an unknown kind, or without a text."""
    event = None if text is None else replies.parse_event(plan.engine.device, text, trial_ids)
    return [] if event is None else [event]


def to_error(device: str, outcome: Mapping[str, Any]) -> NgbkitError:
    """Return a plan's error as one of the same type if the client knows it."""
    error = getattr(errors, str(outcome["kind"]), DeviceError)
    message = f"device {device}: {outcome['error']}"
    is_known = error in (errors.JournalError, errors.FencedError, errors.UsageError)
    return error(message) if is_known else DeviceError(message)
