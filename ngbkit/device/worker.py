"""One live child that holds one compiled trial, and what it has measured so far."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ngbkit.device.channel import Message
from ngbkit.device.servers import Child, ChildEndedError, ChildTimeoutError
from ngbkit.device.timing.rounds import settling_calls
from ngbkit.device.timing.sampling import block_size
from ngbkit.errors import DeviceError
from ngbkit.hardware import environment
from ngbkit.hardware.conditions import Watch
from ngbkit.hardware.resources import CpuClock, CpuUse
from ngbkit.hardware.telemetry import Meter, Use
from ngbkit.sweep.records import Contract, Failure, FailureStatus, Measurement, Stage
from ngbkit.sweep.trials import Trial

# Long enough for the energy of a turn by a counter that is renewed every tenth of a second.
_ENERGY_TURN_S = 1.5


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
    told
        Takes what the child tells of a search for fast code.
    meter
        Reads the chip while this lane has its turns.

    Attributes
    ----------
    settled_call_s
        How long a call takes after warm-up, in seconds.
    peak_memory_bytes
        Of the child, once it is warm.
    looks
        How often the stopping rule has looked at this lane.
    """

    trial: Trial
    child: Child
    timeout_s: float
    interrupt: int
    told: Callable[[Message], None]
    meter: Meter
    started_at: float = field(default_factory=time.time)
    settled_call_s: float = 0.0
    peak_memory_bytes: int = 0
    looks: int = 0
    interleaved: bool = True
    _loaded: Message = field(default_factory=dict)
    _warm_s: float | None = None
    _watch: Watch = field(init=False)
    _latency_s: list[float] = field(default_factory=list)
    _rounds: list[int] = field(default_factory=list)
    _disturbed: list[int] = field(default_factory=list)
    _cpu: CpuUse = field(default_factory=CpuUse)
    _warm_up_s: float = 0.0
    _turns_s: float = 0.0
    _timed_s: float = 0.0
    _turns_cpu_s: float = 0.0

    def __post_init__(self) -> None:
        self._watch = Watch(self.child.pid)

    def load(self, task: Mapping[str, Any]) -> None:
        """Build or read the network, compile it and hold it against the reference."""
        self._loaded = self._ask({"op": "load", **task}, "compile")

    @property
    def compile_time_s(self) -> float:
        """How long `load` took to compile, with the time that earlier tuning had saved it: that of a cold compile."""
        return float(self._loaded["compile_time_s"]) + float(self._loaded["reused_s"])

    def compiled_cold(self, seconds: float) -> None:
        """What `load` did found a cache; with an empty one it had taken so long."""
        self._warm_s = float(self._loaded["compile_time_s"])
        self._loaded |= {"compile_time_s": seconds, "reused_s": 0.0}

    def warm_up(self) -> None:
        """Call it until calls no longer get faster."""
        warm = self._ask({"op": "warm"}, "measure")
        self.settled_call_s, self.peak_memory_bytes = float(warm["call_s"]), int(warm["peak_memory_bytes"])
        self._warm_up_s = float(warm["spent_s"])
        self._loaded["facts"] |= {"warm_up_calls": warm["calls"], "warm_up_steady": warm["steady"]}

    def prepare(self, message: Message) -> Message:
        """Make what the trial's workload needs before any of its trials."""
        return self._ask(message, "export")

    def turn(self, round_number: int, samples: int) -> None:
        """Take this lane's samples of one round."""
        block, settle = block_size(self.settled_call_s), settling_calls(self.settled_call_s)
        before = CpuClock.read()
        self._watch.mark()
        with self.meter.turn():
            reply = self._ask({"op": "turn", "samples": samples, "block": block, "settle": settle}, "measure")
        if self._watch.since().disturbed:
            self._disturbed.append(round_number)
        self._cpu.add(before, CpuClock.read())
        self._turns_s += reply["spent_s"]
        self._timed_s += reply["timed_s"]
        self._turns_cpu_s += reply["cpu_s"]
        self._latency_s += reply["latency_s"]
        self._rounds += [round_number] * len(reply["latency_s"])

    def round_medians(self) -> dict[int, float]:
        """The median latency of each round so far, in seconds."""
        rounds, latency = np.array(self._rounds), np.array(self._latency_s)
        return {int(number): float(np.median(latency[rounds == number])) for number in np.unique(rounds)}

    def finish(self, baseline_rmse: float) -> Measurement | Failure:
        """End the child; the measurement that it made, or how it failed at the last moment."""
        try:
            use = self._read_chip()
            usage = self._ask({"op": "usage"}, "measure")
        except LaneFailedError as error:
            return error.failure
        explained, precision = self._explain(), self._loaded["contract"]["precision"]
        self.child.end()
        return Measurement(
            trial_id=self.trial.id,
            latency_s=tuple(self._latency_s),
            rounds=tuple(self._rounds),
            compile_time_s=self.compile_time_s,
            compile_time_warm_s=self._warm_s,
            first_call_time_s=self._loaded["first_call_time_s"],
            # Some runtimes tell only afterwards what their heavy operators really computed in.
            contract=Contract(**{**self._loaded["contract"], "precision": explained.get("precision") or precision}),
            rmse=_number(self._loaded["rmse"]),
            baseline_rmse=baseline_rmse,
            max_abs_error=_number(self._loaded["max_abs_error"]),
            calls_per_sample=block_size(self.settled_call_s),
            disturbed_rounds=tuple(self._disturbed),
            interleaved=self.interleaved,
            looks=self.looks,
            cpu_percent=self._cpu.percent,
            process_cpu_percent=self._process_cpu_percent(),
            peak_memory_bytes=usage["peak_memory_bytes"],
            gpu_percent=use.gpu_percent,
            gpu_memory_bytes=use.peak_memory_bytes,
            energy_j=self._energy(use),
            # Seconds within calls of the network, and within those that were timed: the rest is the harness's own.
            facts={
                **self._loaded["facts"],
                **explained,
                "called_s": self._warm_up_s + self._turns_s,
                "timed_s": self._timed_s,
                **({"chip": use.facts()} if use.samples else {}),
            },
            started_at=self.started_at,
        )

    def _read_chip(self) -> Use:
        """What the chip told in all turns; where they were too short for its energy, in one more that is not kept."""
        use = self.meter.use()
        if use.samples and use.energy_j is None and self.settled_call_s:
            samples = math.ceil(_ENERGY_TURN_S / (self.settled_call_s * block_size(self.settled_call_s)))
            with self.meter.turn():
                message = {"op": "turn", "samples": samples, "block": block_size(self.settled_call_s), "settle": 0}
                self._ask(message, "measure")
            use = replace(use, energy_j=self.meter.use().energy_j, turns_s=self.meter.use().turns_s)
        return use

    def _energy(self, use: Use) -> float | None:
        """Joules that one call takes: the mean power over the turns, for as long as a call takes."""
        if use.energy_j is None or not use.turns_s or not self._latency_s:
            return None
        return use.energy_j / use.turns_s * float(np.median(self._latency_s))

    def _explain(self) -> Mapping[str, Any]:
        """What the compiler can tell of its work, when nothing is left to be timed."""
        try:
            facts: Mapping[str, Any] = self._ask({"op": "explain"}, "measure")["facts"]
        except LaneFailedError as error:
            return {"explain_error": error.failure.error}
        return facts

    def _process_cpu_percent(self) -> float | None:
        cores_s = self._turns_s * environment.cores_usable()
        return 100 * self._turns_cpu_s / cores_s if cores_s else None

    def end(self) -> None:
        """End the child; what it measured is dropped."""
        self.child.end()

    def _ask(self, message: Message, stage: Stage) -> Message:
        try:
            reply = self.child.ask(message, self.timeout_s, self.interrupt, self.told)
        except (ChildTimeoutError, ChildEndedError) as error:
            raise LaneFailedError(self._lost(error, stage)) from error
        if "failure" in reply:
            printed = self.child.tail()
            self.child.end()
            told = {**reply["failure"], "detail": "\n".join(filter(None, [reply["failure"]["detail"], printed]))}
            raise LaneFailedError(Failure(trial_id=self.trial.id, started_at=self.started_at, **told))
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
