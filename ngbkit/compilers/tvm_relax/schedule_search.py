"""The search for fast schedules of a network's functions: MetaSchedule proposes, XGBoost guides, measurements decide.

TVM's own loop (`tune_relax`) cannot stop early, count seconds or resume after a crash, and starts new build workers for
each batch; this loop replaces it, around TVM's search strategy, cost model and database.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ngbkit.compilers.base import TuningProgress
from ngbkit.compilers.tvm_relax import candidate_records
from ngbkit.compilers.tvm_relax.allocation import FunctionHistory, choose
from ngbkit.compilers.tvm_relax.candidate_records import Record
from ngbkit.compilers.tvm_relax.measuring import CandidateBench, Timing
from ngbkit.compilers.tvm_relax.tuning_store import TuningStore

# Larger batches spend a small budget on one function, smaller ones rarely consult the cost model.
BATCH = 16
# TVM's own 512 x 4 takes longer to evolve a batch than the batch takes to build and run.
POPULATION, GENERATIONS, FRESH = 128, 2, 50
# Measured candidates before the cost model is consulted.
GUIDED_AFTER = 64
_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a search; infinite if unlimited."""

    trials: float = _NEVER  # candidates per function, in all
    early_stop: int = 0  # candidates per function without improvement; 0 is unlimited
    total: float = _NEVER  # candidates for the network, in all
    seconds: float = _NEVER  # the rest of the sweep's budget, from now on
    tuning_s: float = _NEVER  # tuning time in all, earlier processes included


@dataclass(slots=True, kw_only=True)
class Function:
    """A function of the network, and its candidates."""

    digest: str  # hash of what it computes
    opening: Any  # TVM's `TuneContext` that draws the first candidates at random
    context: Any  # TVM's `TuneContext` that evolves measured candidates
    workload: Any  # its entry in the database
    history: FunctionHistory
    candidates: set[str] = field(default_factory=set)  # hashes of those tried
    exhausted: bool = False  # whether the strategy proposes nothing new
    _backlog: list[tuple[str, Any]] = field(default_factory=list)
    _prepared: set[str] = field(default_factory=set)

    def propose(self, limit: int, database: Any, model: Any) -> list[tuple[str, Any]]:
        """Propose up to `limit` untried candidates, each with its hash; an empty list if none is left."""
        name = "context" if self.history.count else "opening"
        context = getattr(self, name)
        if name not in self._prepared:
            context.pre_tuning(1 << 20, BATCH, context.generate_design_space(), database, model)
            self._prepared.add(name)
        proposed = context.generate_measure_candidates() or []
        unique = {hash_module(candidate.sch.mod): candidate for candidate in proposed}
        fresh = [(digest, candidate) for digest, candidate in unique.items() if digest not in self.candidates]
        # The strategy proposes a candidate only once, so the surplus waits in a backlog.
        self._backlog = [*fresh[limit:], *self._backlog]
        if not fresh:
            fresh = [(digest, candidate) for digest, candidate in self._backlog if digest not in self.candidates]
            self._backlog = fresh[limit:]
        return fresh[:limit]


