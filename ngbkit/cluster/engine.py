"""The client's view of one device's engine: each call goes by reference with one JSON string and returns one."""

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
from ngbkit.device.serving.load import Load
from ngbkit.device.spec import Spec
from ngbkit.device.world import World
from ngbkit.errors import DeviceError
from ngbkit.user_text import clean_line

_CHUNK_BYTES = 8 << 20
# Records in one reply: a hundred samples each, they are a few hundred kilobytes.
_RECORDS_PER_REPLY = 200
# All but a plan answers at once; an engine that has just begun another's plan answers after it.
_REPLY_S = 120.0
# A controller drops the first message if an engine is registered before its connection for messages is complete.
_RESEND_S = 15.0
# The first call, which may run twice.
_REPEATABLE = frozenset({"hello"})
# Calls that change nothing, and may meet the signal to a plan that has just ended.
_READING = frozenset({"collect", "missing"})


class EngineLostError(DeviceError):
    """The engine is gone, but not the journal of its device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """The present state of a device; None for each unknown number."""

    # The load average over a minute.
    load: float | None
    memory_available_bytes: float | None
    # Of its hottest sensor.
    temperature_c: float | None
    # The end of its engine's output.
    log: str


_VITALS = {
    "load": "load_1min",
    "memory_available_bytes": "memory_available_bytes",
    "temperature_c": "temperature_max_c",
}


def create_identity(label: str) -> str:
    """Create the identity of a device's engine; a controller refuses one that was used before."""
    return f"ngb.{label}.{secrets.token_hex(4)}"


