"""Measurement of a bundle: prepare the networks, load each compiler into a worker, time rounds, write records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import attrs

from ngbkit import registry
from ngbkit.compilers.base import Compiler
from ngbkit.device import canonical_graphs, preparation
from ngbkit.device.groups import bundles, tuning
from ngbkit.device.groups.bundles import Job
from ngbkit.device.groups.compiled import CompileCache
from ngbkit.device.groups.interleaving import Interleaving
from ngbkit.device.groups.tuning import Budget, Search
from ngbkit.device.groups.worker import TrialFailedError, Worker, build_failure
from ngbkit.device.isolation import server_pool
from ngbkit.device.isolation.channel import Message
from ngbkit.device.isolation.server_pool import choose_form, get_servers, list_modules, list_preparation_modules
from ngbkit.device.isolation.servers import ServerEndedError
from ngbkit.device.process_lifetime import hold_if_ending
from ngbkit.device.spec import Spec
from ngbkit.hardware import resources, telemetry
from ngbkit.hardware.telemetry import Chip, Meter
from ngbkit.options import LAYOUT
from ngbkit.sweep import records as record_format
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Failure, Record
from ngbkit.sweep.trials import Bundle, Choice, Group, Trial, facts_key
from ngbkit.workloads.base import Source

# The number of ended processes in the same phase after which a trial is not repeated.
_MOST_ATTEMPTS = 2
# The size limit of prepared workloads, mostly weights, once a batch size.
_CACHE_BYTES = 20_000_000_000
# The free memory, as a multiple of the largest worker, that allows another worker beside the others.
_HEADROOM = 1.5


@dataclass(slots=True, kw_only=True)
class Bench:
    """Measures the bundles of one plan, one after the other."""

    spec: Spec
    # Contains each record before its event is published.
    journal: Journal
    # A file descriptor that becomes readable when the run is to stop: every wait then raises InterruptedError.
    interrupt: int
    # Receives the events.
    publish: Callable[[dict[str, Any]], None]
    _compilers: dict[str, Compiler] = field(default_factory=dict)
    _finished: set[str] = field(init=False)
    # The trials of this plan that search for fast code.
    _tuning: set[str] = field(init=False)
    _budget: Budget = field(init=False)
    _chip: Chip | None = field(init=False)
    # How an export ended its child, by the folder of the preparation: this plan does not repeat it.
    _unexportable: dict[str, Failure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._finished = set(self.journal.statuses()) | self.spec.have
        sweep = self.spec.sweep
        self._chip = telemetry.open(self.spec.accelerator)
        self._budget = Budget(sweep.tuning_seconds, sweep.tuning_candidates, self.journal)
        tuned = {label for label in sweep.compilers if tuning.is_tuned(self._load_compiler(label), label)}
        trials = sweep.trials(self.spec.device) if tuned else []
        self._tuning = {trial.id for trial in trials if trial.compiler in tuned}

    @property
    def threads(self) -> int:
        return server_pool.choose_threads(self.spec)

    def warm_servers(self) -> None:
        """Evict old preparations, and start every fork server that the sweep needs."""
        preparation.evict(preparation.locate_cache(self.spec.state_dir, self.spec.place), _CACHE_BYTES)
        server_pool.start_servers(self.spec)

    def measure(self, bundle: Bundle) -> None:
        """Measure every trial of a bundle that has no record, until it has one.

        InterruptedError if the run is to stop: trials in flight then have no record and do not count as attempted.
        """
        jobs = [job for group in bundle.groups for job in self._list_jobs(group)]
        pending = [job for job in jobs if not job.trial.beside]
        if not pending:
            return
        unfinished = self.journal.unfinished("measure")
        crashes = max(unfinished[job.trial.id] for job in pending)
        first_rounds = bundles.iterate_first_rounds(is_first=len(pending) == len(bundle.trials) and not crashes)
        # If the engine ended twice in a bundle, its trials are measured one by one, to find the cause.
        is_interleaved = self.spec.sweep.interleave and crashes < _MOST_ATTEMPTS
        separate, deferred = ([], jobs) if is_interleaved else (pending, [])
        while deferred:
            batch, deferred = [*self._list_ties(bundle, deferred), *deferred], []
            with self._load_workers(batch, separate, deferred) as workers:
                self._time(batch, workers, next(first_rounds))
        for job in separate:
            with self._load_workers([job], [], []) as workers:
                for worker in workers:
                    worker.interleaved = len(bundle.trials) == 1
                self._time([job], workers, next(first_rounds))

    def _list_jobs(self, group: Group) -> list[Job]:
        """List the trials of a group that have no record, and its anchor; none if its network cannot be prepared."""
        pending = self._drop_crashed([trial for trial in group.trials if trial.id not in self._finished])
        if not pending:
            return []
        anchors = [group.anchor] if group.anchor is not None and group.anchor.id not in self._finished else []
        try:
            prepared = self._prepare(group, pending)
        except TrialFailedError as error:
            self._finish([replace(error.failure, trial_id=trial.id) for trial in pending])
            return []
        return [Job(trial=trial, group=group, prepared=prepared) for trial in (*pending, *anchors)]

    def _list_ties(self, bundle: Bundle, jobs: Sequence[Job]) -> list[Job]:
        """List the tie of jobs that do not take turns with the baseline of their bundle's first network, if any."""
        if bundles.has_baseline(bundle, jobs):
            return []
        ties = [job.group.tie for job in jobs if job.group.tie is not None and job.group.tie.id not in self._finished]
        if not ties or len(bundle.groups) == 1:
            return []
        try:
            prepared = self._prepare(bundle.groups[0], ties[:1])
        except TrialFailedError:
            return []
        return [Job(trial=ties[0], group=bundle.groups[0], prepared=prepared)]

    def report_wait(self, reason: str) -> None:
        """Report why the device waits."""
        self._report("stage", text=f"{self.spec.place} {reason}")

    def note(self, kind: str, key: str, value: Mapping[str, Any]) -> None:
        """Write a note about the run, which is not a record, and report it."""
        self.journal.note(kind, key, value)
        self._report(kind, key=key, value=value)

    def _drop_crashed(self, trials: list[Trial]) -> list[Trial]:
        """Record trials that ended their engine too often as crashed; return the others."""
        loads, measures = self.journal.unfinished("load"), self.journal.unfinished("measure")
        crashes = {trial.id: max(loads[trial.id], measures[trial.id] - 1) for trial in trials}
        crashed = [trial for trial in trials if crashes[trial.id] >= _MOST_ATTEMPTS]
        line = "its engine ended {} times during the trial; it is not repeated"
        self._finish([build_failure(trial, "crashed", "engine", line.format(crashes[trial.id])) for trial in crashed])
        return [trial for trial in trials if trial not in crashed]

    def _prepare(self, group: Group, trials: Sequence[Trial]) -> Mapping[str, Any]:
        """Load facts, reference and ONNX file of the group's workload from the cache, or build them in a child now."""
        compilers = [self._load_compiler(trial.compiler) for trial in trials]
        needs_onnx = any(choose_form(compiler, group.workload.source) == "onnx" for compiler in compilers)
        network = self._describe_network(group)
        key = preparation.build_key(group.workload, group.factors, network["seed"], self.spec.run_id + network["file"])
        folder = preparation.locate_folder(self.spec.state_dir, self.spec.place, key)
        exports = needs_onnx and str(folder) not in self._unexportable
        message = {
            "op": "prepare",
            **network,
            "threads": self.threads,
            "folder": str(folder),
            "batch_sizes": list(self.spec.sweep.batch_sizes),
            "exports": exports,
            "importers": canonical_graphs.list_needs(compilers) if exports else [],
        }
        prepared = preparation.load(folder, message["batch_sizes"], exports=exports, importers=message["importers"])
        if prepared is None:
            self._report("stage", step="prepare", text=f"preparing {group.workload.name}")
            prepared = self._prepare_in_child(group, trials[0], message)
        self.note("facts", facts_key(group.workload.name, group.factors), prepared["facts"])
        return {**prepared, "folder": str(folder)}

    def _prepare_in_child(self, group: Group, trial: Trial, message: dict[str, Any]) -> dict[str, Any]:
        """Prepare in a child; an export that ends its child costs the ONNX graph, but not every compiler."""
        source: Source = registry.load(registry.WORKLOADS, group.workload.source)
        modules = list_preparation_modules(source, exports=message["exports"])
        for attempt in range(1, _MOST_ATTEMPTS + 1):
            try:
                with self._run_worker(trial, modules, group.workload.python) as worker:
                    return worker.prepare(message)
            except TrialFailedError as error:
                status = error.failure.status
                if status == "crashed" and attempt < _MOST_ATTEMPTS:
                    continue  # something outside may have killed the child
                if status not in ("crashed", "timeout", "out-of-memory") or not message["exports"]:
                    raise
                self._unexportable[message["folder"]] = error.failure
        with self._run_worker(trial, source.preload, group.workload.python) as worker:
            return worker.prepare({**message, "exports": False, "importers": []})

    @contextmanager
    def _load_workers(self, batch: list[Job], separate: list[Job], deferred: list[Job]) -> Iterator[list[Worker]]:
        """Load a worker, ready to be timed, for each job that does not fail before that; they end with the block.

        A group that does not fit in memory beside another is added to `deferred`, with all after it; trials that do not
        fit beside others of their own group are added to `separate`, except anchors.
        """
        workers: list[Worker] = []
        try:
            for index, job in enumerate(batch):
                trial = job.trial
                self._report("stage", step="compile", trial_id=trial.id, text=f"compiling {trial}")
                try:
                    if self._has_room(workers):
                        workers.append(self._load(job))
                        continue
                except TrialFailedError as error:
                    if error.failure.status != "out-of-memory" or not workers:
                        self._finish([error.failure])
                        continue
                    self.journal.passed([trial.id], "load")
                if trial.beside:
                    continue
                start = bundles.find_earlier_group(batch, index)
                if start is not None:
                    deferred += batch[start:]
                    postponed = {job.trial.id for job in deferred}
                    for worker in (worker for worker in workers if worker.trial.id in postponed):
                        worker.end()
                    workers[:] = [worker for worker in workers if worker.trial.id not in postponed]
                    break
                separate.append(job)
            yield workers
        except InterruptedError:
            for phase in ("load", "measure"):
                self.journal.passed([job.trial.id for job in batch], phase)
            raise
        finally:
            for worker in workers:
                worker.end()

    def _has_room(self, workers: Sequence[Worker]) -> bool:
        """Whether another worker is likely to fit beside the live ones, judged by the largest of them."""
        largest = max((worker.peak_memory_bytes for worker in workers), default=0)
        return resources.read_available_memory_bytes() >= _HEADROOM * largest

    def _load(self, job: Job) -> Worker:
        trial, group, prepared = job.trial, job.group, job.prepared
        task = self._build_task(trial, group, prepared)
        self.journal.start([trial.id], "load")
        cache = CompileCache.locate(Path(prepared["folder"]), trial.compiler, trial.batch_size, self.threads)
        caches = self._load_compiler(trial.compiler).caches
        cold_s = self._compile_cold(trial, group, task, cache) if caches else None
        worker = self._start_worker(trial, group, task)
        try:
            worker.load({**task, "cache": str(cache.folder)})
            if cold_s is not None:
                worker.set_cold_compile(cold_s)
            worker.warm_up()
        except BaseException:
            worker.end()
            raise
        self.journal.passed([trial.id], "load")
        return worker

    def _compile_cold(self, trial: Trial, group: Group, task: Mapping[str, Any], cache: CompileCache) -> float:
        """Compile with an empty cache unless it is full, and return the seconds of the cold compile."""
        cold_s = cache.read_cold_s()
        if cold_s is not None:
            return cold_s
        cache.clear()
        worker = self._start_worker(trial, group, task)
        try:
            worker.load({**task, "cache": str(cache.folder)})
        finally:
            worker.end()
        cache.mark_full(worker.compile_time_s)
        return worker.compile_time_s

    def _start_worker(self, trial: Trial, group: Group, task: Mapping[str, Any]) -> Worker:
        source: Source = registry.load(registry.WORKLOADS, group.workload.source)
        modules = list_modules(self._load_compiler(trial.compiler), task["form"], source)
        return self._fork(trial, modules, group.workload.python)

    def _fork(self, trial: Trial, modules: tuple[str, ...], python: str) -> Worker:
        search = Search(trial.id, self.journal)

        def report(progress: Message) -> None:
            search.record(progress)
            self._report("tuning", text=f"tuning {trial}", trial_id=trial.id, **progress)

        try:
            child = get_servers(self.spec).fork(modules, python)
        except ServerEndedError as error:
            failure = build_failure(trial, "crashed", "build", error.reason)
            raise TrialFailedError(replace(failure, detail=error.log)) from error
        try:
            return Worker(
                trial=trial,
                child=child,
                timeout_s=self.spec.sweep.timeout_s,
                interrupt=self.interrupt,
                report=report,
                meter=Meter(self._chip, child.pid),
            )
        except ProcessLookupError as error:  # killed already
            child.end()
            raise TrialFailedError(build_failure(trial, "crashed", "build", "the child process ended")) from error

    def _build_task(self, trial: Trial, group: Group, prepared: Mapping[str, Any]) -> dict[str, Any]:
        """Build the task that the worker's child loads."""
        compiler = self._load_compiler(trial.compiler)
        form = choose_form(compiler, group.workload.source)
        size = str(trial.batch_size)
        reason = compiler.unavailable(self.spec.accelerator)
        if not reason and form is None:
            reason = f"{compiler.name} needs a torch module; {group.workload.name} is an ONNX file"
        if not reason and prepared["batch_size"] not in (None, trial.batch_size):
            reason = preparation.describe_batch(group.workload.name, prepared)
        if not reason and form == "onnx" and size not in prepared["onnx"]:
            failure = self._unexportable.get(prepared["folder"])
            if failure is not None:
                line = f"the export to ONNX: {failure.error}"
                raise TrialFailedError(replace(failure, trial_id=trial.id, error=line, started_at=time.time()))
            reason = prepared["refused"].get(size) or "it has no ONNX file"
        if reason:
            raise TrialFailedError(build_failure(trial, "unsupported", "compile", reason))
        return {
            **self._describe_network(group),
            "compiler": trial.compiler,
            "form": form,
            **canonical_graphs.choose(compiler, prepared, trial.batch_size),
            "inputs": prepared["inputs"],
            "examples": prepared["examples"],
            "reference": preparation.find_reference(prepared, trial.batch_size),
            "precision": prepared["precision"],
            "batch_size": trial.batch_size,
            "threads": self.threads,
            "accelerator": self.spec.accelerator,
            "gpu_timer": self.spec.sweep.gpu_timer,
            "flush_l2": self.spec.sweep.flush_l2,
            "tuning": {
                "folder": str(tuning.locate_folder(self.spec.state_dir, self.spec.place)),
                **self._budget.allot(len(self._tuning - self._finished)),
            },
        }

    def _describe_network(self, group: Group) -> dict[str, Any]:
        return {
            "workload": group.workload.to_json(),
            "file": self.spec.world.files.get(group.workload.name, "") if self.spec.world else "",
            "factors": dict(group.factors),
            "seed": self.spec.sweep.seed,
            "artifacts": str(self.spec.state_dir / LAYOUT.artifacts),
        }

    def _time(self, batch: Sequence[Job], workers: list[Worker], first_round: int) -> None:
        if not workers:
            return
        self.journal.start([worker.trial.id for worker in workers], "measure")
        jobs = {job.trial.id: job for job in batch}
        timed = [worker.trial.id for worker in workers if not worker.trial.beside]
        groups = [*{id(jobs[name].group): jobs[name].group for name in timed}.values()] or [batch[0].group]
        number = bundles.draw_number()
        for worker in workers:
            worker.bundle = number
        sweep = self.spec.sweep
        if sweep.max_seconds is not None and len(groups) > 1:  # the limit is of a group
            sweep = attrs.evolve(sweep, max_seconds=sweep.max_seconds * len(groups))
        interleaving = Interleaving(
            sweep=sweep,
            first_round=first_round,
            record_failure=self._finish,
            finish=lambda finished: self._finish(
                [worker.finish(jobs[worker.trial.id].prepared["baseline_rmse"]) for worker in finished]
            ),
            report=lambda done, total, disturbed: self._report(
                "round", text=bundles.describe_round(groups, disturbed), done=done, total=total, trial_ids=timed
            ),
        )
        interleaving.run(workers)

    @contextmanager
    def _run_worker(self, trial: Trial, modules: tuple[str, ...], python: str) -> Iterator[Worker]:
        worker = self._fork(trial, modules, python)
        try:
            yield worker
        finally:
            worker.end()

    def _load_compiler(self, label: str) -> Compiler:
        if label not in self._compilers:
            self._compilers[label] = registry.load(registry.COMPILERS, Choice.parse(label).compiler)
        return self._compilers[label]

    def _finish(self, records: Sequence[Record]) -> None:
        """Write records to the journal, and only then report them."""
        hold_if_ending()
        if records:
            self.journal.finish(records)
        self._finished |= {record.trial_id for record in records}
        for record in records:
            self._report("record", record=record_format.to_json(record))

    def _report(self, kind: str, **fields: Any) -> None:
        self.publish({"kind": kind, "device": self.spec.device, **fields})
