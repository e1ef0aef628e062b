"""One device's engine, as the client sees it: called by reference with one JSON string, answering with one."""

from __future__ import annotations

import json
import math
import queue
import secrets
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ipyparallel

from ngbkit.cluster import replies
from ngbkit.cluster.replies import Event, ReplyError
from ngbkit.cluster.safe_client import REFUSED, Events
from ngbkit.device.spec import FORMAT, Spec
from ngbkit.errors import DeviceError
from ngbkit.sweep import records

_CHUNK_BYTES = 8 << 20
# Records in one answer: a hundred samples each, they are a few hundred kilobytes.
_COLLECT_AT_ONCE = 200
# What is not a plan answers at once; an engine that has just begun with a plan of another's answers after it.
_ANSWER_S = 120.0


class EngineLostError(DeviceError):
    """The engine is gone; what its device's journal holds is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """How a device is at one moment; None for what it does not tell.

    Parameters
    ----------
    load
        Its load average over a minute.
    memory_available_bytes
        What may still be taken.
    temperature_c
        Of its hottest sensor.
    log
        The end of what its engine has printed.
    """

    load: float | None
    memory_available_bytes: float | None
    temperature_c: float | None
    log: str


_VITALS = {
    "load": "load_1min",
    "memory_available_bytes": "memory_available_bytes",
    "temperature_c": "temperature_max_c",
}


def identity(label: str) -> str:
    """What an engine of that device is called by its controller, who refuses a name that was used before."""
    return f"ngb.{label}.{secrets.token_hex(4)}"


@dataclass(slots=True, eq=False)
class Engine:
    """A connection to the engine of one device.

    Parameters
    ----------
    device
        The label of the device that it is bound to.
    view
        The view of that one engine by a `GuardedClient`.
    state_dir
        Where the device keeps its files, in its own words; None until the handshake, which asks the device.
    stop
        Ends the engine and all that was started for it; None for an engine of the user's own, which is left alone.
    alive_too
        Whether what the way to the engine is made of is still there.
    trouble
        What is wrong with the way to it at this moment; ``""`` for nothing.
    """

    device: str
    view: Any
    state_dir: Path | None = None
    stop: Callable[[], None] | None = None
    alive_too: Callable[[], bool] = lambda: True
    trouble: Callable[[], str] = lambda: ""

    def hello(self) -> dict[str, Any]:
        """The handshake, before anything else: what the device is, as `ngbkit.hardware.environment.describe` tells it.

        Raises
        ------
        DeviceError
            The engine has no ngbkit, or one that speaks another format.
        """
        kinds = {"format": int, "record_format": int, "state_dir": str, "environment": dict}
        about = replies.take(self.device, self._call("hello", "{}"), kinds)
        for name, own in (("format", FORMAT), ("record_format", records.FORMAT)):
            if about[name] != own:
                raise DeviceError(
                    f"device {self.device} speaks {name.replace('_', ' ')} {about[name]}, this ngbkit {own}: install "
                    f"the same version on both (`ngbkit deploy {self.device}`)."
                )
        self.state_dir = self.state_dir or Path(about["state_dir"])
        environment: dict[str, Any] = replies.note(self.device, "environment", self.device, about["environment"])[
            "value"
        ]
        return environment

    def vitals(self) -> Vitals:
        """How the device is at this moment; an engine that carries out a plan answers after it.

        Raises
        ------
        DeviceError
            The engine was lost, or does not answer.
        """
        reply = self._call("vitals", "{}")
        found = replies.take(self.device, reply, {"looked": dict, "log": str})
        numbers = {name: replies.number(found["looked"].get(key)) for name, key in _VITALS.items()}
        return Vitals(**numbers, log="\n".join(map(replies.plain, found["log"].splitlines())))

    def warm(self, spec: Spec) -> None:
        """Have the engine start what a plan will need, so that the plan need not.

        Raises
        ------
        DeviceError
            The engine was lost, or does not answer.
        """
        self._call("warm", spec.to_json())

    def alive(self) -> bool:
        """Whether the engine still answers to its controller."""
        client = self.view.client
        try:
            return not client._closed and self.alive_too() and set(_targets(self.view)) <= set(client.ids)
        except (OSError, ipyparallel.error.IPythonError):
            return False

    def push(self, artifacts: Mapping[str, Path]) -> None:
        """Bring the files to the device that it does not have yet."""
        if not artifacts:
            return
        where = {"state_dir": str(self.state_dir)}
        reply = self._call("missing", json.dumps({**where, "digests": sorted(artifacts)}))
        for digest in replies.take(self.device, reply, {"missing": list})["missing"]:
            if digest not in artifacts:
                raise ReplyError(f"device {self.device} asks for a file that it was not offered: {str(digest)[:80]!r}.")
            with open(artifacts[digest], "rb") as read:
                for number, chunk in enumerate(iter(lambda read=read: read.read(_CHUNK_BYTES), b"")):  # type: ignore[misc]
                    self._call("receive", json.dumps({**where, "digest": digest, "number": number}), chunk)
            self._call("received", json.dumps({**where, "digest": digest}))

    def submit(self, spec: Spec) -> Plan:
        """Start a plan; at once."""
        result = self.view.apply_async(_reference("run"), spec.to_json())
        return Plan(engine=self, result=result, events=self.view.client.events(result.msg_ids[0]))

    def collect(self, run_id: str, have: Iterable[str], trial_ids: Collection[str]) -> Iterator[Event]:
        """What the device's journal holds of a run and the client does not, as events, a part at a time."""
        known = set(have)
        kinds = {"records": list, "more": bool, "facts": dict, "environment": dict}
        while True:
            spec = {"run_id": run_id, "device": self.device, "state_dir": str(self.state_dir)}
            asked = json.dumps({**spec, "have": sorted(known), "most": _COLLECT_AT_ONCE})
            part = replies.take(self.device, self._call("collect", asked), kinds)
            for kind in ("environment", "facts"):
                for key, value in part[kind].items():
                    yield {"kind": kind, "device": self.device, **replies.note(self.device, kind, key, value)}
            found = [replies.record(self.device, came, trial_ids) for came in part["records"]]
            for record in found:
                yield {"kind": "record", "device": self.device, "record": record}
            fresh = {record["trial_id"] for record in found} - known
            if part["more"] and not fresh:
                raise ReplyError(f"device {self.device} says that it has more records, and sends none.")
            if not part["more"]:
                return
            known |= fresh

    def close(self) -> None:
        """End an engine that was started for the user."""
        if self.stop is not None:
            stop, self.stop = self.stop, None
            stop()

    def _call(self, function: str, *arguments: Any) -> dict[str, Any]:
        result = self.view.apply_async(_reference(function), *arguments)
        try:
            return replies.read(self.device, self._wait(result))
        except ipyparallel.error.IPythonError as error:
            raise _explain(self.device, error) from error
        finally:
            for msg_id in result.msg_ids:
                self.view.client.forget(msg_id)

    def _wait(self, result: Any) -> str:
        """The answer of a short call, as long as there is someone to give it."""
        ends = time.monotonic() + _ANSWER_S
        while not result.done():
            result.wait(0.2)
            if not self.alive():
                raise EngineLostError(f"the engine of device {self.device} was lost")
            if time.monotonic() > ends:
                raise EngineLostError(f"the engine of device {self.device} did not answer within {_ANSWER_S:g} s")
        return _first(result.get(timeout=1))


