"""The search for fast schedules of a network's functions: MetaSchedule proposes, XGBoost guides, the clock decides.

TVM's own loop (`tune_relax`) cannot stop early, count seconds or go on after a crash, and it builds in workers that it
starts anew for each batch; so the loop is here, around TVM's search strategy, cost model and database.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ngbkit.compilers.base import Progress
from ngbkit.compilers.tvm_relax import records
from ngbkit.compilers.tvm_relax.allocation import Standing, choose
from ngbkit.compilers.tvm_relax.measuring import Bench, Timing
from ngbkit.compilers.tvm_relax.records import Record
from ngbkit.compilers.tvm_relax.store import Store

# Larger batches spend a small budget on one function, smaller ones rarely ask the cost model.
BATCH = 16
# TVM's own 512 x 4 takes longer to evolve a batch than that takes to build and run.
POPULATION, GENERATIONS, FRESH = 128, 2, 50
# The cost model is asked once it has seen so many.
GUIDED_AFTER = 64
_NEVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a search may cost; infinite where there is no limit.

    Parameters
    ----------
    trials, early_stop
        Candidates for each function, in all; and without finding a better one, 0 for no limit.
    total
        Candidates for the network, in all.
    candidates, seconds
        From now on, of what the sweep has left.
    tuning_s
        Seconds of tuning in all, those of earlier processes included.
    """

    trials: float = _NEVER
    early_stop: int = 0
    total: float = _NEVER
    candidates: float = _NEVER
    seconds: float = _NEVER
    tuning_s: float = _NEVER


@dataclass(slots=True, kw_only=True)
class Function:
    """A function of the network, and the candidates for it.

    Parameters
    ----------
    digest
        A hash of what it computes.
    opening, context
        TVM's `TuneContext`: one that draws at random, for the first candidates, of which nothing is known; and one that
        evolves what is known.
    workload
        As the database knows it.
    standing
        How far it has come.
    seen
        Hashes of the candidates that were tried.
    exhausted
        Whether nothing new is proposed for it any more.
    """

    digest: str
    opening: Any
    context: Any
    workload: Any
    standing: Standing
    seen: set[str] = field(default_factory=set)
    exhausted: bool = False
    _spare: list[tuple[str, Any]] = field(default_factory=list)
    _prepared: set[str] = field(default_factory=set)

    def propose(self, most: int, database: Any, model: Any) -> list[tuple[str, Any]]:
        """At most so many candidates that were not tried yet, each with its hash; none where there are none left."""
        name = "context" if self.standing.tried else "opening"
        context = getattr(self, name)
        if name not in self._prepared:
            context.pre_tuning(1 << 20, BATCH, context.generate_design_space(), database, model)
            self._prepared.add(name)
        proposed = context.generate_measure_candidates() or []
        fresh = {digest_of(candidate.sch.mod): candidate for candidate in proposed}
        news = [(digest, candidate) for digest, candidate in fresh.items() if digest not in self.seen]
        # What was proposed once is not proposed again: it is kept for when there is nothing else.
        self._spare = [*news[most:], *self._spare]
        if not news:
            news = [(digest, candidate) for digest, candidate in self._spare if digest not in self.seen]
            self._spare = news[most:]
        return news[:most]


