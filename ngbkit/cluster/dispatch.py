"""A sweep on its devices, all at once: connect, send each its plan, pass on what comes back, outlive a lost engine."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ngbkit import errors
from ngbkit.cluster import devices, engines, replies
from ngbkit.cluster.engine import Engine, EngineLostError, Plan
from ngbkit.cluster.launchers.base import Starter
from ngbkit.cluster.replies import Event
from ngbkit.device.spec import Spec
from ngbkit.errors import DeviceError, NgbkitError
from ngbkit.hardware.environment import unlike
from ngbkit.sweep.grid import Sweep

# An engine that is lost this often without a single record in between is not started again.
_MOST_LOSSES = 4
# A plan that was asked to stop kills what is in flight; one that has not returned by then is killed itself.
_STOP_S = 15.0
_POLL_S = 0.1
# How often the way to an engine is looked at.
_LOOK_S = 1.0
# So many events are written in one transaction; those who watch are told once.
_MOST_AT_ONCE = 500


@dataclass(slots=True, kw_only=True)
class Dispatch:
    """One run's work on its devices.

    Parameters
    ----------
    run_id, sweep, retry
        What the plans are told.
    environments
        What each device was when this run measured on it before.
    on_events
        Takes the events that have come, on the thread that called `carry_out`.
    stop
        Set by whoever wants the run to stop.
    """

    run_id: str
    sweep: Sweep
    retry: frozenset[str]
    environments: Mapping[str, Mapping[str, Any]]
    on_events: Callable[[Sequence[Event]], None]
    stop: threading.Event
    _events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    _have: set[str] = field(default_factory=set)
    _leave: frozenset[str] = frozenset()
    _retry_id: str = field(default_factory=lambda: secrets.token_hex(8))

    def carry_out(self, engines: Mapping[str, Engine], have: set[str], leave: Collection[str] = ()) -> str:
        """Measure what is missing on every device, but for what is to be left; ``"finished"`` or ``"stopped"``.

        Raises
        ------
        NgbkitError
            A device failed. The others have been carried to their end first.
        """
        self._have, self._leave = set(have), frozenset(leave)
        labels = self.sweep.devices
        with ThreadPoolExecutor(max_workers=len(labels), thread_name_prefix="ngbkit-device") as pool:
            waiting = [pool.submit(self._device, label, engines.get(label)) for label in labels]
            try:
                while not all(future.done() for future in waiting):
                    self._pass_on(_POLL_S)
            except BaseException:
                self.stop.set()  # a journal that cannot be written: nothing more may be measured
                raise
            self._pass_on(0)
        states = {future.result() for future in waiting}
        return "finished" if states == {"finished"} else "stopped"

    def _pass_on(self, timeout_s: float) -> None:
        """Hand over the events that have come, many at once; waits for the first, and without a wait takes them all."""
        found: list[Event] = []
        try:
            found.append(self._events.get(timeout=timeout_s) if timeout_s else self._events.get_nowait())
            while True:
                if len(found) == _MOST_AT_ONCE:
                    self.on_events(found)
                    found = []
                    if timeout_s:
                        return
                found.append(self._events.get_nowait())
        except queue.Empty:
            if found:
                self.on_events(found)

    def _device(self, label: str, given: Engine | None) -> str:
        """One device's plan, on as many engines as it takes."""
        losses = 0
        trial_ids = {trial.id for group in self.sweep.groups(label) for trial in (*group.trials, group.anchor) if trial}
        starter = Starter(
            say=lambda text: self._put({"kind": "stage", "device": label, "text": text}), stopped=self.stop.is_set
        )
        while True:
            if self.stop.is_set():
                return "stopped"
            before = len(self._have & trial_ids)
            engine: Engine | None = None
            try:
                engine = given or self._start(label, starter, again=losses > 0)
                return self._plan(engine, trial_ids)
            except InterruptedError:
                return "stopped"
            except EngineLostError as error:
                if engine is not None:
                    engine.close()
                losses = losses + 1 if len(self._have & trial_ids) == before else 1
                if given is not None or losses >= _MOST_LOSSES:
                    raise DeviceError(
                        f"{error}. What it measured is kept: `ngbkit resume {self.run_id}` goes on."
                    ) from error
                starter.say(f"{error}; starting another")

    def _start(self, label: str, starter: Starter, again: bool) -> Engine:
        """The device's engine; where one was there before, a start that fails is one more loss, and not the end."""
        starter.say(f"starting the engine of {label}")
        try:
            return engines.engine(label, starter)
        except DeviceError as error:
            if again:
                raise EngineLostError(str(error)) from error
            raise

    def _plan(self, engine: Engine, trial_ids: Collection[str]) -> str:
        label = engine.device
        self._check_same(label, engine.hello())
        assert engine.state_dir is not None
        engine.push({digest: path for workload in self.sweep.workloads for digest, path in workload.artifacts.items()})
        if not self.retry:
            self._collect(engine, trial_ids)
        device = devices.load().get(label)
        spec = Spec(
            run_id=self.run_id,
            device=label,
            state_dir=engine.state_dir,
            sweep=self.sweep,
            retry=self.retry,
            retry_id=self._retry_id,
            have=frozenset((self._have | self._leave) & set(trial_ids)),
            threads=device.threads if device else None,
            accelerator=device.accelerator if device else "cpu",
        )
        plan = engine.submit(spec)
        self._follow(plan, trial_ids)
        if not plan.done:
            engine.close()
            return "stopped"
        outcome = plan.outcome()
        self._collect(engine, trial_ids)
        if outcome["state"] == "error":
            raise _raised(label, outcome)
        return str(outcome["state"])

    def _follow(self, plan: Plan, trial_ids: Collection[str]) -> None:
        """Take in a plan's events until it is done, or until it was asked to stop and does not.

        Raises
        ------
        EngineLostError
            There is no way to the engine any more.
        """
        label = plan.engine.device
        asked_at = looked_at = time.monotonic()
        trouble = ""
        while not plan.done:
            self._take(label, plan.next_event(_POLL_S), trial_ids)
            now = time.monotonic()
            if not self.stop.is_set():
                asked_at = now
            else:
                plan.interrupt()
                if now - asked_at > _STOP_S:
                    return
            if now - looked_at > _LOOK_S:
                looked_at = now
                if not plan.engine.alive() and not plan.done:
                    raise EngineLostError(f"the engine of device {label} was lost")
                if (now_wrong := plan.engine.trouble()) != trouble:
                    trouble = now_wrong
                    text = (
                        f"the link to {label} is down ({replies.plain(trouble)}); trying again"
                        if trouble
                        else "the link is back"
                    )
                    self._put({"kind": "stage", "device": label, "text": text})
        while self._take(label, plan.next_event(0.01), trial_ids):
            continue

    def _take(self, label: str, came: Mapping[str, Any] | None, trial_ids: Collection[str]) -> bool:
        """Take in an event, if one has come; whether one has."""
        if came is None:
            return False
        found = replies.event(label, came, trial_ids)
        if found is not None:
            self._put(found)
        return True

    def _check_same(self, label: str, environment: Mapping[str, Any]) -> None:
        """One label is one device, in one state: numbers of two are not to be compared unknowingly."""
        before = self.environments.get(label)
        changes = unlike(before, environment) if before else []
        if changes:
            raise DeviceError(
                f"device {label} is not what it was when run {self.run_id} measured on it: {'; '.join(changes)}. "
                "Start a new run, or give what is there now a label of its own."
            )

    def _collect(self, engine: Engine, trial_ids: Collection[str]) -> None:
        """Fetch what the device has and the client has not: records whose event was lost, or of an earlier session."""
        for event in engine.collect(self.run_id, self._have & set(trial_ids), trial_ids):
            self._put(event)

    def _put(self, event: Event) -> None:
        if event["kind"] == "record":
            trial_id = event["record"]["trial_id"]
            if trial_id in self._have:
                return
            self._have.add(trial_id)
        self._events.put(event)


def _raised(device: str, outcome: Mapping[str, Any]) -> NgbkitError:
    kind = getattr(errors, str(outcome["kind"]), DeviceError)
    message = f"device {device}: {outcome['error']}"
    return (
        kind(message) if kind in (errors.JournalError, errors.FencedError, errors.UsageError) else DeviceError(message)
    )
