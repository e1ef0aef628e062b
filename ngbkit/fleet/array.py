"""Launcher of a device that is a Slurm job array: no engine answers, a command at the login node does.

A plan becomes one Slurm job array, whose indices measure on their own (`ngbkit.device.array`). The client reads their
states from the queue and their records from their journals; it may end meanwhile, and another one goes on from there.
"""

from __future__ import annotations

import json
import queue
import re
import shlex
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ngbkit.cluster import replies
from ngbkit.cluster.devices import Device
from ngbkit.cluster.engine import Engine, Vitals
from ngbkit.cluster.launchers.base import SILENT, Starter, build_python_command, quote_state_dir
from ngbkit.cluster.replies import ReplyError
from ngbkit.device.array import ArraySpec, divide
from ngbkit.device.plan import locate_journal
from ngbkit.device.spec import Spec
from ngbkit.errors import DeviceError, UsageError
from ngbkit.fleet.job_queue import LOOK_S, JobQueue, JobState, build_submission, get_queue, parse_number
from ngbkit.hardware.environment import format_cores
from ngbkit.options import STATE_DIR
from ngbkit.sweep import records
from ngbkit.workloads.subprocesses import build_arguments

# The interval between questions about the queue, which itself looks less often.
_POLL_S = 0.5
# Running indices have this long to take back what is in flight before their array is cancelled.
_INTERRUPT_S = 6.0
_REPLY_S = 300.0
_MOST_LOGS, _LOG_BYTES = 3, 1000
# How often the last collection is tried.
_MOST_TRIES = 4


class _NoView:
    """Stands in the place of the view of an engine; any use of it is an error."""

    def __init__(self, device: str) -> None:
        self._device = device

    def __getattr__(self, name: str) -> NoReturn:
        raise _build_refusal(self._device)


def start(device: Device, starter: Starter = SILENT) -> Engine:
    """Return the login node's answers; a plan submits the array."""
    del starter  # nothing runs before a plan
    return ArrayEngine(device.label, _NoView(device.label), configuration=device)


@dataclass(slots=True, eq=False)
class ArrayEngine(Engine):
    """The calls of an engine, each a command in the login node's shell."""

    configuration: Device = field(kw_only=True)

    def hello(self) -> dict[str, Any]:
        """Shake hands; the login node's environment is not that of a node, so none is returned."""
        Engine.hello(self)
        return {}

    def describe(self, spec: Spec) -> dict[str, Any]:
        """Return nothing: no job runs on a node yet."""
        del spec
        return {}

    def identify(self, spec: Spec) -> dict[str, tuple[str, str]]:
        """Return nothing: networks are built on the nodes."""
        del spec
        return {}

    def vitals(self) -> Vitals:
        """Raise UsageError: the present state of the login node is none of the nodes'."""
        raise _build_refusal(self.device)

    def is_alive(self) -> bool:
        return True

    def submit(self, spec: Spec) -> ArrayPlan:  # type: ignore[override]  # with the methods of a plan
        """Start a plan, without waiting for it."""
        return ArrayPlan.start(self, spec)

    def _call(self, function: str, *arguments: Any) -> dict[str, Any]:
        request, *chunk = arguments
        folder = quote_state_dir(self.configuration)
        command = build_python_command(self.configuration, *build_arguments("ngbkit.device.plan", "--call", function))
        stdin = request.encode() + b"\n" + b"".join(chunk)
        try:
            output = self.configuration.shell.run(
                f"export {STATE_DIR}={folder}\n{command}", stdin=stdin, timeout_s=_REPLY_S
            )
        except DeviceError as error:
            if "No module named" in str(error) or "not found" in str(error):
                raise DeviceError(f"{error} Install ngbkit there: `ngbkit deploy {self.device}`") from None
            raise
        # A login shell may print before it.
        return replies.parse_answer(self.device, (output.strip().splitlines() or [""])[-1])


