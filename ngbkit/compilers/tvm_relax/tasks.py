"""The functions of a network as tasks of MetaSchedule, with the results of their candidates."""

from __future__ import annotations

import importlib
import platform
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ngbkit.compilers.tvm_relax.allocation import FunctionHistory
from ngbkit.compilers.tvm_relax.candidate_records import Record
from ngbkit.compilers.tvm_relax.measuring import CandidateBench
from ngbkit.compilers.tvm_relax.schedule_search import (
    BATCH,
    FRESH,
    GENERATIONS,
    GUIDED_AFTER,
    POPULATION,
    Function,
    estimate_call_s,
    hash_module,
)

# The intrinsics that MetaSchedule's rules name.
_PACKAGE = "tvm.s_tir.tensor_intrin"
_OF_CPU = {"x86_64": "x86", "amd64": "x86", "aarch64": "arm_cpu", "arm64": "arm_cpu", "riscv64": "riscv_cpu"}


class Tasks:
    """The distinct functions of an unscheduled network, and TVM's database and cost model of their candidates."""

    def __init__(self, module: Any, target: Any, threads: int) -> None:
        from tvm.s_tir import meta_schedule
        from tvm.s_tir.analysis import estimate_tir_flops

        _register_intrinsics(target)
        self.target, self.threads = target, threads
        self.database = meta_schedule.database.MemoryDatabase()
        self.functions: list[Function] = []
        self._schedules: list[tuple[Function, Any, float]] = []
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
                    digest=hash_module(function),
                    opening=opening,
                    context=context,
                    workload=self.database.commit_workload(function),
                    history=FunctionHistory(weight=float(task.weight), work=float(estimate_tir_flops(function))),
                )
            )
        # With so little training data a second thread takes longer to wake than it saves.
        config = meta_schedule.cost_model.xgb_model.XGBConfig(nthread=1)
        self.model = meta_schedule.cost_model.XGBModel(config=config, num_warmup_samples=GUIDED_AFTER)

    @property
    def count(self) -> int:
        """Candidates of all functions."""
        return sum(function.history.count for function in self.functions)

    def add_records(self, records: Iterable[Record]) -> None:
        """Add the results of earlier processes."""
        from tvm.s_tir.meta_schedule.database import TuningRecord

        by_digest = {function.digest: function for function in self.functions}
        for record in records:
            function = by_digest.get(record.function)
            if function is None or record.candidate in function.candidates:
                continue
            function.candidates.add(record.candidate)
            function.history.add(record.seconds)
            if function.history.count % BATCH == 0:
                function.history.close_round()
            if record.schedule is not None and record.seconds is not None:
                schedule = TuningRecord.from_json(record.schedule, function.workload)
                self.database.commit_tuning_record(schedule)
                self._schedules.append((function, schedule, record.seconds))

    def train_model(self) -> None:
        """Train the cost model with the added records."""
        from tvm.s_tir.meta_schedule.runner import RunnerResult

        for function in self.functions:
            schedules = [(schedule, seconds) for owner, schedule, seconds in self._schedules if owner is function]
            if schedules:
                candidates = [schedule.as_measure_candidate() for schedule, _ in schedules]
                results = [RunnerResult([seconds], None) for _, seconds in schedules]
                self.model.update(function.context, candidates, results)

    def build_bench(self, device: Callable[[], Any], tick: Callable[[], None]) -> CandidateBench:
        """Build the bench that measures their candidates."""
        return CandidateBench(target=self.target, device=device, workers=self.threads, tick=tick)

    def summarise(self, early_stop: int) -> dict[str, Any]:
        """Summarise the results as plain JSON."""
        tuned = {id(function) for function, _, _ in self._schedules}
        return {
            "candidates": self.count,
            "failed": self.count - len(self._schedules),
            "functions": len(self.functions),
            "untuned": len(self.functions) - len(tuned),
            "early_stopped": sum(function.history.has_converged(early_stop) for function in self.functions),
            "estimated_s": estimate_call_s(self.functions),
        }


def _register_intrinsics(target: Any) -> None:
    """Register the hardware intrinsics of the target's chip alone: all that TVM knows take 20 s to parse."""
    import tvm.s_tir

    name = _OF_CPU.get(platform.machine().lower()) if target.kind.name == "llvm" else None
    if _PACKAGE in sys.modules or name is None:
        return
    package = types.ModuleType(_PACKAGE)
    package.__path__ = [str(Path(tvm.s_tir.__path__[0], "tensor_intrin"))]
    sys.modules[_PACKAGE] = package
    importlib.import_module(f"{_PACKAGE}.{name}")