@dataclass(slots=True, eq=False)
class Plan:
    """A plan under way on an engine."""

    engine: Engine
    result: Any
    events: Events
    _asked_at: float = -math.inf

    def next_event(self, timeout_s: float) -> dict[str, Any] | None:
        """The next event, as it came; None when none came in that time."""
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
        device = self.engine.device
        try:
            reply = replies.read(device, _first(self.result.get(timeout=5)))
            kinds = {"state": str} if reply.get("state") != "error" else {"state": str, "kind": str, "error": str}
            return {name: replies.plain(text) for name, text in replies.take(device, reply, kinds).items()}
        except ipyparallel.error.IPythonError as error:
            if getattr(error, "ename", "") == "KeyboardInterrupt":
                return {"state": "stopped"}  # the signal came before the plan was ready for it
            raise _explain(device, error) from error
        finally:
            for msg_id in self.result.msg_ids:
                self.engine.view.client.forget(msg_id)

    def interrupt(self) -> None:
        """Ask the plan to stop; it kills what is in flight and returns. To be called until it has.

        An engine that has not begun with the plan yet ignores the signal, so it is sent again every second.
        """
        if time.monotonic() - self._asked_at > 1:
            self._asked_at = time.monotonic()
            self.engine.view.client.send_signal(signal.SIGINT, targets=_targets(self.engine.view), block=False)


def _reference(function: str) -> Any:
    return ipyparallel.Reference(f"__import__('ngbkit.device.plan',fromlist=['_']).{function}")


def _targets(view: Any) -> list[int]:
    return [view.targets] if isinstance(view.targets, int) else list(view.targets)


def _first(value: Any) -> str:
    return str(value[0] if isinstance(value, list) else value)


def _explain(device: str, error: Exception) -> DeviceError:
    name, text = getattr(error, "ename", ""), str(error)
    # The controller reports a lost engine as if the engine itself had raised.
    if name == "EngineError" or isinstance(
        error, (ipyparallel.error.EngineError, ipyparallel.error.NoEnginesRegistered)
    ):
        return EngineLostError(f"the engine of device {device} was lost")
    if name == REFUSED:
        return ReplyError(f"device {device}: {replies.plain(text)}")
    if "No module named 'ngbkit'" in text:
        return DeviceError(
            f"the engine of device {device} has no ngbkit: pip install ngbkit in its Python, and start it again."
        )
    return DeviceError(f"device {device} answered with an error: {replies.plain(text)}")
