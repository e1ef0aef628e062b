"""The second phase of a bundle: each trial is compiled in a worker, which is warm when its first turn begins."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ngbkit.compilers.base import GRAPH
from ngbkit.compilers.quantiser import Quantiser
from ngbkit.device import canonical_graphs, preparation, quantised_graphs
from ngbkit.device.groups import tuning
from ngbkit.device.groups.bundles import Job
from ngbkit.device.groups.compiled import CompileCache
from ngbkit.device.groups.preparing import Preparer
from ngbkit.device.groups.tuning import Budget
from ngbkit.device.groups.worker import TrialFailedError, Worker, build_failure
from ngbkit.device.isolation.server_pool import choose_memory
from ngbkit.device.isolation.settings import find_memory_refusal
from ngbkit.sweep.column import Column
from ngbkit.sweep.records import Failure
from ngbkit.sweep.trials import Group, Trial
from ngbkit.workloads.canonical import UNUSED, Importer


@dataclass(slots=True, kw_only=True)
class Loader(Preparer):
    """Compiles the trials of one plan, within its tuning budget."""

    _finished: set[str] = field(init=False)
    # The trials of this plan that search for fast code.
    _tuning: set[str] = field(init=False)
    _budget: Budget = field(init=False)

    def __post_init__(self) -> None:
        Preparer.__post_init__(self)
        recorded = set(self.journal.statuses()) - self.journal.list_stopped()
        self._finished = (recorded | self.spec.have) - self.spec.beside_ids
        sweep = self.spec.sweep
        self._budget = Budget(sweep.tuning_seconds, self.journal)
        tuned = {label for label in sweep.compilers if tuning.is_tuned(Column.read(label))}
        trials = sweep.trials(self.spec.device) if tuned else []
        self._tuning = {trial.id for trial in trials if trial.compiler in tuned}

    def _load(self, job: Job) -> Worker:
        """Load a trial; a release that cannot read the network's ONNX file gets one of an earlier opset or format."""
        task = self._build_task(job.trial, job.group, job.prepared)
        self.journal.start([job.trial.id], "load")
        task["facts"] = {**_describe_file(task, job.prepared), **task["facts"]}
        task |= self._quantise(job.trial, job.group, task)
        limits = Importer()
        while True:
            try:
                return self._load_task(job, task)
            except TrialFailedError as error:
                if task["form"] == "module":  # it may be another network that failed
                    self.check_unchanged(job.trial, job.prepared["content"])
                if error.failure.stage == "install":
                    self._reinstall(job.trial, error.failure.error)
                    continue
                narrower = self._find_limits(job.trial.column, error.failure, limits)
                if narrower == limits:
                    raise explain_limits(error, limits, task) from error
                limits = narrower
            text = f"lowering {job.group.workload.name} for {job.trial.compiler}"
            self._report("stage", step="prepare", text=text)
            prepared = self._prepare_limited(job.group, job.trial, limits)
            task |= canonical_graphs.choose(limits, prepared, job.trial.batch_size)

    def _quantise(self, trial: Trial, group: Group, task: Mapping[str, Any]) -> dict[str, Any]:
        """Choose the quantised graph of a trial, which is written in a child first if it is missing; none without."""
        quantiser = trial.column.load_compiler().find_quantiser(trial.column.precision)
        if quantiser is None:
            return {}
        folder = Path(task["folder"])
        source = Path(task["onnx"]).name if quantiser.form == "onnx" else ""
        seed, accelerator = self.spec.sweep.seed, self.spec.accelerator
        recipe = quantised_graphs.build_recipe(quantiser, group.workload, seed, accelerator, source)
        graph = quantised_graphs.read(folder, trial.batch_size, recipe)
        if graph is None:
            text = f"quantising {group.workload.name} for {trial.compiler}, batch {trial.batch_size}"
            self._report("stage", step="prepare", text=text)
            message = {**task, "quantiser": quantiser.name, "recipe": recipe}
            workloads = group.workload.load_source()
            modules = workloads.preload if quantiser.form == "module" else ()
            with self._run_worker(trial, modules, group.workload.python) as worker:
                graph = quantised_graphs.QuantisedGraph(**worker.quantise(message))
        facts = {**task["facts"], **graph.to_facts()}
        computed = str(graph.recipe.get("computes", quantiser.precision))
        notes = str(graph.recipe.get("notes", ""))
        quantised = {"quantiser": quantiser.name, "path": graph.path, "computes": computed, "notes": notes}
        return {"quantised": quantised, "facts": facts}

    def _find_limits(self, column: Column, failure: Failure, limits: Importer) -> Importer:
        """Find what a release says that it can read at most, when it refuses a file."""
        if column.release:
            for pattern in column.load_compiler().limits:
                match = re.search(pattern, f"{failure.error}\n{failure.detail}")
                versions: dict[str, Any] = {}
                for name, text in (match.groupdict() if match else {}).items():
                    versions[name] = int(text)
                limits = replace(limits, **versions)
        return limits

    def _load_task(self, job: Job, task: dict[str, Any]) -> Worker:
        trial, group, prepared = job.trial, job.group, job.prepared
        cache = CompileCache.locate(
            Path(prepared["folder"]), trial.compiler, trial.batch_size, self.threads, task["memory"]
        )
        caches = trial.column.load_compiler().caches
        cold_s = self._compile_cold(trial, group, task, cache) if caches else None
        worker = self._start_worker(trial, group, task)
        try:
            worker.load({**task, "cache": str(cache.folder)})
            if task["form"] == "module":  # which the child has just built
                self.check_unchanged(trial, prepared["content"])
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

    def _find_quantiser_refusal(self, trial: Trial, group: Group, quantiser: Quantiser, form: str | None) -> str:
        """Find why a network cannot be quantised for a column; empty if it can."""
        if trial.column.options.get(GRAPH):
            return f"{trial.compiler} names a graph and a precision; expected one of the two, for the graph has its own"
        if form is not None and form != quantiser.form:
            return (
                f"{trial.compiler} quantises torch modules; {group.workload.name} is an ONNX file. Use "
                'onnxruntime{"precision":"int8"} or openvino{"precision":"int8"}, which quantise ONNX files'
            )
        return quantiser.unavailable(self.spec.accelerator)

    def _build_task(self, trial: Trial, group: Group, prepared: Mapping[str, Any]) -> dict[str, Any]:
        """Build the task that the worker's child loads."""
        compiler = trial.column.load_compiler()
        form = compiler.choose_form(group.workload.kind)
        size = str(trial.batch_size)
        missing = f"{compiler.name} needs a torch module; {group.workload.name} is an ONNX file" if form is None else ""
        reason = missing or self._find_refusal(trial.column, group.workload)
        reason = reason or find_memory_refusal(choose_memory(self.spec, trial.column))
        quantiser = compiler.find_quantiser(trial.column.precision)
        if not reason and quantiser is not None:
            reason = self._find_quantiser_refusal(trial, group, quantiser, form)
        if not reason and form == "onnx" and "module" in compiler.forms and trial.column.release:
            reason = f"{trial.compiler} is a release of {compiler.distribution}, which runs no ONNX file"
        if not reason and prepared["batch_size"] not in (None, trial.batch_size):
            reason = preparation.describe_batch(group.workload.name, prepared)
        if not reason and form == "onnx" and size not in prepared["onnx"]:
            failure = self._unexportable.get(prepared["recipe"])
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
            **canonical_graphs.choose(compiler.importer, prepared, trial.batch_size),
            "inputs": prepared["inputs"],
            "examples": prepared["examples"],
            "reference": preparation.find_reference(prepared, trial.batch_size),
            "evaluation": prepared["evaluation"],
            "accept": list(self.spec.sweep.accept),
            "folder": prepared["folder"],
            "quantised": None,
            "precision": prepared["precision"],
            "batch_size": trial.batch_size,
            "threads": self.threads,
            "memory": choose_memory(self.spec, trial.column),
            "accelerator": self.spec.accelerator,
            "gpu_timer": self.spec.sweep.gpu_timer,
            "flush_l2": self.spec.sweep.flush_l2,
            "tuning": {
                "folder": str(tuning.locate_folder(self.spec.state_dir, self.spec.place)),
                "seconds": self._budget.allot(len(self._tuning - self._finished)),
            },
        }


