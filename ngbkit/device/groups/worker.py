"""The worker of one compiled trial: a live child and its measurements so far."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from ngbkit import limits
from ngbkit.device.groups.turn_log import TurnLog
from ngbkit.device.isolation.channel import Message
from ngbkit.device.isolation.profiling import build_refusal
from ngbkit.device.isolation.servers import Child, ChildEndedError, ChildTimeoutError
from ngbkit.device.timing.patience import PIECE_S, SPARED, Patience
from ngbkit.device.timing.rounds import count_settling_calls
from ngbkit.device.timing.sampling import choose_block_size
from ngbkit.errors import DeviceError, DiskError
from ngbkit.files import check_disk
from ngbkit.hardware import environment, resources
from ngbkit.hardware.conditions import InterferenceMonitor
from ngbkit.hardware.host import HostMonitor
from ngbkit.hardware.resources import CpuClock, CpuUse
from ngbkit.hardware.telemetry import Meter, Use
from ngbkit.sweep.records import Contract, Failure, FailureStatus, Measurement, Stage
from ngbkit.sweep.trials import Trial

# The share of the memory that was free at its first turn by which a worker may grow, and what is no growth.
_MOST_GROWTH, _NOTABLE_BYTES = 0.25, 64_000_000
# Long enough for the energy of a turn by a counter that is updated every tenth of a second.
_ENERGY_TURN_S = 1.5


class TrialFailedError(DeviceError):
    """The trial of a worker ended without a measurement; `failure` is its record."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error)
        self.failure = failure