@dataclass(slots=True, eq=False)
class ArrayPlan:
    """A plan in progress as a job array, followed by a thread of its own."""

    engine: ArrayEngine
    spec: Spec
    # The trials of each index.
    shares: Sequence[frozenset[str]]
    _events: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    _recorded: set[str] = field(default_factory=set)
    _states: Mapping[int, JobState] = field(default_factory=dict)
    _notes: dict[tuple[str, str], Any] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _done: threading.Event = field(default_factory=threading.Event)
    _outcome: dict[str, Any] = field(default_factory=dict)
    _text: str = ""
    # Why the last collection failed.
    _fault: str = ""

    @classmethod
    def start(cls, engine: ArrayEngine, spec: Spec) -> ArrayPlan:
        shares = divide(spec.sweep, spec.device, engine.configuration.indices or 1)
        plan = cls(engine, spec, shares)
        threading.Thread(target=plan._drive, name=f"ngbkit-array-{spec.device}", daemon=True).start()
        return plan

    def next_event(self, timeout_s: float) -> str | None:
        """Return the text of the next event; None if none arrives in that time."""
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def fetch_outcome(self) -> dict[str, Any]:
        """Return the state of the plan, with the error if it failed."""
        return self._outcome

    def interrupt(self) -> None:
        """Ask the plan to stop, which cancels the array."""
        self._stop.set()

    def _drive(self) -> None:
        queue = get_queue(self.engine.configuration.host)
        self.engine.trouble = lambda: queue.fault or self._fault
        try:
            self._outcome = {"state": self._measure(queue)}
        except DeviceError as error:
            self._outcome = {"state": "error", "kind": type(error).__name__, "error": str(error)}
        except Exception as error:  # noqa: BLE001  whoever waits for the plan must learn of its end
            self._outcome = {"state": "error", "kind": "DeviceError", "error": f"the plan failed with {error!r}"}
        finally:
            self._done.set()

    def _measure(self, queue: JobQueue) -> str:
        """Follow the array of an earlier client, if one is left; then submit what is missing."""
        is_retry = bool(self.spec.retry or self.spec.retry_ids)
        earlier = self._run_there(f"cat {self._quote('job')} 2>/dev/null || true")
        if re.fullmatch(r"\d+", earlier) and not self._follow(queue, earlier, cancels=is_retry):
            return "stopped"
        if not (missing := self._list_missing()):
            return "finished"
        if self._stop.is_set() or not self._follow(queue, self._submit(missing)):
            return "stopped"
        if missing := self._list_missing():
            raise self._explain(missing)
        return "finished"

    def _list_missing(self) -> list[int]:
        """List the indices whose share has a trial without a record."""
        done = self.spec.have | self._recorded
        return [index for index, share in enumerate(self.shares) if share - done]

    def _submit(self, indices: Sequence[int]) -> str:
        """Submit an array of these indices; return its number."""
        device, folder = self.engine.configuration, shlex.quote(str(self._folder))
        array = ArraySpec(
            spec=self.spec, indices=len(self.shares), cores=device.cores, environment=device.environment()
        )
        save = f"umask 077 && mkdir -p {folder} && cd {folder} && cat > .spec && mv .spec spec.json"
        device.shell.run(save, stdin=array.to_json().encode())
        command = build_python_command(device, *build_arguments("ngbkit.device.plan", str(self._folder / "spec.json")))
        script = f"#!/bin/sh\numask 077\n{device.setup}\n{command}\n"
        log = shlex.quote(f"{self._folder}/%a.log")
        # In one command with the note of its number: no client that ends between them leaves an unknown array.
        submission = build_submission(device.label, log, [*device.sbatch, f"--array={format_cores(indices)}"])
        note = "number=$(tail -n 1 .job) && echo ${number%%;*} > job && rm .job && cat job"
        program = f"cd {folder} && umask 077 && {submission} > .job && {note}"
        return parse_number(device.shell.run(program, stdin=script.encode()))

    def _follow(self, queue: JobQueue, number: str, *, cancels: bool = False) -> bool:
        """Report an array until all of its indices have ended; return False if the plan is to stop."""
        queue.add(number, self.engine.configuration.shell)
        due_at, ran = time.monotonic() + LOOK_S, False
        try:
            while not (self._stop.is_set() or cancels):
                states = queue.read_indices(number)
                if states is not None:
                    self._report(number, states)
                    if all(state.has_ended for state in states.values()):
                        break
                    ran = ran or set(_count(states)) != {"waiting"}
                    if ran and time.monotonic() > due_at:
                        self._collect_unless_down()
                        due_at = time.monotonic() + LOOK_S
                self._stop.wait(_POLL_S)
            else:
                self._cancel(queue, number)
            for _ in range(_MOST_TRIES - 1):
                if self._collect_unless_down() or self._stop.wait(LOOK_S):
                    break
            else:
                self._collect()
        finally:
            queue.remove(number)
        return not self._stop.is_set()

    def _collect_unless_down(self) -> bool:
        """Collect; return False if the login node could not be reached, for another try later."""
        try:
            self._collect()
        except ReplyError:
            raise
        except DeviceError as error:
            self._fault = str(error)
            return False
        self._fault = ""
        return True

    def _cancel(self, queue: JobQueue, number: str) -> None:
        """Cancel an array: what waits at once, what runs after it has taken back what is in flight."""
        shell = self.engine.configuration.shell
        shell.run(f"scancel --state=PENDING {number}; scancel --batch --signal=INT {number} || true")
        queue.wait_until_gone(number, _INTERRUPT_S)
        shell.run(f"scancel {number} || true")

    def _collect(self) -> None:
        """Pass on the records that the journals have and the client has not."""
        trial_ids = frozenset().union(*self.shares)
        have = (self.spec.have & trial_ids) | self._recorded
        retry_id = self.spec.retry_id if self.spec.retry or self.spec.retry_ids else ""
        for event in self.engine.collect(self.spec.run_id, have, trial_ids, retry_id):
            if event["kind"] == "record":
                self._recorded.add(event["record"].trial_id)
                event["record"] = records.to_json(event["record"])
            else:
                key = event["kind"], event["key"]
                if self._notes.get(key) == event["value"]:
                    continue
                self._notes[key] = event["value"]
            self._events.put(json.dumps(event))

    def _report(self, number: str, states: Mapping[int, JobState]) -> None:
        """Report how many indices wait, run and have ended, at each change."""
        self._states = {**self._states, **states}
        counts, waiting = _count(states), next((s.reason for s in states.values() if s.name == "PENDING"), "")
        text = f"array {number}: " + ", ".join(
            f"{counts[name]} of {sum(counts.values())} {verb}"
            for name, verb in (("waiting", f"wait ({waiting})"), ("running", "run"), ("ended", "have ended"))
            if counts[name]
        )
        if text != self._text:
            self._text = text
            self._events.put(json.dumps({"kind": "stage", "text": text}))

    def _explain(self, missing: Sequence[int]) -> DeviceError:
        """Build the error for indices that ended before they had measured their share, with the ends of their logs."""
        done = self.spec.have | self._recorded
        lines = []
        for index in missing[:_MOST_LOGS]:
            log = self._run_there(f"tail -c {_LOG_BYTES} {self._quote(f'{index}.log')} 2>/dev/null || true")
            state = self._states.get(index, JobState("")).name or "gone from the queue"
            lines.append(
                f"index {index} ({state.lower()}) lacks {len(self.shares[index] - done)} of {len(self.shares[index])} "
                f"trials; its log ends with: {log.strip() or '(nothing)'}"
            )
        if len(missing) > _MOST_LOGS:
            lines.append(f"so do indices {format_cores(missing[_MOST_LOGS:])}")
        return DeviceError(
            f"{len(missing)} of {len(self.shares)} indices ended before they had measured their share: "
            f"{'; '.join(lines)}. All records are kept: `ngbkit runs --resume {self.spec.run_id}` measures what is "
            "missing."
        )

    def _run_there(self, program: str) -> str:
        return self.engine.configuration.shell.run(program).strip()

    @property
    def _folder(self) -> Path:
        return locate_journal(self.spec.state_dir, self.spec.device, self.spec.run_id).with_suffix("")

    def _quote(self, name: str) -> str:
        return shlex.quote(str(self._folder / name))


def _build_refusal(device: str) -> UsageError:
    return UsageError(
        f"device {device} is a job array, which has no engine: it only measures sweeps. Add a device with "
        'launch = "slurm" for the rest.'
    )


def _count(states: Mapping[int, JobState]) -> Counter[str]:
    """Count the indices that wait, run and have ended."""
    return Counter(
        "ended" if state.has_ended else "waiting" if state.name == "PENDING" else "running" for state in states.values()
    )