@dataclass(slots=True, eq=False)
class Engine:
    """A connection to the engine of one device."""

    # The label of the device.
    device: str
    # The view of that one engine by a `GuardedClient`.
    view: Any
    # The device's folder, on that machine; None until the handshake.
    state_dir: Path | None = None
    # Ends the engine and all that was started for it; None for an engine of the user's own.
    stop: Callable[[], None] | None = None
    # Returns whether the connection to the engine is still there.
    is_connected: Callable[[], bool] = lambda: True
    # Returns the part of a world that the engine lacks; None for an engine elsewhere, which cannot follow it.
    adapt: Callable[[World], World | None] = lambda _: None
    # Describes the present fault of the connection; "" for none.
    trouble: Callable[[], str] = lambda: ""

    def hello(self) -> dict[str, Any]:
        """Shake hands, before any other call; return the device's `ngbkit.hardware.environment.describe`."""
        types = {"format": int, "record_format": int, "state_dir": str, "environment": dict}
        reply = replies.extract(self.device, self._call("hello", "{}"), types)
        remedy = f"Install the same ngbkit on both (`ngbkit deploy {self.device}`)."
        replies.check_formats(self.device, reply, remedy)
        self.state_dir = self.state_dir or Path(reply["state_dir"])
        note = replies.parse_note(self.device, "environment", self.device, reply["environment"])
        environment: dict[str, Any] = note["value"]
        return environment

    def describe(self, spec: Spec) -> dict[str, Any]:
        """Return the device as a plan would find it now, with digests of the variables of its children."""
        kind = "description"
        reply = replies.extract(self.device, self._call("describe", spec.to_json()), {kind: dict})
        description: dict[str, Any] = replies.parse_note(self.device, kind, self.device, reply[kind])["value"]
        return description

    def vitals(self) -> Vitals:
        """Return the present state of the device; an engine with a plan answers after it."""
        reply = replies.extract(self.device, self._call("vitals", "{}"), {"looked": dict, "log": str})
        numbers = {name: replies.parse_number(reply["looked"].get(key)) for name, key in _VITALS.items()}
        return Vitals(**numbers, log="\n".join(map(clean_line, reply["log"].splitlines())))

    def identify(self, spec: Spec) -> dict[str, tuple[str, str]]:
        """Return the content of each network by the key of its facts; empty where it must be built, with the reason."""
        reply = replies.extract(self.device, self._call("identify", spec.to_json()), {"contents": dict})
        return replies.parse_contents(self.device, reply["contents"])

    def warm(self, spec: Spec) -> None:
        """Have the engine prepare for a plan, so that the plan starts at once."""
        self._call("warm", spec.to_json())

    def is_alive(self) -> bool:
        """Return whether the engine still answers to its controller."""
        client = self.view.client
        try:
            return not client._closed and self.is_connected() and set(_list_targets(self.view)) <= set(client.ids)
        except (OSError, ipyparallel.error.IPythonError):
            return False

    def push(self, artifacts: Mapping[str, Path]) -> None:
        """Send the device the files that it lacks."""
        if not artifacts:
            return
        folder = {"state_dir": str(self.state_dir)}
        reply = self._call("missing", json.dumps({**folder, "digests": sorted(artifacts)}))
        for digest in replies.extract(self.device, reply, {"missing": list})["missing"]:
            if digest not in artifacts:
                raise ReplyError(f"device {self.device} requests a file outside of the run: {str(digest)[:80]!r}.")
            with open(artifacts[digest], "rb") as file:
                for number, chunk in enumerate(iter(lambda file=file: file.read(_CHUNK_BYTES), b"")):  # type: ignore[misc]
                    self._call("receive", json.dumps({**folder, "digest": digest, "number": number}), chunk)
            self._call("received", json.dumps({**folder, "digest": digest}))

    def submit(self, spec: Spec) -> Plan:
        """Start a plan, without waiting for it."""
        return self._start("run", spec.to_json())

    def serve(self, spec: Spec, load: Load) -> Plan:
        """Start a load test of the one network and compiler of a spec, without waiting for it."""
        return self._start("serve", json.dumps({"spec": spec.to_json(), "load": load.to_json()}))

    def _start(self, function: str, request: str) -> Plan:
        result = self.view.apply_async(_build_reference(function), request)
        return Plan(engine=self, result=result, events=self.view.client.events(result.msg_ids[0]))

    def collect(
        self, run_id: str, have: Iterable[str], trial_ids: Collection[str], retry_id: str = ""
    ) -> Iterator[Event]:
        """Yield as events the journalled records that are not in `have`, once the journal has granted a retry."""
        collected = set(have)
        types = {"records": list, "more": bool, "facts": dict, "environment": dict}
        while True:
            spec = {"run_id": run_id, "device": self.device, "state_dir": str(self.state_dir)}
            request = json.dumps({**spec, "have": sorted(collected), "most": _RECORDS_PER_REPLY, "retry_id": retry_id})
            reply = replies.extract(self.device, self._call("collect", request), types)
            for kind in ("environment", "facts"):
                for key, value in reply[kind].items():
                    yield {"kind": kind, "device": self.device, **replies.parse_note(self.device, kind, key, value)}
            batch = [replies.parse_record(self.device, record, trial_ids) for record in reply["records"]]
            for record in batch:
                yield {"kind": "record", "device": self.device, "record": record}
            fresh = {record.trial_id for record in batch} - collected
            if reply["more"] and not fresh:
                raise ReplyError(f"device {self.device} announces more records, but sends none.")
            if not reply["more"]:
                return
            collected |= fresh

    def close(self) -> None:
        """End an engine that ngbkit started."""
        if self.stop is not None:
            stop, self.stop = self.stop, None
            stop()
            # A controller that other engines share may list this one for a while.
            self.is_connected = lambda: False

    def _call(self, function: str, *arguments: Any) -> dict[str, Any]:
        """Return the reply of a short call; one that may run twice is sent again while there is none."""
        resend_s = _RESEND_S if function in _REPEATABLE else math.inf
        is_repeated = False
        while True:
            results: list[Any] = []
            try:
                answer = self._wait(results, _build_reference(function), arguments, resend_s)
                return replies.parse_answer(self.device, answer)
            except ipyparallel.error.IPythonError as error:
                if is_repeated or function not in _READING or getattr(error, "ename", "") != "KeyboardInterrupt":
                    raise _explain(self.device, error) from error
                is_repeated = True
            finally:
                for msg_id in (msg_id for result in results for msg_id in result.msg_ids):
                    self.view.client.forget(msg_id)

    def _wait(self, results: list[Any], reference: Any, arguments: tuple[Any, ...], resend_s: float) -> str:
        """Wait for the first reply of a short call, as long as the engine lives."""
        started = time.monotonic()
        while (answered := next((result for result in results if result.done()), None)) is None:
            waited_s = time.monotonic() - started
            if not results or waited_s >= len(results) * resend_s:
                results.append(self.view.apply_async(reference, *arguments))
            results[-1].wait(0.2)
            if not self.is_alive():
                raise EngineLostError(f"the engine of device {self.device} was lost")
            if waited_s > _REPLY_S:
                raise EngineLostError(f"the engine of device {self.device} did not answer within {_REPLY_S:g} s")
        return _get_first(answered.get(timeout=1))


