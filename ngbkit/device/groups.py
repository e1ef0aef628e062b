"""How a group is measured: prepare the workload, load each compiler into a lane, take rounds, write records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ngbkit import registry
from ngbkit.compilers.base import Compiler
from ngbkit.device import preparation, server_pool, tuning
from ngbkit.device.channel import Message
from ngbkit.device.compiled import Compiled
from ngbkit.device.interleaving import Rounds
from ngbkit.device.server_pool import form_of, preload, preparing, servers
from ngbkit.device.servers import ForkServer
from ngbkit.device.spec import Spec
from ngbkit.device.tuning import Budget, Search
from ngbkit.device.worker import Lane, LaneFailedError
from ngbkit.hardware import resources, telemetry
from ngbkit.hardware.telemetry import Chip, Meter
from ngbkit.sweep import records as record_format
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Failure, Record
from ngbkit.sweep.trials import Choice, Group, Trial, facts_key
from ngbkit.workloads.base import Source

# A trial whose process ended this often in the same phase is not tried again.
_MOST_ATTEMPTS = 2
# Rounds of one attempt at a group never carry the numbers of another's: they did not run side by side.
_ATTEMPT_STRIDE = 1_000_000

# Prepared workloads (mostly weights, once a batch size) are kept up to this much.
_CACHE_BYTES = 20_000_000_000

# A lane is loaded beside others while this many times the largest of them is free.
_HEADROOM = 1.5


@dataclass(slots=True, kw_only=True)
class Bench:
    """Where the groups of one plan are measured, one after the other.

    Parameters
    ----------
    spec
        What the plan was told.
    journal
        Where records go before anyone is told of them.
    interrupt
        A file descriptor that becomes readable when the run is to stop: whatever waits then raises InterruptedError.
    publish
        Takes the events.
    """

    spec: Spec
    journal: Journal
    interrupt: int
    publish: Callable[[dict[str, Any]], None]
    _compilers: dict[str, Compiler] = field(default_factory=dict)
    _finished: set[str] = field(init=False)
    # The trials of this plan that search for fast code.
    _tuning: set[str] = field(init=False)
    _budget: Budget = field(init=False)
    _chip: Chip | None = field(init=False)
    # Why an export ended its child, by the folder of the preparation: this plan does not try it again.
    _unexportable: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._finished = set(self.journal.statuses()) | self.spec.have
        sweep = self.spec.sweep
        self._chip = telemetry.open(self.spec.accelerator)
        self._budget = Budget(sweep.tuning_seconds, sweep.tuning_candidates, self.journal)
        tuned = {label for label in sweep.compilers if _tunes(self._compiler(label), label)}
        trials = sweep.trials(self.spec.device) if tuned else []
        self._tuning = {trial.id for trial in trials if trial.compiler in tuned}

    @property
    def threads(self) -> int:
        return server_pool.threads_of(self.spec)

    def warm_servers(self) -> None:
        """Make room in the cache, and start every fork server that the sweep needs."""
        preparation.evict(preparation.cache(self.spec.state_dir, self.spec.device), _CACHE_BYTES)
        server_pool.start(self.spec)

    def measure(self, group: Group) -> None:
        """Bring every trial of a group that has no record to a record.

        Raises
        ------
        InterruptedError
            The run is to stop. What was in flight has no record and does not count as an attempt.
        """
        anchors = [group.anchor] if group.anchor is not None and group.anchor.id not in self._finished else []
        todo = self._give_up([trial for trial in group.trials if trial.id not in self._finished])
        if not todo:
            return
        try:
            prepared = self._prepare(group, todo)
        except LaneFailedError as error:
            self._finish([replace(error.failure, trial_id=trial.id) for trial in todo])
            return
        ended = max(self.journal.unfinished("measure")[trial.id] for trial in todo)
        first = (len(group.trials) - len(todo) + ended) * _ATTEMPT_STRIDE
        # A group whose engine ended twice while it was measured is measured one by one, to find out which of them
        # does it.
        together = self.spec.sweep.interleave and ended < _MOST_ATTEMPTS
        apart = [] if together else todo
        if together:
            with self._loaded(group, todo + anchors, prepared, apart) as lanes:
                self._take_rounds(group, lanes, prepared, first)
        for index, trial in enumerate(apart, start=int(together)):
            with self._loaded(group, [trial], prepared, []) as lanes:
                for lane in lanes:
                    lane.interleaved = len(group.trials) == 1
                self._take_rounds(group, lanes, prepared, first + index * _ATTEMPT_STRIDE)

    def wait_for(self, holder: str) -> None:
        """Tell that the device is not free."""
        self._tell("stage", text=f"{self.spec.device} is taken by {holder}; waiting until it is free")

    def note(self, kind: str, key: str, value: Mapping[str, Any]) -> None:
        """Keep, and tell of, something about the run that is not a record."""
        self.journal.note(kind, key, value)
        self._tell(kind, key=key, value=value)

    def _give_up(self, todo: list[Trial]) -> list[Trial]:
        """Record trials that ended their engine too often as crashed; the others."""
        loads, measures = self.journal.unfinished("load"), self.journal.unfinished("measure")
        ended = {trial.id: max(loads[trial.id], measures[trial.id] - 1) for trial in todo}
        gone = [trial for trial in todo if ended[trial.id] >= _MOST_ATTEMPTS]
        line = "its engine ended {} times while it was tried; it is not tried again"
        self._finish([_failure(trial, "crashed", "engine", line.format(ended[trial.id])) for trial in gone])
        return [trial for trial in todo if trial not in gone]

    def _prepare(self, group: Group, todo: Sequence[Trial]) -> Mapping[str, Any]:
        """Facts, reference and ONNX file of the group's workload: from the cache, or made in a child now."""
        wants_onnx = any(form_of(self._compiler(trial.compiler), group.workload.source) == "onnx" for trial in todo)
        seed = self.spec.sweep.seed
        kept = preparation.cache(self.spec.state_dir, self.spec.device)
        folder = kept / preparation.key(group.workload, group.factors, seed, self.spec.run_id)
        failed = str(folder) in self._unexportable
        message = {
            "op": "prepare",
            **self._built_from(group),
            "threads": self.threads,
            "folder": str(folder),
            # All at once: the export, which is what takes long, is the same for each.
            "batch_sizes": list(self.spec.sweep.batch_sizes) if wants_onnx and not failed else [],
        }
        prepared = preparation.ready(folder, message["batch_sizes"])
        if prepared is None:
            self._tell("stage", text=f"preparing {group.workload.name}")
            prepared = self._prepare_in_child(group, todo[0], message)
        self.note("facts", facts_key(group.workload.name, group.factors), prepared["facts"])
        return {**prepared, "folder": str(folder), "unexportable": self._unexportable.get(str(folder), "")}

    def _prepare_in_child(self, group: Group, trial: Trial, message: dict[str, Any]) -> dict[str, Any]:
        """A preparation, made in a child. An export that ends its child costs the ONNX graph, and not all compilers."""
        source: Source = registry.load(registry.WORKLOADS, group.workload.source)
        try:
            with self._lane(trial, preparing(source, exports=bool(message["batch_sizes"]))) as lane:
                return lane.prepare(message)
        except LaneFailedError as error:
            if error.failure.status not in ("crashed", "timeout", "out-of-memory") or not message["batch_sizes"]:
                raise
            self._unexportable[message["folder"]] = f"the export to ONNX: {error.failure.status}, {error.failure.error}"
        with self._lane(trial, source.preload) as lane:
            return lane.prepare({**message, "batch_sizes": []})

    @contextmanager
    def _loaded(
        self, group: Group, batch: list[Trial], prepared: Mapping[str, Any], apart: list[Trial]
    ) -> Iterator[list[Lane]]:
        """A lane, ready to be timed, for each trial that did not fail before that; they end with the block.

        Trials that memory does not hold beside the others are added to `apart`, anchors left out.
        """
        lanes: list[Lane] = []
        try:
            for trial in batch:
                self._tell("stage", trial_id=trial.id, text=f"compiling {trial}")
                try:
                    if self._has_room(lanes):
                        lanes.append(self._load(trial, group, prepared))
                        continue
                except LaneFailedError as error:
                    if error.failure.status != "out-of-memory" or not lanes:
                        self._finish([error.failure])
                        continue
                    self.journal.passed([trial.id], "load")
                if not trial.beside:
                    apart.append(trial)
            yield lanes
        except InterruptedError:
            for phase in ("load", "measure"):
                self.journal.passed([trial.id for trial in batch], phase)
            raise
        finally:
            for lane in lanes:
                lane.end()

    def _has_room(self, lanes: Sequence[Lane]) -> bool:
        """Whether one more is likely to fit beside the lanes that are alive: the largest of them is its measure."""
        largest = max((lane.peak_memory_bytes for lane in lanes), default=0)
        return resources.available_memory_bytes() >= _HEADROOM * largest

    def _load(self, trial: Trial, group: Group, prepared: Mapping[str, Any]) -> Lane:
        task = self._task(trial, group, prepared)
        self.journal.start([trial.id], "load")
        kept = Compiled.of(Path(prepared["folder"]), trial.compiler, trial.batch_size, self.threads)
        cold_s = self._compile_cold(trial, group, task, kept) if self._compiler(trial.compiler).caches else None
        lane = self._new_lane(trial, group, task)
        try:
            lane.load({**task, "cache": str(kept.folder)})
            if cold_s is not None:
                lane.compiled_cold(cold_s)
            lane.warm_up()
        except BaseException:
            lane.end()
            raise
        self.journal.passed([trial.id], "load")
        return lane

    def _compile_cold(self, trial: Trial, group: Group, task: Mapping[str, Any], kept: Compiled) -> float:
        """How long compiling takes with an empty cache, in seconds; the cache is full after it."""
        cold_s = kept.cold_s()
        if cold_s is not None:
            return cold_s
        kept.empty()
        lane = self._new_lane(trial, group, task)
        try:
            lane.load({**task, "cache": str(kept.folder)})
        finally:
            lane.end()
        kept.filled(lane.compile_time_s)
        return lane.compile_time_s

    def _new_lane(self, trial: Trial, group: Group, task: Mapping[str, Any]) -> Lane:
        source: Source = registry.load(registry.WORKLOADS, group.workload.source)
        return self._fork(trial, preload(self._compiler(trial.compiler), task["form"], source))

    def _fork(self, trial: Trial, preload: tuple[str, ...]) -> Lane:
        search = Search(trial.id, self.journal)

        def told(progress: Message) -> None:
            search.told(progress)
            self._tell("tuning", text=f"tuning {trial}", trial_id=trial.id, **progress)

        child = self._server(preload).fork()
        return Lane(
            trial=trial,
            child=child,
            timeout_s=self.spec.sweep.timeout_s,
            interrupt=self.interrupt,
            told=told,
            meter=Meter(self._chip, child.pid),
        )

    def _task(self, trial: Trial, group: Group, prepared: Mapping[str, Any]) -> dict[str, Any]:
        """What the lane's child is told to load."""
        compiler = self._compiler(trial.compiler)
        form = form_of(compiler, group.workload.source)
        size = str(trial.batch_size)
        reason = compiler.unavailable(self.spec.accelerator)
        if not reason and form is None:
            reason = f"{compiler.name} takes a torch module; {group.workload.name} is an ONNX file"
        if not reason and prepared["batch_size"] not in (None, trial.batch_size):
            reason = f"{group.workload.name} takes batch size {prepared['batch_size']} only"
        if not reason and form == "onnx" and size not in prepared["onnx"]:
            reason = prepared["refused"].get(size) or prepared["unexportable"] or "there is no ONNX file of it"
        if reason:
            raise LaneFailedError(_failure(trial, "unsupported", "compile", reason))
        return {
            **self._built_from(group),
            "compiler": trial.compiler,
            "form": form,
            "onnx": prepared["onnx"].get(size),
            "inputs": prepared["inputs"],
            "examples": prepared["examples"],
            "reference": prepared["reference"],
            "batch_size": trial.batch_size,
            "threads": self.threads,
            "accelerator": self.spec.accelerator,
            "gpu_timer": self.spec.sweep.gpu_timer,
            "flush_l2": self.spec.sweep.flush_l2,
            "tuning": {
                "folder": str(tuning.folder(self.spec.state_dir, self.spec.device)),
                **self._budget.share(len(self._tuning - self._finished)),
            },
        }

    def _built_from(self, group: Group) -> dict[str, Any]:
        """What building the group's network takes."""
        return {
            "workload": group.workload.to_json(),
            "factors": dict(group.factors),
            "seed": self.spec.sweep.seed,
            "artifacts": str(self.spec.state_dir / "artifacts"),
        }

    def _take_rounds(self, group: Group, lanes: list[Lane], prepared: Mapping[str, Any], first_round: int) -> None:
        if not lanes:
            return
        self.journal.start([lane.trial.id for lane in lanes], "measure")
        ids = [lane.trial.id for lane in lanes if not lane.trial.beside]
        rounds = Rounds(
            sweep=self.spec.sweep,
            first=first_round,
            lost=self._finish,
            finished=lambda done: self._finish([lane.finish(prepared["baseline_rmse"]) for lane in done]),
            tell=lambda done, total: self._tell(
                "round", text=f"measuring {describe(group)}", done=done, total=total, trial_ids=ids
            ),
        )
        rounds.take(lanes)

    @contextmanager
    def _lane(self, trial: Trial, preload: tuple[str, ...]) -> Iterator[Lane]:
        lane = self._fork(trial, preload)
        try:
            yield lane
        finally:
            lane.end()

    def _compiler(self, label: str) -> Compiler:
        if label not in self._compilers:
            self._compilers[label] = registry.load(registry.COMPILERS, Choice.parse(label).compiler)
        return self._compilers[label]

    def _server(self, preload: tuple[str, ...]) -> ForkServer:
        return servers(self.threads, self.spec.accelerator, self.spec.state_dir).get(preload)

    def _finish(self, finished: Sequence[Record]) -> None:
        """Durable before visible."""
        if finished:
            self.journal.finish(finished)
        self._finished |= {record.trial_id for record in finished}
        for record in finished:
            self._tell("record", record=record_format.to_json(record))

    def _tell(self, kind: str, **what: Any) -> None:
        self.publish({"kind": kind, "device": self.spec.device, **what})


def describe(group: Group) -> str:
    """A group in a few words: ``conv width=64 depth=2 batch 8``."""
    factors = "".join(f" {name}={value:g}" for name, value in group.factors.items())
    return f"{group.workload.name}{factors} batch {group.batch_size}"


def _tunes(compiler: Compiler, label: str) -> bool:
    return compiler.tunes(compiler.settle(Choice.parse(label).options))


def _failure(trial: Trial, status: record_format.FailureStatus, stage: record_format.Stage, error: str) -> Failure:
    return Failure(trial_id=trial.id, status=status, stage=stage, error=error, started_at=time.time())
