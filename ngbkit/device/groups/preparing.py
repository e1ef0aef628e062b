"""The first phase of a bundle: facts, reference and ONNX files of its networks, from the cache or from a child."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from ngbkit.device import canonical_graphs, contents, preparation
from ngbkit.device.groups.installing import Installer
from ngbkit.device.groups.worker import TrialFailedError, build_failure
from ngbkit.device.isolation.server_pool import list_preparation_modules, start_servers
from ngbkit.sweep.column import Column
from ngbkit.sweep.records import Failure
from ngbkit.sweep.trials import Group, Trial, facts_key
from ngbkit.workloads.base import Workload
from ngbkit.workloads.canonical import Importer
from ngbkit.workloads.content.manifests import Manifests

# The number of ended processes in the same phase after which a trial is not repeated.
MOST_ATTEMPTS = 2
# The size limit of prepared workloads, mostly weights, once a batch size.
_CACHE_BYTES = 20_000_000_000
# The facts of a network name so many of its files.
_MOST_FILES = 5


@dataclass(slots=True, kw_only=True)
class Preparer(Installer):
    """Prepares the networks of one plan."""

    # How an export ended its child, by what was asked for: this plan does not repeat it.
    _unexportable: dict[str, Failure] = field(default_factory=dict)

    def warm_servers(self) -> None:
        """Evict old preparations, and start every fork server that the sweep needs."""
        preparation.evict(preparation.locate_cache(self.spec.state_dir, self.spec.place), _CACHE_BYTES)
        start_servers(self.spec, self._interpreters)

    def _prepare(self, group: Group, trials: Sequence[Trial]) -> Mapping[str, Any]:
        """Load facts, reference and ONNX file of the group's workload from the cache, or build them in a child now."""
        kind = group.workload.kind
        columns = [trial.column for trial in trials if not self._find_refusal(trial.column, group.workload)]
        compilers = [column.load_compiler() for column in columns]
        needs_onnx = any(compiler.choose_form(kind) == "onnx" for compiler in compilers)
        recipe = contents.build_recipe(self.spec, group)
        exports = needs_onnx and recipe not in self._unexportable
        importers = canonical_graphs.list_needs(compilers) if exports else []
        message = self._build_message(group, recipe, exports, importers)
        prepared = self._load_prepared(group, message)
        if prepared is None:
            self._report("stage", step="prepare", text=f"preparing {group.workload.name}")
            prepared = self._prepare_in_child(group, trials[0], message)
        self._note_facts(group, trials[0], prepared)
        return {**prepared, "recipe": recipe}

    def _find_refusal(self, column: Column, workload: Workload) -> str:
        """Find why a column cannot be measured here, for any network of that kind; empty if it can."""
        compiler, is_release = column.load_compiler(), bool(column.release)
        # Another interpreter has other packages.
        kind = None if workload.python else workload.kind
        if is_release and self.spec.accelerator.partition(":")[0] in compiler.accelerators:
            return self._refusals.get(column.label, "") or compiler.find_package_problem(kind, is_release=True)
        return compiler.unavailable(self.spec.accelerator, kind)

    def prepare_all(self) -> None:
        """Prepare all networks, so that their contents are known; what fails, a measurement will report."""
        self.warm_servers()
        for group in self.spec.sweep.groups(self.spec.device):
            with suppress(TrialFailedError):
                self._prepare(group, group.trials)

    def _load_prepared(self, group: Group, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """Load what was prepared of the very network that is asked for; None if it must be built to know that."""
        content = group.workload.id
        if contents.has_code(group.workload):
            content, _ = self._manifests.find(message["recipe"])
        if not content:
            return None
        key = preparation.build_key(group.workload, content, group.factors, message["seed"])
        folder = preparation.locate_folder(self.spec.state_dir, self.spec.place, key)
        prepared = preparation.load(
            folder, message["batch_sizes"], exports=message["exports"], importers=message["importers"]
        )
        return None if prepared is None else {**prepared, "content": content}

    def _note_facts(self, group: Group, trial: Trial, prepared: Mapping[str, Any]) -> None:
        """Note the facts of a network; TrialFailedError if it is another one than at the start of this run."""
        key, content = facts_key(group.workload.name, group.factors), prepared["content"]
        before = self.journal.notes("facts").get(key, {}).get("content", content)
        if before != content:
            self.check_unchanged(trial, before)
        # On another machine than the client's, these may be others than there.
        files = self._manifests.list_own_files(content) if content and self.spec.world is None else []
        built_from = {"built_from": ", ".join(files[:_MOST_FILES])} if files else {}
        self.note("facts", key, {**prepared["facts"], "content": content, **built_from})

    def check_unchanged(self, trial: Trial, content: str) -> None:
        """Raise TrialFailedError if a file that a network was built from has changed since."""
        if change := self._manifests.find_change(content):
            line = f"{change} since this run began, so that it would mix two networks. Start a new run."
            raise TrialFailedError(build_failure(trial, "failed", "build", line))

    @property
    def _manifests(self) -> Manifests:
        return contents.open_manifests(self.spec.state_dir, self.spec.place)

    def _prepare_limited(self, group: Group, trial: Trial, importer: Importer) -> Mapping[str, Any]:
        """Build the ONNX files that a release can read, of a prepared workload."""
        message = self._build_message(group, contents.build_recipe(self.spec, group), True, [asdict(importer)])
        return self._prepare_in_child(group, trial, message)

    def _build_message(
        self, group: Group, recipe: str, exports: bool, importers: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        return {
            "op": "prepare",
            **self._describe_network(group),
            "threads": self.threads,
            "recipe": recipe,
            "scope": self.spec.run_id + recipe,
            "manifests": str(self._manifests.folder),
            "cache": str(preparation.locate_cache(self.spec.state_dir, self.spec.place)),
            "batch_sizes": list(self.spec.sweep.batch_sizes),
            "exports": exports,
            "importers": list(importers),
        }

    def _prepare_in_child(self, group: Group, trial: Trial, message: dict[str, Any]) -> dict[str, Any]:
        """Prepare in a child; an export that ends its child, or lacks a package, costs the ONNX graph alone."""
        source = group.workload.load_source()
        modules = list_preparation_modules(source)
        for attempt in range(1, MOST_ATTEMPTS + 1):
            try:
                with self._run_worker(trial, modules, group.workload.python) as worker:
                    return worker.prepare(message)
            except TrialFailedError as error:
                status = error.failure.status
                if status == "crashed" and attempt < MOST_ATTEMPTS:
                    continue  # something outside may have killed the child
                is_costly = status in ("crashed", "timeout", "out-of-memory") or error.failure.stage == "export"
                if not is_costly or not message["exports"]:
                    raise
                self._unexportable[message["recipe"]] = error.failure
        with self._run_worker(trial, modules, group.workload.python) as worker:
            return worker.prepare({**message, "exports": False, "importers": []})