@dataclass(slots=True, eq=False)
class Plan:
    """A plan in progress on an engine."""

    engine: Engine
    result: Any
    events: Events
    _interrupted_at: float = -math.inf

    def next_event(self, timeout_s: float) -> str | None:
        """Return the text of the next event, unchecked; None if none arrives in that time."""
        try:
            return self.events.get(timeout=timeout_s)
        except queue.Empty:
            return None

    @property
    def is_done(self) -> bool:
        return bool(self.result.done())

    def fetch_outcome(self) -> dict[str, Any]:
        """Return the plan's reply; raise EngineLostError if the engine ended first, DeviceError if the plan raised."""
        device = self.engine.device
        try:
            reply = replies.parse(device, _get_first(self.result.get(timeout=5)))
        except ipyparallel.error.IPythonError as error:
            if getattr(error, "ename", "") == "KeyboardInterrupt":
                return {"state": "stopped"}  # the signal arrived before the plan was ready for it
            raise _explain(device, error) from error
        finally:
            for msg_id in self.result.msg_ids:
                self.engine.view.client.forget(msg_id)
        types = {"state": str} if reply.get("state") != "error" else {"state": str, "kind": str, "error": str}
        return {name: clean_line(text) for name, text in replies.extract(device, reply, types).items()}

    def interrupt(self) -> None:
        """Ask the plan to stop, again every second since an engine that has not begun ignores it, until it is done."""
        if time.monotonic() - self._interrupted_at > 1:
            self._interrupted_at = time.monotonic()
            self.engine.view.client.send_signal(signal.SIGINT, targets=_list_targets(self.engine.view), block=False)


def _build_reference(function: str) -> Any:
    return ipyparallel.Reference(f"__import__('ngbkit.device.plan',fromlist=['_']).{function}")


def _list_targets(view: Any) -> list[int]:
    return [view.targets] if isinstance(view.targets, int) else list(view.targets)


def _get_first(value: Any) -> str:
    return str(value[0] if isinstance(value, list) else value)


def _explain(device: str, error: Exception) -> DeviceError:
    name, text = getattr(error, "ename", ""), str(error)
    # The controller reports a lost engine as if the engine itself had raised.
    if name == "EngineError" or isinstance(
        error, (ipyparallel.error.EngineError, ipyparallel.error.NoEnginesRegistered)
    ):
        return EngineLostError(f"the engine of device {device} was lost")
    if name == REFUSED:
        return ReplyError(f"device {device}: {clean_line(text)}")
    if "No module named 'ngbkit'" in text:
        return DeviceError(
            f"the engine of device {device} has no ngbkit: pip install ngbkit in its Python, and start it again."
        )
    return DeviceError(f"device {device} raised an error: {clean_line(text)}")
