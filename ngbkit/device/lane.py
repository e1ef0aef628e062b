"""One live child that holds one compiled trial, and what it has measured so far."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ngbkit.device.channel import Message
from ngbkit.device.servers import Child, ChildEndedError, ChildTimeoutError
from ngbkit.errors import DeviceError
from ngbkit.records import Contract, Failure, FailureStatus, Measurement, Stage
from ngbkit.resources import CpuClock, CpuUse
from ngbkit.sweep import Trial
from ngbkit.timing.rounds import settling_calls

# Warm-up lasts this long, and never more calls than this.
WARM_UP_S = 0.25
WARM_UP_CALLS = 50


class LaneFailedError(DeviceError):
    """The trial of a lane came to an end without a measurement; `failure` is its record."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error)
        self.failure = failure


@dataclass(slots=True)
class Lane:
    """A trial in a child of its own.

    Parameters
    ----------
    trial
        What is measured.
    child
        The process that it is measured in.
    timeout_s
        How long one answer of the child may take.
    interrupt
        A file descriptor that becomes readable when the run is to stop.
    """

    trial: Trial
    child: Child
    timeout_s: float
    interrupt: int
    started_at: float = field(default_factory=time.time)
    settled_call_s: float = 0.0
    _loaded: Message = field(default_factory=dict)
    _latency_s: list[float] = field(default_factory=list)
    _rounds: list[int] = field(default_factory=list)
    _cpu: CpuUse = field(default_factory=CpuUse)
    _called_s: float = 0.0

    def load(self, task: Mapping[str, Any]) -> None:
        """Build or read the network, compile it, hold it against the reference, and warm it up."""
        self._loaded = self._ask({"op": "load", **task}, "compile")
        warm = self._ask({"op": "warm", "seconds": WARM_UP_S, "most": WARM_UP_CALLS}, "measure")
        self.settled_call_s = float(warm["latency_s"])
        self._called_s += warm["spent_s"]
        self._loaded["facts"]["warm_up_calls"] = warm["calls"]

    def prepare(self, message: Message) -> Message:
        """Make what the trial's workload needs before any of its trials."""
        return self._ask(message, "export")

    def turn(self, round_number: int, calls: int) -> None:
        """Take this lane's samples of one round."""
        before = CpuClock.read()
        settle = settling_calls(self.settled_call_s)
        reply = self._ask({"op": "turn", "calls": calls, "settle": settle}, "measure")
        self._cpu.add(before, CpuClock.read())
        self._called_s += reply["spent_s"]
        self._latency_s += reply["latency_s"]
        self._rounds += [round_number] * len(reply["latency_s"])

    def finish(self, baseline_rmse: float) -> Measurement | Failure:
        """End the child; the measurement that it made, or how it failed at the last moment."""
        try:
            usage = self._ask({"op": "usage"}, "measure")
        except LaneFailedError as error:
            return error.failure
        self.child.end()
        return Measurement(
            trial_id=self.trial.id,
            latency_s=tuple(self._latency_s),
            rounds=tuple(self._rounds),
            compile_time_s=self._loaded["compile_time_s"],
            first_call_time_s=self._loaded["first_call_time_s"],
            contract=Contract(**self._loaded["contract"]),
            rmse=_number(self._loaded["rmse"]),
            baseline_rmse=baseline_rmse,
            max_abs_error=_number(self._loaded["max_abs_error"]),
            cpu_percent=self._cpu.percent,
            peak_memory_bytes=usage["peak_memory_bytes"],
            # Seconds within calls of the network, timed or not: the rest of a trial's time is the harness's own.
            facts={**self._loaded["facts"], "called_s": self._called_s},
            started_at=self.started_at,
        )

    def end(self) -> None:
        """End the child; what it measured is dropped."""
        self.child.end()

    def _ask(self, message: Message, stage: Stage) -> Message:
        try:
            reply = self.child.ask(message, self.timeout_s, self.interrupt)
        except (ChildTimeoutError, ChildEndedError) as error:
            raise LaneFailedError(self._lost(error, stage)) from error
        if "failure" in reply:
            self.child.end()
            raise LaneFailedError(Failure(trial_id=self.trial.id, started_at=self.started_at, **reply["failure"]))
        return reply

    def _lost(self, error: ChildTimeoutError | ChildEndedError, stage: Stage) -> Failure:
        status, line = _status(error)
        return Failure(
            trial_id=self.trial.id,
            status=status,
            stage=stage,
            error=line,
            detail=self.child.tail(),
            started_at=self.started_at,
        )


def _status(error: ChildTimeoutError | ChildEndedError) -> tuple[FailureStatus, str]:
    if isinstance(error, ChildTimeoutError):
        return "timeout", f"{error}; raise timeout_s if it needs longer"
    if error.out_of_memory:
        return "out-of-memory", f"{error}: the kernel ran out of memory"
    return "crashed", str(error)


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