@dataclass(slots=True, kw_only=True)
class Search:
    """A search for the schedules of one network.

    Parameters
    ----------
    functions
        What there is to schedule.
    store
        Where it is kept.
    target
        TVM's target.
    database, model
        TVM's, of the records and of what they teach.
    bench
        Where candidates are measured.
    limits
        What it may cost.
    report
        Is told how far it is, after each batch.
    before_s
        Seconds that earlier processes spent.
    announce
        Is told which function's turn it is, before anything is done for it.
    """

    functions: Sequence[Function]
    store: Store
    target: Any
    database: Any
    model: Any
    bench: Bench
    limits: Limits
    report: Callable[[Progress], None]
    before_s: float
    announce: Callable[[str], None]
    _began: float = field(default_factory=time.monotonic)
    _first: int = 0

    def __post_init__(self) -> None:
        self._first = self.tried

    @property
    def tried(self) -> int:
        """Candidates so far, those of earlier processes included."""
        return sum(function.standing.tried for function in self.functions)

    @property
    def spent_s(self) -> float:
        """Seconds so far, those of earlier processes included."""
        return self.before_s + time.monotonic() - self._began

    def go(self) -> bool:
        """Search until nothing is left or the budget is spent; whether it was the sweep's that cut it short."""
        while True:
            self.tell()
            running = [one for one in self.functions if self._may_go_on(one)]
            if not running or self.tried >= self.limits.total or self.spent_s >= self.limits.tuning_s:
                return False
            if self.tried - self._first >= self.limits.candidates or time.monotonic() >= self._until():
                return True
            self._take_round(running[choose([one.standing for one in running])])

    def tell(self) -> None:
        """Say how far it is."""
        self.report(
            Progress(done=self.tried, total=int(self._most()), best_s=estimate(self.functions), left_s=self._left_s())
        )

    def _take_round(self, function: Function) -> None:
        self.announce(function.digest)
        room = min(self._opening() if not function.standing.tried else BATCH, self._room(function))
        proposed = function.propose(int(room), self.database, self.model)
        if not proposed:
            function.exhausted = True
            return
        timings = self.bench.measure(
            [candidate for _, candidate in proposed], function.standing.best, min(self._until(), self._own_until())
        )
        self._learn(function, [(*one, timing) for one, timing in zip(proposed, timings, strict=True) if timing])

    def _learn(self, function: Function, tried: Sequence[tuple[str, Any, Timing]]) -> None:
        from tvm.s_tir.meta_schedule.runner import RunnerResult

        lines = []
        for digest, candidate, timing in tried:
            schedule = None
            if timing.seconds is not None:
                schedule = commit(function, candidate, timing.seconds, self.target, self.database)
            take_in(function, digest, timing.seconds)
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
        function.standing.close_round()
        records.append(self.store.records, lines)
        results = [
            RunnerResult(None, timing.error) if timing.seconds is None else RunnerResult([timing.seconds], None)
            for _, _, timing in tried
        ]
        if tried:
            self.model.update(function.context, [candidate for _, candidate, _ in tried], results)

    def _may_go_on(self, function: Function) -> bool:
        standing = function.standing
        settled = standing.has_settled(self.limits.early_stop)
        return not function.exhausted and not settled and standing.tried < self.limits.trials

    def _room(self, function: Function) -> float:
        """How many candidates the limits leave to that function."""
        limits, standing = self.limits, function.standing
        unsettled = standing.best_at + limits.early_stop if limits.early_stop else _NEVER
        left = min(limits.total - self.tried, limits.candidates - (self.tried - self._first))
        return max(1, min(left, limits.trials - standing.tried, unsettled - standing.tried))

    def _opening(self) -> int:
        """Candidates that each function has first: half of a small budget is left for those that deserve it."""
        most = min(self.limits.total, self.limits.candidates)
        return int(max(1, min(BATCH, most // (2 * len(self.functions)))))

    def _until(self) -> float:
        return self._began + self.limits.seconds

    def _own_until(self) -> float:
        return self._began + self.limits.tuning_s - self.before_s

    def _most(self) -> float:
        """How many candidates there are to be at most."""
        limits = self.limits
        each = [
            min(limits.trials, one.standing.tried + (BATCH << 6)) if self._may_go_on(one) else one.standing.tried
            for one in self.functions
        ]
        return max(self.tried, min(sum(each), limits.total, self._first + limits.candidates))

    def _left_s(self) -> float | None:
        done = self.tried - self._first
        if not done:
            return None
        now = time.monotonic()
        pace = (now - self._began) / done
        return max(0.0, min((self._most() - self.tried) * pace, self._until() - now, self._own_until() - now))


def digest_of(module: Any) -> str:
    """A hash of what a TVM module does, the same in every process."""
    import tvm_ffi

    return f"{tvm_ffi.structural_hash(module) & (1 << 64) - 1:016x}"


def estimate(functions: Sequence[Function]) -> float | None:
    """What a call of the network takes, as the sum of its functions' best; None before each has one."""
    total = 0.0
    for function in functions:
        if function.standing.best is None:
            return None
        total += function.standing.weight * function.standing.best
    return total


def take_in(function: Function, digest: str, seconds: float | None) -> None:
    """Count a candidate that was tried."""
    function.seen.add(digest)
    function.standing.add(seconds)


def commit(function: Function, candidate: Any, seconds: float, target: Any, database: Any) -> Any:
    """Put a candidate that works into the database; how to make it again, as TVM's JSON."""
    from tvm.s_tir.meta_schedule import _ffi_api
    from tvm.s_tir.meta_schedule.database import TuningRecord

    record = TuningRecord(candidate.sch.trace, function.workload, [seconds], target, candidate.args_info)
    database.commit_tuning_record(record)
    return _plain(_ffi_api.TuningRecordAsJSON(record))


def _plain(found: Any) -> Any:
    """What TVM gives as its JSON, as Python's.

    `TuningRecord.as_json` fails on the layouts of weights; here they are written as TVM's own database writes them.
    """
    import tvm
    import tvm_ffi

    if found is None or isinstance(found, (bool, int, float)):
        return found
    if isinstance(found, str):
        return str(found)
    if isinstance(found, (tvm.tirx.IntImm, tvm.tirx.FloatImm)):
        return found.value
    if isinstance(found, tvm_ffi.Array):
        return [_plain(one) for one in found]
    if isinstance(found, tvm_ffi.Map):
        return {str(name): _plain(one) for name, one in found.items()}
    return json.dumps(json.loads(tvm.ir.save_json(found)))
