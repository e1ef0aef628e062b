"""A tuned library: loaded from the store, or built after a search that resumes any earlier one."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ngbkit.compilers.base import Tuning, TuningProgress
from ngbkit.compilers.tvm_relax import candidate_records, library, lowering, targets
from ngbkit.compilers.tvm_relax.forked import ForkedProcess, ProcessEnded
from ngbkit.compilers.tvm_relax.library import Build, Library
from ngbkit.compilers.tvm_relax.onnx_network import OnnxNetwork
from ngbkit.compilers.tvm_relax.schedule_search import Limits, Search
from ngbkit.compilers.tvm_relax.tasks import Tasks
from ngbkit.compilers.tvm_relax.tuning_store import TuningStore
from ngbkit.errors import UnsupportedError
from ngbkit.files import write_atomically

# The search skips a function after this many crashes in it.
_CRASHES = 2
# The search sends a message at least this often.
_SILENT_S = 300.0
_REPEAT_S = 5.0
_WRITE_S = 15.0


@dataclass(slots=True)
class Reporter:
    """Reports the progress of a search, and repeats the last report while there is no news."""

    send: Callable[[TuningProgress], None]
    _progress: TuningProgress = field(default_factory=lambda: TuningProgress(done=0, total=0))
    _time: float = field(default_factory=time.monotonic)

    def report(self, progress: TuningProgress) -> None:
        """Report new progress."""
        self._progress, self._time = progress, time.monotonic()
        self.send(progress)

    def repeat(self) -> None:
        """Repeat the last report if it is old."""
        if time.monotonic() - self._time >= _REPEAT_S:
            self.report(self._progress)


@dataclass(slots=True, kw_only=True)
class Tuner:
    """Tunes a network for a target, within the sweep's budget."""

    network: OnnxNetwork
    target: Any
    accelerator: str
    threads: int
    store: TuningStore
    folder: Path  # of the library
    tuning: Tuning
    _reporter: Reporter = field(init=False)
    _write_time: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._reporter = Reporter(self.tuning.report)

    def load_or_tune(self) -> Build:
        """Load the library if its tuning is complete or the budget spent, else tune and build it."""
        with self.store.lock(self._reporter.repeat):
            facts = library.read_facts(self.folder)
            if facts and (facts["complete"] or not self._has_budget()):
                loaded = library.load(self.folder, targets.find_device(self.accelerator))
                return _build_result(loaded, "hit", facts["tuning_s"] + facts["build_s"])
            targets.check_tuning(self.store.subject.versions)
            self._prepare_store()
            earlier_s = _read_spent_s(self.store)
            module = lowering.fuse_for_tuning(self.network.import_relax(), self.target)
            # Records may be complete although their library is missing.
            complete = bool(self.store.read_meta().get("complete")) or (self._has_budget() and not self._search(module))
            if not candidate_records.read(self.store.records):
                raise UnsupportedError(
                    "nothing was tuned: the sweep's tuning budget was spent before this network's turn; "
                    "give the sweep more, or run it again"
                )
            return _build_result(self._build(module, complete), "miss", earlier_s)

    def _prepare_store(self) -> None:
        """Start from the records of a smaller budget if there are none yet, and truncate an unfinished line."""
        smaller = self.store.find_smaller_records()
        if not self.store.records.exists() and smaller is not None:
            with write_atomically(self.store.records) as draft:
                shutil.copyfile(smaller, draft)
        candidate_records.truncate_partial(self.store.records)
        if not self.store.read_meta():
            self._write_progress()

    def _write_progress(self) -> None:
        """Write the progress into the folder, for readers during the search or after it was killed."""
        count = len(candidate_records.read(self.store.records))
        self.store.write_meta({"candidates": count, "tuning_s": _read_spent_s(self.store), "complete": False})

    def _has_budget(self) -> bool:
        return self.tuning.seconds is None or self.tuning.seconds > 0

    def _build(self, module: Any, complete: bool) -> Library:
        start = time.monotonic()
        tasks = Tasks(module, self.target, self.threads)
        tasks.add_records(candidate_records.read(self.store.records))
        lowered = lowering.generate_code(lowering.apply_schedules(module, self.target, tasks.database), self.target)
        facts = {
            **tasks.summarise(int(self.store.subject.budget["early_stop"])),
            "tuning_s": _read_spent_s(self.store),
            "build_s": time.monotonic() - start,
            "complete": complete,
        }
        device = targets.find_device(self.accelerator)
        saved = library.save(lowered, self.folder, facts)
        self.store.write_meta(facts)
        return library.load(self.folder, device) if saved else library.from_lowered(lowered, facts, device)

    def _search(self, module: Any) -> bool:
        """Search in a forked process, restarted after a crash; return whether the sweep's budget cut it short."""
        start = time.monotonic()
        crashes: dict[str, int] = {}
        while True:
            limits = self._build_limits(time.monotonic() - start)
            skipped = {digest for digest, crash_count in crashes.items() if crash_count >= _CRASHES}
            process = ForkedProcess(partial(self._run_search, module, limits, skipped))
            function = ""
            try:
                while True:
                    message = process.receive(time.monotonic() + _SILENT_S)
                    if "error" in message:
                        raise RuntimeError(f"tuning failed: {message['error']}")
                    if "cut_short" in message:
                        return bool(message["cut_short"])
                    if "function" in message:
                        function = message["function"]
                    if "progress" in message:
                        self._report(TuningProgress(**message["progress"]))
            except ProcessEnded as error:
                crashes[function] = crashes.get(function, 0) + 1
                if not function and crashes[function] > _CRASHES:
                    raise RuntimeError(f"the search for schedules crashed before its first function: {error}") from None
            finally:
                process.close()

    def _run_search(self, module: Any, limits: Limits, skipped: Collection[str], channel: Connection) -> Any:
        """Run the search in the forked process, without the skipped functions."""
        earlier_s = _read_spent_s(self.store)
        tasks = Tasks(module, self.target, self.threads)
        tasks.add_records(candidate_records.read(self.store.records))
        reporter = Reporter(lambda progress: channel.send({"progress": asdict(progress)}))
        reporter.report(TuningProgress(done=tasks.count, total=max(tasks.count, 1)))
        tasks.train_model()
        search = Search(
            functions=[function for function in tasks.functions if function.digest not in skipped],
            store=self.store,
            target=self.target,
            database=tasks.database,
            model=tasks.model,
            bench=tasks.build_bench(lambda: targets.find_device(self.accelerator), reporter.repeat),
            limits=limits,
            report=reporter.report,
            earlier_s=earlier_s,
            announce=lambda digest: channel.send({"function": digest}),
        )
        return {"cut_short": search.run()}

    def _report(self, progress: TuningProgress) -> None:
        self._reporter.report(progress)
        if time.monotonic() - self._write_time >= _WRITE_S:
            self._write_time = time.monotonic()
            self._write_progress()

    def _build_limits(self, elapsed_s: float) -> Limits:
        budget, tuning = self.store.subject.budget, self.tuning
        return Limits(
            trials=budget["trials"] or math.inf,
            early_stop=int(budget["early_stop"]),
            total=budget["total"] or math.inf,
            tuning_s=budget["seconds"] or math.inf,
            seconds=math.inf if tuning.seconds is None else max(0.0, tuning.seconds - elapsed_s),
        )


def _build_result(built: Library, cache: str, reused_s: float) -> Build:
    facts, notes = {**built.facts, "cache": cache}, f"tuned, {built.facts['candidates']} candidates"
    return Build(library=built, facts=facts, notes=notes, reused_s=reused_s)


def _read_spent_s(store: TuningStore) -> float:
    """Read the tuning time of all records."""
    lines = candidate_records.read(store.records)
    return lines[-1].spent_s if lines else 0.0
