"""One device's engine, as the client sees it: called by reference with one JSON string, answering with one."""

from __future__ import annotations

import json
import math
import queue
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ipyparallel

from ngbkit.device.spec import EVENT_MIME, FORMAT, Spec
from ngbkit.errors import DeviceError

Event = dict[str, Any]
_CHUNK_BYTES = 8 << 20
# Records in one answer: a hundred samples each, they are a few hundred kilobytes.
_COLLECT_AT_ONCE = 200


class EngineLostError(DeviceError):
    """The engine is gone; what its device's journal holds is not."""


@dataclass(slots=True)
class Engine:
    """A connection to the engine of one device.

    Parameters
    ----------
    device
        The label of the device that it is bound to.
    view
        ipyparallel's view of that one engine.
    state_dir
        Where the device keeps its files; None until the handshake, which asks the device.
    stop
        Ends the engine and all that was started for it; None for an engine of the user's own, which is left alone.
    """

    device: str
    view: Any
    state_dir: Path | None = None
    stop: Callable[[], None] | None = None

    def hello(self) -> dict[str, Any]:
        """The handshake, before anything else.

        Raises
        ------
        DeviceError
            The engine has no ngbkit, or one that speaks another format.
        """
        about = self._call("hello", "{}")
        if about["format"] != FORMAT:
            raise DeviceError(
                f"device {self.device} speaks format {about['format']}, this ngbkit {FORMAT}: "
                "install the same version on both."
            )
        self.state_dir = self.state_dir or Path(about["state_dir"])
        return about

    def alive(self) -> bool:
        """Whether the engine still answers to its controller."""
        client = self.view.client
        try:
            return not client._closed and set(_targets(self.view)) <= set(client.ids)
        except (OSError, ipyparallel.error.IPythonError):
            return False

    def push(self, artifacts: Mapping[str, Path]) -> None:
        """Bring the files to the device that it does not have yet."""
        if not artifacts:
            return
        where = {"state_dir": str(self.state_dir)}
        missing = self._call("missing", json.dumps({**where, "digests": sorted(artifacts)}))["missing"]
        for digest in missing:
            with open(artifacts[digest], "rb") as read:
                for number, chunk in enumerate(iter(lambda read=read: read.read(_CHUNK_BYTES), b"")):  # type: ignore[misc]
                    self._call("receive", json.dumps({**where, "digest": digest, "number": number}), chunk)
            self._call("received", json.dumps({**where, "digest": digest}))

    def submit(self, spec: Spec) -> Plan:
        """Start a plan; at once."""
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        result = self.view.apply_async(_reference("run"), spec.to_json())
        for child in result._children:
            child.iopub_callbacks.append(lambda message: _take(message, events))
        return Plan(engine=self, result=result, events=events)

    def collect(self, run_id: str, have: Iterable[str]) -> Iterable[dict[str, Any]]:
        """What the device's journal holds of a run and the client does not, a part at a time."""
        known = set(have)
        while True:
            spec = {"run_id": run_id, "device": self.device, "state_dir": str(self.state_dir)}
            part = self._call("collect", json.dumps({**spec, "have": sorted(known), "most": _COLLECT_AT_ONCE}))
            yield part
            if not part["more"]:
                return
            known |= {record["trial_id"] for record in part["records"]}

    def close(self) -> None:
        """End an engine that was started for the user."""
        if self.stop is not None:
            self.stop()
            self.stop = None

    def _call(self, function: str, *arguments: Any) -> dict[str, Any]:
        try:
            reply: dict[str, Any] = json.loads(self.view.apply_sync(_reference(function), *arguments))
        except ipyparallel.error.IPythonError as error:
            if _is_loss(error):
                raise EngineLostError(f"the engine of device {self.device} was lost") from error
            raise _explain(self.device, error) from error
        return reply


@dataclass(slots=True)
class Plan:
    """A plan under way on an engine."""

    engine: Engine
    result: Any
    events: queue.SimpleQueue[Event]
    _asked_at: float = -math.inf

    def next_event(self, timeout_s: float) -> Event | None:
        """The next event; None when none came in that time."""
        try:
            return self.events.get(timeout=timeout_s)
        except queue.Empty:
            return None

    @property
    def done(self) -> bool:
        return bool(self.result.done())

    def outcome(self) -> dict[str, Any]:
        """What the plan returned.

        Raises
        ------
        EngineLostError
            The engine ended before the plan did.
        DeviceError
            The plan raised.
        """
        try:
            outcome: dict[str, Any] = json.loads(_first(self.result.get(timeout=5)))
        except ipyparallel.error.IPythonError as error:
            if _is_loss(error):
                raise EngineLostError(f"the engine of device {self.engine.device} was lost") from error
            if getattr(error, "ename", "") == "KeyboardInterrupt":
                return {"state": "stopped"}  # the signal came before the plan was ready for it
            raise _explain(self.engine.device, error) from error
        return outcome

    def interrupt(self) -> None:
        """Ask the plan to stop; it kills what is in flight and returns. To be called until it has.

        An engine that has not begun with the plan yet ignores the signal, so it is sent again every second.
        """
        if time.monotonic() - self._asked_at > 1:
            self._asked_at = time.monotonic()
            self.engine.view.client.send_signal(signal.SIGINT, targets=_targets(self.engine.view), block=False)


def _take(message: Mapping[str, Any], events: queue.SimpleQueue[Event]) -> None:
    event = message["content"].get("data", {}).get(EVENT_MIME)
    if isinstance(event, dict):
        events.put(event)


def _reference(function: str) -> Any:
    return ipyparallel.Reference(f"__import__('ngbkit.device.plan',fromlist=['_']).{function}")


def _targets(view: Any) -> list[int]:
    return [view.targets] if isinstance(view.targets, int) else list(view.targets)


def _first(value: Any) -> str:
    return str(value[0] if isinstance(value, list) else value)


def _is_loss(error: Exception) -> bool:
    # The controller reports a lost engine as if the engine itself had raised.
    lost = (ipyparallel.error.EngineError, ipyparallel.error.NoEnginesRegistered)
    return isinstance(error, lost) or getattr(error, "ename", "") == "EngineError"


def _explain(device: str, error: Exception) -> DeviceError:
    text = str(error)
    if "No module named 'ngbkit'" in text:
        return DeviceError(
            f"the engine of device {device} has no ngbkit: pip install ngbkit in its Python, and start it again."
        )
    return DeviceError(f"device {device} answered with an error: {text}")
