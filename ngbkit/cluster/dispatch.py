"""A sweep on its devices, all at once: connect, send each its plan, pass on what comes back, outlive a lost engine."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ngbkit import errors
from ngbkit.cluster import local
from ngbkit.cluster.engine import Engine, EngineLostError, Event
from ngbkit.device.spec import Spec
from ngbkit.errors import DeviceError, NgbkitError, UnknownNameError
from ngbkit.sweep import Sweep

# An engine that is lost this often without a single record in between is not started again.
_MOST_LOSSES = 4
# A plan that was asked to stop kills what is in flight; one that has not returned by then is killed itself.
_STOP_S = 15.0
_POLL_S = 0.1


@dataclass(slots=True, kw_only=True)
class Dispatch:
    """One run's work on its devices.

    Parameters
    ----------
    run_id, sweep, retry
        What the plans are told.
    on_event
        Takes every event, on the thread that called `carry_out`.
    stop
        Set by whoever wants the run to stop.
    """

    run_id: str
    sweep: Sweep
    retry: frozenset[str]
    on_event: Callable[[Event], None]
    stop: threading.Event
    _events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    _have: set[str] = field(default_factory=set)

    def carry_out(self, engines: Mapping[str, Engine], have: set[str]) -> str:
        """Measure what is missing on every device; ``"finished"`` or ``"stopped"``.

        Raises
        ------
        NgbkitError
            A device failed. The others have been carried to their end first.
        """
        self._have = set(have)
        devices = self.sweep.devices
        with ThreadPoolExecutor(max_workers=len(devices), thread_name_prefix="ngbkit-device") as pool:
            waiting = [pool.submit(self._device, device, engines.get(device)) for device in devices]
            try:
                while not all(future.done() for future in waiting):
                    self._pass_on(_POLL_S)
            except BaseException:
                self.stop.set()  # a journal that cannot be written: nothing more may be measured
                raise
            self._pass_on(0)
        return (
            "finished" if all(state == "finished" for state in [future.result() for future in waiting]) else "stopped"
        )

    def _pass_on(self, timeout_s: float) -> None:
        """Hand over the events that have come; waits for the first."""
        try:
            event = self._events.get(timeout=timeout_s) if timeout_s else self._events.get_nowait()
            while True:
                self.on_event(event)
                event = self._events.get_nowait()
        except queue.Empty:
            return

    def _device(self, device: str, given: Engine | None) -> str:
        """One device's plan, on as many engines as it takes."""
        losses = 0
        retry = self.retry
        while True:
            if self.stop.is_set():
                return "stopped"
            engine = given or local.engine(device)
            before = len(self._have)
            try:
                return self._plan(engine, retry)
            except EngineLostError as error:
                engine.close()
                # What was to be run again has been taken out of the journal, or will be found there.
                retry = frozenset()
                losses = losses + 1 if len(self._have) == before else 1
                if given is not None or losses >= _MOST_LOSSES:
                    raise DeviceError(
                        f"{error}. What it measured is kept: `ngbkit resume {self.run_id}` goes on."
                    ) from error
                self._put({"kind": "stage", "device": device, "text": f"{error}; starting another"})

    def _plan(self, engine: Engine, retry: frozenset[str]) -> str:
        engine.hello()
        assert engine.state_dir is not None
        engine.push({digest: path for workload in self.sweep.workloads for digest, path in workload.artifacts.items()})
        if not retry:
            self._collect(engine)
        spec = Spec(run_id=self.run_id, device=engine.device, state_dir=engine.state_dir, sweep=self.sweep, retry=retry)
        plan = engine.submit(spec)
        asked_since: float | None = None
        while not plan.done:
            event = plan.next_event(_POLL_S)
            if event is not None:
                self._put(event)
            if self.stop.is_set():
                asked_since = (asked_since or 0.0) + (_POLL_S if event is None else 0.0)
                plan.interrupt()
                if asked_since > _STOP_S:
                    engine.close()
                    return "stopped"
        while (event := plan.next_event(0.01)) is not None:
            self._put(event)
        outcome = plan.outcome()
        self._collect(engine)
        if outcome["state"] == "error":
            raise _raised(engine.device, outcome)
        return str(outcome["state"])

    def _collect(self, engine: Engine) -> None:
        """Fetch what the device has and the client has not: records whose event was lost, or of an earlier session."""
        for part in engine.collect(self.run_id, self._have):
            for kind in ("environment", "facts"):
                for key, value in part[kind].items():
                    self._put({"kind": kind, "device": engine.device, "key": key, "value": value})
            for record in part["records"]:
                self._put({"kind": "record", "device": engine.device, "record": record})

    def _put(self, event: Event) -> None:
        if event["kind"] == "record":
            trial_id = event["record"]["trial_id"]
            if trial_id in self._have:
                return
            self._have.add(trial_id)
        self._events.put(event)


def known_devices() -> dict[str, str]:
    """The devices that can be named, each with what it is."""
    return {"cpu": "this machine's CPU"}


def check_devices(labels: Iterable[str]) -> None:
    """Raise UnknownNameError for the first label that no device has."""
    known = known_devices()
    for label in labels:
        if label not in known:
            raise UnknownNameError("device", label, known, "Without a devices file there is one, this machine's CPU.")


def _raised(device: str, outcome: Mapping[str, Any]) -> NgbkitError:
    kind = getattr(errors, str(outcome["kind"]), DeviceError)
    message = f"device {device}: {outcome['error']}"
    return (
        kind(message) if kind in (errors.JournalError, errors.FencedError, errors.UsageError) else DeviceError(message)
    )