@dataclass(slots=True, kw_only=True)
class Search:
    """A search for the schedules of one network."""

    functions: Sequence[Function]
    store: TuningStore
    target: Any
    database: Any
    model: Any
    bench: CandidateBench
    limits: Limits
    report: Callable[[TuningProgress], None]
    earlier_s: float  # tuning time of earlier processes
    announce: Callable[[str], None]  # receives the digest of the next function
    _start: float = field(default_factory=time.monotonic)
    _initial_count: int = 0

    def __post_init__(self) -> None:
        self._initial_count = self.count

    @property
    def count(self) -> int:
        """Candidates so far, earlier processes included."""
        return sum(function.history.count for function in self.functions)

    @property
    def spent_s(self) -> float:
        """Tuning time so far, earlier processes included."""
        return self.earlier_s + time.monotonic() - self._start

    def run(self) -> bool:
        """Search until nothing is left or a limit is reached; return whether the sweep's budget cut it short."""
        while True:
            self.report_progress()
            active = [function for function in self.functions if self._is_active(function)]
            if not active or self.count >= self.limits.total or self.spent_s >= self.limits.tuning_s:
                return False
            if time.monotonic() >= self._sweep_deadline:
                return True
            self._run_round(active[choose([function.history for function in active])])

    def report_progress(self) -> None:
        """Report the progress so far."""
        total, best_s = int(self._estimate_total()), estimate_call_s(self.functions)
        self.report(TuningProgress(done=self.count, total=total, best_s=best_s, left_s=self._estimate_left_s()))

    def _run_round(self, function: Function) -> None:
        self.announce(function.digest)
        size = min(BATCH if function.history.count else self._size_first_batch(), self._count_remaining(function))
        proposed = function.propose(int(size), self.database, self.model)
        if not proposed:
            function.exhausted = True
            return
        deadline = min(self._sweep_deadline, self._tuning_deadline)
        timings = self.bench.measure([candidate for _, candidate in proposed], function.history.best_s, deadline)
        pairs = zip(proposed, timings, strict=True)
        self._add_results(function, [(*candidate, timing) for candidate, timing in pairs if timing])

    def _add_results(self, function: Function, results: Sequence[tuple[str, Any, Timing]]) -> None:
        from tvm.s_tir.meta_schedule.runner import RunnerResult

        lines = []
        for digest, candidate, timing in results:
            schedule = None
            if timing.seconds is not None:
                schedule = commit_schedule(function, candidate, timing.seconds, self.target, self.database)
            function.candidates.add(digest)
            function.history.add(timing.seconds)
            lines.append(
                Record(
                    function=function.digest,
                    candidate=digest,
                    seconds=timing.seconds,
                    error=timing.error,
                    schedule=schedule,
                    spent_s=self.spent_s,
                )
            )
        function.history.close_round()
        candidate_records.append(self.store.records, lines)
        if results:
            outcomes = [
                RunnerResult(None, timing.error) if timing.seconds is None else RunnerResult([timing.seconds], None)
                for _, _, timing in results
            ]
            self.model.update(function.context, [candidate for _, candidate, _ in results], outcomes)

    def _is_active(self, function: Function) -> bool:
        history = function.history
        conclusive = history.has_converged(self.limits.early_stop)
        return not function.exhausted and not conclusive and history.count < self.limits.trials

    def _count_remaining(self, function: Function) -> float:
        """Count the candidates that the limits leave to a function."""
        limits, history = self.limits, function.history
        stop = history.best_count + limits.early_stop if limits.early_stop else _NEVER
        return max(1, min(limits.total - self.count, limits.trials - history.count, stop - history.count))

    def _size_first_batch(self) -> int:
        """Return the size of each function's first batch: half of a small budget is reserved for later rounds."""
        return int(max(1, min(BATCH, self.limits.total // (2 * len(self.functions)))))

    @property
    def _sweep_deadline(self) -> float:
        return self._start + self.limits.seconds

    @property
    def _tuning_deadline(self) -> float:
        return self._start + self.limits.tuning_s - self.earlier_s

    def _estimate_total(self) -> float:
        """Estimate the most candidates that the search may try."""
        limits, total = self.limits, 0.0
        for function in self.functions:
            count = function.history.count
            total += min(limits.trials, count + (BATCH << 6)) if self._is_active(function) else count
        return max(self.count, min(total, limits.total))

    def _estimate_left_s(self) -> float | None:
        count = self.count - self._initial_count
        if not count:
            return None
        now = time.monotonic()
        candidate_s = (now - self._start) / count
        remaining_s = (self._estimate_total() - self.count) * candidate_s
        return max(0.0, min(remaining_s, self._sweep_deadline - now, self._tuning_deadline - now))


def hash_module(module: Any) -> str:
    """Hash what a TVM module does, identically in every process."""
    import tvm_ffi

    return f"{tvm_ffi.structural_hash(module) & (1 << 64) - 1:016x}"


def estimate_call_s(functions: Sequence[Function]) -> float | None:
    """Estimate the seconds of one call of the network as the sum of its functions' best; None until each has one."""
    total = 0.0
    for function in functions:
        if function.history.best_s is None:
            return None
        total += function.history.weight * function.history.best_s
    return total


def commit_schedule(function: Function, candidate: Any, seconds: float, target: Any, database: Any) -> Any:
    """Commit a working candidate to the database, and return TVM's JSON to reproduce it."""
    from tvm.s_tir.meta_schedule import _ffi_api
    from tvm.s_tir.meta_schedule.database import TuningRecord

    record = TuningRecord(candidate.sch.trace, function.workload, [seconds], target, candidate.args_info)
    database.commit_tuning_record(record)
    return _to_json(_ffi_api.TuningRecordAsJSON(record))


def _to_json(value: Any) -> Any:
    """Convert TVM's JSON objects to Python's; `TuningRecord.as_json` fails on the layouts of weights."""
    import tvm
    import tvm_ffi

    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (tvm.tirx.IntImm, tvm.tirx.FloatImm)):
        return value.value
    if isinstance(value, tvm_ffi.Array):
        return [_to_json(item) for item in value]
    if isinstance(value, tvm_ffi.Map):
        return {str(name): _to_json(item) for name, item in value.items()}
    return json.dumps(json.loads(tvm.ir.save_json(value)))
