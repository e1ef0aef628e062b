"""The functions of a network as tasks of MetaSchedule, with all that is known of their candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ngbkit.compilers.tvm_relax import intrinsics
from ngbkit.compilers.tvm_relax.allocation import Standing
from ngbkit.compilers.tvm_relax.measuring import Bench
from ngbkit.compilers.tvm_relax.records import Record
from ngbkit.compilers.tvm_relax.search import (
    BATCH,
    FRESH,
    GENERATIONS,
    GUIDED_AFTER,
    POPULATION,
    Function,
    digest_of,
    estimate,
)


class Tasks:
    """The functions of one network, and TVM's database and cost model of their candidates.

    Parameters
    ----------
    module
        The network, of functions without schedules.
    target
        TVM's target.
    threads
        How many to search, build and train with.

    Attributes
    ----------
    functions : list of Function
        Each different one once.
    database, model
        TVM's.
    """

    def __init__(self, module: Any, target: Any, threads: int) -> None:
        from tvm.s_tir import meta_schedule
        from tvm.s_tir.analysis import estimate_tir_flops

        intrinsics.register(target)
        self.target, self.threads = target, threads
        self.database = meta_schedule.database.MemoryDatabase()
        self.functions: list[Function] = []
        self._learned: list[tuple[Function, Any, float]] = []
        for index, task in enumerate(meta_schedule.relax_integration.extract_tasks(module, target)):
            function = task.dispatched[0]
            evolving = meta_schedule.search_strategy.EvolutionarySearch(
                population_size=POPULATION, genetic_num_iters=GENERATIONS, init_min_unmeasured=FRESH
            )
            opening, context = (
                meta_schedule.TuneContext(
                    mod=function,
                    target=target,
                    space_generator="post-order-apply",
                    search_strategy=strategy,
                    task_name=task.task_name,
                    num_threads=threads,
                    rand_state=index + 1,
                ).clone()
                for strategy in ("replay-trace", evolving)
            )
            self.functions.append(
                Function(
                    digest=digest_of(function),
                    opening=opening,
                    context=context,
                    workload=self.database.commit_workload(function),
                    standing=Standing(weight=float(task.weight), work=float(estimate_tir_flops(function))),
                )
            )
        # There is so little to learn from that a second thread takes longer to wake than it saves.
        config = meta_schedule.cost_model.xgb_model.XGBConfig(nthread=1)
        self.model = meta_schedule.cost_model.XGBModel(config=config, num_warmup_samples=GUIDED_AFTER)

    @property
    def tried(self) -> int:
        """Candidates in all."""
        return sum(function.standing.tried for function in self.functions)

    def recall(self, found: Iterable[Record]) -> None:
        """Take in what earlier processes found."""
        from tvm.s_tir.meta_schedule.database import TuningRecord

        by_digest = {function.digest: function for function in self.functions}
        for record in found:
            function = by_digest.get(record.function)
            if function is None or record.candidate in function.seen:
                continue
            function.seen.add(record.candidate)
            function.standing.add(record.seconds)
            if function.standing.tried % BATCH == 0:
                function.standing.close_round()
            if record.schedule is not None and record.seconds is not None:
                kept = TuningRecord.from_json(record.schedule, function.workload)
                self.database.commit_tuning_record(kept)
                self._learned.append((function, kept, record.seconds))

    def teach(self) -> None:
        """Train the cost model with what was recalled."""
        from tvm.s_tir.meta_schedule.runner import RunnerResult

        for function in self.functions:
            mine = [(record, seconds) for owner, record, seconds in self._learned if owner is function]
            if mine:
                candidates = [record.as_measure_candidate() for record, _ in mine]
                self.model.update(function.context, candidates, [RunnerResult([seconds], None) for _, seconds in mine])

    def bench(self, device: Callable[[], Any], tick: Callable[[], None]) -> Bench:
        """Where their candidates are measured."""
        return Bench(target=self.target, device=device, workers=self.threads, tick=tick)

    def summary(self, early_stop: int) -> dict[str, Any]:
        """What there is to say of them, as plain JSON."""
        working = {id(function) for function, _, _ in self._learned}
        return {
            "candidates": self.tried,
            "failed": self.tried - len(self._learned),
            "functions": len(self.functions),
            "untuned": len(self.functions) - len(working),
            "early_stopped": sum(function.standing.has_settled(early_stop) for function in self.functions),
            "estimated_s": estimate(self.functions),
        }