@dataclass(slots=True, kw_only=True)
class Worker(TurnLog):
    """A trial in a child of its own."""

    trial: Trial
    child: Child
    # The limit of one answer of the child.
    timeout_s: float
    # A file descriptor that becomes readable when the run is to stop.
    interrupt: int
    # Receives the child's progress in a search for fast code.
    report: Callable[[Message], None]
    # Reads the chip during the turns of this worker.
    meter: Meter
    # Tells how the host runs the cores; None where nobody asks.
    host: HostMonitor | None = None
    started_at: float = field(default_factory=time.time)
    # The duration of a call after warm-up.
    steady_call_s: float = 0.0
    # Of the child, when it was last asked.
    peak_memory_bytes: int = 0
    # The looks of the stopping rule at this worker.
    looks: int = 0
    interleaved: bool = True
    # The number of the set of workers that take turns.
    bundle: int | None = None
    # The record of the profile, once it is complete, or of the reason why there is none.
    profile: Mapping[str, Any] = field(default_factory=dict)
    _loaded: Message = field(default_factory=dict)
    _warm_compile_s: float | None = None
    _monitor: InterferenceMonitor = field(init=False)
    _cpu: CpuUse = field(default_factory=CpuUse)
    _warm_up_s: float = 0.0
    # Of the chip, once all turns are over.
    _use: Use | None = None

    def __post_init__(self) -> None:
        self._monitor = InterferenceMonitor(self.child.pid)

    def load(self, task: Mapping[str, Any]) -> None:
        """Build or read the network, compile it and compare it with the reference."""
        self._loaded = self._ask({"op": "load", **task}, "compile")

    @property
    def compile_time_s(self) -> float:
        """The compile time of `load`, plus the time that earlier tuning saved: the time of a cold compile."""
        return float(self._loaded["compile_time_s"]) + float(self._loaded["reused_s"])

    def set_cold_compile(self, seconds: float) -> None:
        """Set the time of the cold compile; `load` had a full cache, so that its time is the warm one."""
        self._warm_compile_s = float(self._loaded["compile_time_s"])
        self._loaded |= {"compile_time_s": seconds, "reused_s": 0.0}

    def warm_up(self) -> None:
        """Call the network until calls no longer get faster."""
        warm = self._ask({"op": "warm"}, "measure")
        self.steady_call_s, self.peak_memory_bytes = float(warm["call_s"]), int(warm["peak_memory_bytes"])
        self._warm_up_s = float(warm["spent_s"])
        self._loaded["facts"] |= {"warm_up_calls": warm["calls"], "warm_up_steady": warm["steady"]}

    def prepare(self, message: Message) -> Message:
        """Prepare the trial's workload."""
        return self._ask(message, "export")

    def quantise(self, message: Message) -> Message:
        """Quantise the trial's ONNX file."""
        return self._ask({**message, "op": "quantise"}, "export")

    def serve(self, load: Mapping[str, Any], timeout_s: float) -> Message:
        """Serve the requests of a test of LoadGen with the programs of all batch sizes; return its results."""
        self.timeout_s = max(self.timeout_s, timeout_s)
        return self._ask({"op": "serve", "load": load}, "measure")

    def estimate_turn_s(self, samples: int) -> float:
        """Estimate the seconds of a turn of that many samples without a disturbance."""
        block, settle = choose_block_size(self.steady_call_s), count_settling_calls(self.steady_call_s)
        return (samples * block + settle) * self.steady_call_s

    def time_turn(self, round_number: int, samples: int, patience: Patience | None = None) -> None:
        """Time this worker's samples of one round, piece by piece; repeat contended ones while `patience` lasts."""
        block, settle = choose_block_size(self.steady_call_s), count_settling_calls(self.steady_call_s)
        most = max(1, math.ceil(PIECE_S / (self.steady_call_s * block))) if self.steady_call_s else samples
        start = CpuClock.read()
        count = uncontended = 0
        self._turns += 1
        is_behind = self.contended_share > SPARED
        begins = True
        with self.meter.record_turn():
            while count < samples or (2 * uncontended < samples and is_behind and patience and patience.lasts):
                piece = min(most, samples - count) if count < samples else min(most, samples)
                planned_s = (piece * block + settle) * self.steady_call_s if count < samples else 0.0
                spent_s, contended = self._time_piece(round_number, piece, block, settle, begins=begins)
                settle, begins = 0, False
                count += piece
                uncontended += 0 if contended else piece
                if patience is not None:
                    patience.record(spent_s, planned_s, contended=contended)
                if self.outgrown:
                    break
        self._uncontended_turns += 2 * uncontended >= samples
        self._cpu.add(start, CpuClock.read())

    @property
    def outgrown(self) -> bool:
        """True if its memory has grown by too much of what was free for any further turn."""
        grown = self.memory_growth_bytes
        return grown > _NOTABLE_BYTES and grown > _MOST_GROWTH * (resources.read_available_memory_bytes() + grown)

    def _time_piece(
        self, round_number: int, samples: int, block: int, settle: int, *, begins: bool
    ) -> tuple[float, bool]:
        """Time some samples of a turn; return how long it took, in seconds, and whether it was contended."""
        if self.host is not None:
            self.host.begin_piece()
        self._monitor.begin_turn()
        message = {"op": "turn", "samples": samples, "block": block, "settle": settle, "begins": begins}
        reply = self._ask(message, "measure")
        interference = self._monitor.end_turn()
        reading = None if self.host is None else self.host.end_piece(contended=interference.contended)
        self._record_memory(reply["resident_bytes"], samples * block + settle)
        self._record_events(reply["events"], samples * block)
        self._record_piece(round_number, reply, interference, reading)
        if self.host is not None:
            self._judge_readings(self.host.usual)
        return float(reply["spent_s"]), self._pieces[-1].contended

    def conclude(self) -> None:
        """Read what the child and its chip have used, after its last turn, and check one more call."""
        if self.host is not None:
            self._judge_readings(self.host.usual)
        self._use = self._read_chip()
        self.peak_memory_bytes = self._ask({"op": "usage"}, "measure")["peak_memory_bytes"]
        check = self._ask({"op": "check"}, "measure")
        self._loaded["facts"] |= {"checked_calls": check["checked_calls"]}
        self._loaded["unchecked"] = self._loaded["unchecked"] or check["unchecked"]

    def profile_turn(self, calls: int) -> None:
        """Call the network that often with and without the profiler; 0 reads the profile."""
        settle = min(1, count_settling_calls(self.steady_call_s))
        try:
            reply = self._ask({"op": "profile", "calls": calls, "settle": settle}, "measure")
            self.profile = reply["profile"]
        except TrialFailedError as error:  # which must not cost the measurement
            self.profile = build_refusal(error.failure.error)

    def read_profile(self) -> None:
        """Read the profile of all turns."""
        if not self.profile:
            self.profile_turn(0)

    def post_explain(self) -> None:
        """Ask the compiler for facts about its work, which is the child's last task, without waiting for them."""
        with contextlib.suppress(ChildEndedError):  # `finish` then has no facts
            self.child.post({"op": "explain"})

    def finish(self, baseline_rmse: float) -> Measurement:
        """Return the measurement with the facts of the compiler, once the child has sent them; and kill the child."""
        explanation = self._receive_explanation()
        self.child.kill()
        use = self.meter.summarize() if self._use is None else self._use
        return self._build_measurement(baseline_rmse, use, explanation)

    def summarize(self, baseline_rmse: float) -> Measurement:
        """Summarize the samples so far, without a message to the child."""
        return self._build_measurement(baseline_rmse, self.meter.summarize(), {})

    def stop(self, baseline_rmse: float) -> Measurement:
        """Summarize the samples of a run that is stopped, perhaps since they look good, as a rule would stop it."""
        self.looks = max(1, self.looks)
        return replace(self.summarize(baseline_rmse), stopped=True)

    def _build_measurement(self, baseline_rmse: float, use: Use, explanation: Mapping[str, Any]) -> Measurement:
        precision, unusual = self._loaded["contract"]["precision"], self.compute_unusual_share()
        return Measurement(
            trial_id=self.trial.id,
            latency_s=tuple(self._list_latencies()),
            rounds=tuple(self._list_rounds()),
            compile_time_s=self.compile_time_s,
            compile_time_warm_s=self._warm_compile_s,
            first_call_time_s=self._loaded["first_call_time_s"],
            # Some runtimes report only afterwards the real precision of their heavy operators.
            contract=Contract(**{**self._loaded["contract"], "precision": explanation.get("precision") or precision}),
            rmse=_to_float(self._loaded["rmse"]),
            baseline_rmse=baseline_rmse,
            max_abs_error=_to_float(self._loaded["max_abs_error"]),
            unchecked=self._loaded["unchecked"],
            calls_per_sample=choose_block_size(self.steady_call_s),
            contended_samples=tuple(np.flatnonzero(self._list_contended()).tolist()),
            interleaved=self.interleaved,
            bundle=self.bundle,
            looks=self.looks,
            foreign_percent=100 * self._foreign_s / self._turns_s if self._turns_s else None,
            steal_percent=100 * self._steal_s / self._turns_s if self._turns_s else None,
            throttled_percent=100 * self._throttled_s / self._turns_s if self._turns_s else None,
            unusual_percent=None if unusual is None else 100 * unusual,
            core_trip_s=self.compute_probe_median("trip_s"),
            core_work_s=self.compute_probe_median("work_s"),
            cpu_percent=self._cpu.percent,
            process_cpu_percent=self._compute_process_cpu_percent(),
            peak_memory_bytes=self.peak_memory_bytes,
            minor_faults=self.compute_faults_a_call(),
            major_faults=self.compute_events_a_call("major_faults"),
            involuntary_switches=self.compute_events_a_call("involuntary_switches"),
            gpu_percent=use.gpu_percent,
            gpu_memory_bytes=use.peak_memory_bytes,
            energy_j=self._compute_energy(use),
            # Seconds in calls of the network, and in the timed ones: the rest is the harness's own.
            facts={
                **self._loaded["facts"],
                **explanation,
                "called_s": self._warm_up_s + self._turns_s,
                "timed_s": self._timed_s,
                **self._describe_memory(),
                **({"host": host} if (host := self.describe_host()) else {}),
                **({"chip": use.to_facts()} if use.samples else {}),
            },
            profile=self.profile,
            started_at=self.started_at,
        )

    def _read_chip(self) -> Use:
        """Read the chip's use over all turns, and over one more, without samples, if they were too short for energy."""
        use = self.meter.summarize()
        if use.samples and use.energy_j is None and self.steady_call_s:
            block = choose_block_size(self.steady_call_s)
            samples = math.ceil(_ENERGY_TURN_S / (self.steady_call_s * block))
            with self.meter.record_turn():
                message = {"op": "turn", "samples": samples, "block": block, "settle": 0, "begins": False}
                self._ask(message, "measure")
            total = self.meter.summarize()
            use = replace(use, energy_j=total.energy_j, turns_s=total.turns_s)
        return use

    def _compute_energy(self, use: Use) -> float | None:
        """Compute the joules of one call: the mean power over the turns, times the duration of a call."""
        if use.energy_j is None or not use.turns_s or not self._pieces:
            return None
        return use.energy_j / use.turns_s * float(np.median(self._list_latencies()))

    def _receive_explanation(self) -> Mapping[str, Any]:
        """Receive the compiler's facts about its work."""
        if self.child.ended:
            return {"explain_error": "the child process ended"}
        try:
            facts: Mapping[str, Any] = self._await(partial(self.child.receive, "explain"), "measure")["facts"]
        except TrialFailedError as error:
            return {"explain_error": error.failure.error}
        return facts

    def _describe_memory(self) -> dict[str, Any]:
        """Describe the growth of its memory in a fact, if it goes on from call to call, or ended its turns."""
        growth = self.estimate_growth_a_call()
        if not growth and not self.outgrown:
            return {}
        return {"memory_growth": {"bytes_a_call": growth, "bytes": self.memory_growth_bytes, "ended": self.outgrown}}

    def _compute_process_cpu_percent(self) -> float | None:
        cores_s = self._turns_s * environment.count_usable_cores()
        return 100 * self._turns_cpu_s / cores_s if cores_s else None

    def end(self) -> None:
        """End the child and discard its measurements."""
        self.child.end()

    def _ask(self, message: Message, stage: Stage) -> Message:
        return self._await(partial(self.child.ask, message), stage)

    def _await(self, answer: Callable[..., Message], stage: Stage) -> Message:
        """Wait for an answer of the child; TrialFailedError if there is none, or if it is a failure."""
        try:
            reply = answer(self.timeout_s, self.interrupt, self.report)
        except (ChildTimeoutError, ChildEndedError) as error:
            check_disk(self.child.log.parent)
            raise TrialFailedError(self._build_failure(error, stage)) from error
        if "failure" in reply:
            output = self.child.read_log_tail()
            self.child.end()
            if fault := reply["failure"].pop("disk", ""):
                raise DiskError(f"{fault} Then resume the run, which tries {self.trial} again.")
            fields = {**reply["failure"], "detail": "\n".join(filter(None, [reply["failure"]["detail"], output]))}
            raise TrialFailedError(Failure(trial_id=self.trial.id, started_at=self.started_at, **fields))
        return reply

    def _build_failure(self, error: ChildTimeoutError | ChildEndedError, stage: Stage) -> Failure:
        status, line = _classify(error)
        return Failure(
            trial_id=self.trial.id,
            status=status,
            stage=stage,
            error=line,
            detail=self.child.read_log_tail(),
            started_at=self.started_at,
        )


def build_failure(trial: Trial, status: FailureStatus, stage: Stage, error: str) -> Failure:
    """Build the failure of a trial that ends now."""
    return Failure(trial_id=trial.id, status=status, stage=stage, error=error, started_at=time.time())


def _classify(error: ChildTimeoutError | ChildEndedError) -> tuple[FailureStatus, str]:
    if isinstance(error, ChildTimeoutError):
        return "timeout", f"{error}; raise timeout_s if it needs longer"
    if error.out_of_memory:
        return "out-of-memory", f"{error}, as it was out of memory: {limits.describe_memory()}"
    return "crashed", ": ".join(filter(None, [str(error), limits.describe(f"{error.log}\n{error}")]))


def _to_float(value: float | None) -> float:
    return float("nan") if value is None else value
