"""The measurement of a bundle: its networks are prepared, its trials loaded and timed in rounds, and recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import attrs

from ngbkit.device.groups import bundles
from ngbkit.device.groups.bundles import Job
from ngbkit.device.groups.interleaving import Interleaving
from ngbkit.device.groups.loading import Loader
from ngbkit.device.groups.preparing import MOST_ATTEMPTS
from ngbkit.device.groups.profiling import profile_workers
from ngbkit.device.groups.worker import TrialFailedError, Worker, build_failure
from ngbkit.device.process_lifetime import hold_if_ending
from ngbkit.errors import DiskError, JournalError
from ngbkit.hardware import resources
from ngbkit.sweep import records as record_format
from ngbkit.sweep.records import Record
from ngbkit.sweep.trials import Bundle, Group, Trial

# The free memory, as a multiple of the largest worker, that allows another worker, or a profiler, beside the others.
_HEADROOM = 1.5


@dataclass(slots=True, kw_only=True)
class Bench(Loader):
    """Measures the bundles of one plan, one after the other."""

    def install_releases(self) -> None:
        """Install the releases of the columns that have no record; those that cannot be installed fail at once."""
        pending = [trial for trial in self.spec.sweep.trials(self.spec.device) if trial.id not in self._finished]
        self._install(trial.compiler for trial in pending)
        self._finish(
            [
                build_failure(trial, "unsupported", "install", self._refusals[trial.compiler])
                for trial in pending
                if trial.compiler in self._refusals
            ]
        )

    def measure(self, bundle: Bundle) -> None:
        """Measure every trial of a bundle that has no record, until it has one.

        InterruptedError if the run is to stop: trials in flight then have a record of the rounds so far, and do not
        count as attempted.
        """
        jobs = [job for group in bundle.groups for job in self._list_jobs(group)]
        pending = [job for job in jobs if not job.trial.beside]
        if not pending:
            return
        unfinished = self.journal.unfinished("measure")
        crashes = max(unfinished[job.trial.id] for job in pending)
        is_first = len(pending) == len(bundle.trials) and not crashes
        is_first &= (self.spec.beside_ids | self.spec.retry_ids).isdisjoint(job.trial.id for job in pending)
        jobs = jobs if is_first else bundles.shuffle(jobs)
        first_rounds = bundles.iterate_first_rounds(is_first=is_first)
        # If the engine ended twice in a bundle, its trials are measured one by one, to find the cause.
        is_interleaved = self.spec.sweep.interleave and crashes < MOST_ATTEMPTS
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

    def _drop_crashed(self, trials: list[Trial]) -> list[Trial]:
        """Record trials that ended their engine too often as crashed; return the others."""
        loads, measures = self.journal.unfinished("load"), self.journal.unfinished("measure")
        crashes = {trial.id: max(loads[trial.id], measures[trial.id] - 1) for trial in trials}
        crashed = [trial for trial in trials if crashes[trial.id] >= MOST_ATTEMPTS]
        line = "its engine ended {} times during the trial; it is not repeated"
        self._finish([build_failure(trial, "crashed", "engine", line.format(crashes[trial.id])) for trial in crashed])
        return [trial for trial in trials if trial not in crashed]

    @contextmanager
    def _load_workers(self, batch: list[Job], separate: list[Job], deferred: list[Job]) -> Iterator[list[Worker]]:
        """Load a worker, ready to be timed, for each job that does not fail before that; they end with the block.

        A group that does not fit in memory together with another is added to `deferred`, with all after it. Trials that
        do not fit together with their own group are added to `separate`, except anchors.
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
        except (InterruptedError, DiskError) as error:
            with suppress(*([JournalError] if isinstance(error, DiskError) else [])):
                for phase in ("load", "measure"):
                    self.journal.passed([job.trial.id for job in batch], phase)
            raise
        finally:
            for worker in workers:
                worker.end()

    def _has_room(self, workers: Sequence[Worker]) -> bool:
        """Return whether another worker is likely to fit in memory, judged by the largest of the live ones."""
        largest = max((worker.peak_memory_bytes for worker in workers), default=0)
        return resources.read_available_memory_bytes() >= _HEADROOM * largest

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

        def get_baseline_rmse(worker: Worker) -> float:
            return float(jobs[worker.trial.id].prepared["baseline_rmse"])

        interleaving = Interleaving(
            sweep=sweep,
            first_round=first_round,
            record_failure=self._finish,
            finish=lambda finished: self._conclude(finished, get_baseline_rmse),
            report=lambda done, total, contended: self._report(
                "round", text=bundles.describe_round(groups, contended), done=done, total=total, trial_ids=timed
            ),
            look=lambda active: self._report(
                "interim",
                records=[
                    record_format.to_json(worker.summarize(get_baseline_rmse(worker)))
                    for worker in active
                    if not worker.trial.beside
                ],
            ),
        )
        try:
            interleaving.run(workers)
        except InterruptedError:
            self._record_shared_rounds(workers, get_baseline_rmse)
            raise

    def _record_shared_rounds(self, workers: Sequence[Worker], get_baseline_rmse: Callable[[Worker], float]) -> None:
        """Record the rounds that all workers without a record have had: their ratios stay those of the same rounds."""
        active = [worker for worker in workers if worker.trial.id not in self._finished]
        shared = set.intersection(*(worker.list_rounds() for worker in active)) if active else set()
        for worker in active if shared else ():
            worker.drop_rounds(shared)
        self._finish([worker.stop(get_baseline_rmse(worker)) for worker in active if shared])

    def _conclude(self, workers: Sequence[Worker], get_baseline_rmse: Callable[[Worker], float]) -> None:
        """Record and end workers after their last turns; their compilers explain their work at once, if memory allows.

        That of a GPU is not known, and an explanation may take as much as the worker itself.
        """
        concluded: list[Worker] = []
        records: list[Record] = []
        for worker in workers:
            try:
                worker.conclude()
                concluded.append(worker)
            except TrialFailedError as error:
                records.append(error.failure)
        if self.spec.sweep.profile:
            self._profile([worker for worker in concluded if not worker.trial.beside])
        total = sum(worker.peak_memory_bytes for worker in concluded)
        is_roomy = resources.read_available_memory_bytes() >= _HEADROOM * total and self.spec.accelerator == "cpu"
        for worker in concluded if is_roomy else ():
            worker.post_explain()
        for worker in concluded:
            if not is_roomy:
                worker.post_explain()
            records.append(worker.finish(get_baseline_rmse(worker)))
        self._finish(records)
        for worker in concluded:
            worker.end()

    def _profile(self, workers: Sequence[Worker]) -> None:
        """Profile workers that have had their last timed turn."""
        names = [worker.trial.id for worker in workers]
        text = f"profiling {', '.join(str(worker.trial) for worker in workers)}"
        profile_workers(
            workers,
            self.spec.sweep.seed,
            lambda done, total: self._report("round", text=text, done=done, total=total, trial_ids=names),
            resources.read_available_memory_bytes() / _HEADROOM,
        )

    def _finish(self, records: Sequence[Record]) -> None:
        """Write records to the journal, and only then report them."""
        hold_if_ending()
        if records:
            self.journal.finish(records)
        self._finished |= {record.trial_id for record in records}
        for record in records:
            self._report("record", record=record_format.to_json(record))
