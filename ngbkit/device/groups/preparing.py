"""The first phase of a bundle: facts, reference and ONNX files of its networks, from the cache or from a child."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ngbkit import registry
from ngbkit.device import canonical_graphs, preparation
from ngbkit.device.groups.installing import Installer
from ngbkit.device.groups.worker import TrialFailedError
from ngbkit.device.isolation.server_pool import choose_form, list_preparation_modules, start_servers
from ngbkit.device.world import World
from ngbkit.sweep.records import Failure
from ngbkit.sweep.trials import Group, Trial, facts_key
from ngbkit.workloads.base import Source
from ngbkit.workloads.canonical import Importer

# The number of ended processes in the same phase after which a trial is not repeated.
MOST_ATTEMPTS = 2
# The size limit of prepared workloads, mostly weights, once a batch size.
_CACHE_BYTES = 20_000_000_000


@dataclass(slots=True, kw_only=True)
class Preparer(Installer):
    """Prepares the networks of one plan."""

    # How an export ended its child, by the folder of the preparation: this plan does not repeat it.
    _unexportable: dict[str, Failure] = field(default_factory=dict)

    def warm_servers(self) -> None:
        """Evict old preparations, and start every fork server that the sweep needs."""
        preparation.evict(preparation.locate_cache(self.spec.state_dir, self.spec.place), _CACHE_BYTES)
        start_servers(self.spec, self._interpreters)

    def _prepare(self, group: Group, trials: Sequence[Trial]) -> Mapping[str, Any]:
        """Load facts, reference and ONNX file of the group's workload from the cache, or build them in a child now."""
        compilers = [self._load_compiler(trial.compiler) for trial in trials]
        needs_onnx = any(choose_form(compiler, group.workload.source) == "onnx" for compiler in compilers)
        folder = self._locate_folder(group)
        exports = needs_onnx and str(folder) not in self._unexportable
        message = self._build_message(group, folder, exports, canonical_graphs.list_needs(compilers) if exports else [])
        prepared = preparation.load(folder, message["batch_sizes"], exports=exports, importers=message["importers"])
        if prepared is None:
            self._report("stage", step="prepare", text=f"preparing {group.workload.name}")
            prepared = self._prepare_in_child(group, trials[0], message)
        self.note("facts", facts_key(group.workload.name, group.factors), prepared["facts"])
        return {**prepared, "folder": str(folder)}

    def _prepare_limited(self, group: Group, trial: Trial, importer: Importer) -> Mapping[str, Any]:
        """Build the ONNX files that a release can read, of a prepared workload."""
        message = self._build_message(group, self._locate_folder(group), True, [asdict(importer)])
        return self._prepare_in_child(group, trial, message)

    def _locate_folder(self, group: Group) -> Path:
        network = self._describe_network(group)
        world = self.spec.world or World.capture()
        key = preparation.build_key(
            replace(group.workload, path=network["file"]),
            group.factors,
            network["seed"],
            [world.folder, *world.list_additions()],
            scope=self.spec.run_id + network["file"],
        )
        return preparation.locate_folder(self.spec.state_dir, self.spec.place, key)

    def _build_message(
        self, group: Group, folder: Path, exports: bool, importers: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        return {
            "op": "prepare",
            **self._describe_network(group),
            "threads": self.threads,
            "folder": str(folder),
            "batch_sizes": list(self.spec.sweep.batch_sizes),
            "exports": exports,
            "importers": list(importers),
        }

    def _prepare_in_child(self, group: Group, trial: Trial, message: dict[str, Any]) -> dict[str, Any]:
        """Prepare in a child; an export that ends its child costs the ONNX graph, but not every compiler."""
        source: Source = registry.load(registry.WORKLOADS, group.workload.source)
        modules = list_preparation_modules(source, exports=message["exports"])
        for attempt in range(1, MOST_ATTEMPTS + 1):
            try:
                with self._run_worker(trial, modules, group.workload.python) as worker:
                    return worker.prepare(message)
            except TrialFailedError as error:
                status = error.failure.status
                if status == "crashed" and attempt < MOST_ATTEMPTS:
                    continue  # something outside may have killed the child
                if status not in ("crashed", "timeout", "out-of-memory") or not message["exports"]:
                    raise
                self._unexportable[message["folder"]] = error.failure
        with self._run_worker(trial, source.preload, group.workload.python) as worker:
            return worker.prepare({**message, "exports": False, "importers": []})