def _describe_file(task: Mapping[str, Any], prepared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bytes of the ONNX file of a task, with weights that it has in another file, and its exporter."""
    if task["form"] != "onnx":
        return {}
    size, weights = Path(task["onnx"]).stat().st_size, int(prepared["facts"].get("weight_bytes") or 0)
    exporter = {} if prepared["is_file"] else {"exporter": prepared["exporters"][str(task["batch_size"])]}
    return {"file_bytes": size if size > weights else size + weights, **exporter}


def explain_limits(error: TrialFailedError, limits: Importer, task: Mapping[str, Any]) -> TrialFailedError:
    """Explain that a release reads no file of the network, if no conversion to what it reads was proved."""
    steps = task.get("facts", {}).get("canonical", [])
    problem = next((step for step in steps if step.startswith(UNUSED)), "")
    if not limits.is_limited or not problem:
        return error
    bounds = [f"{name} {most}" for name, most in (("opset", limits.most_opset), ("format", limits.most_ir)) if most]
    text = (
        f"it reads ONNX of {' and '.join(bounds)} at most, and no such file of the network is proved equal "
        f"({problem[:300]}). Export the network with an earlier opset, or choose a later release."
    )
    return TrialFailedError(replace(error.failure, status="unsupported", error=" ".join(text.split())))
