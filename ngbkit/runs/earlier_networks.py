"""The networks of an earlier dataset, as they were, to be measured again beside new ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from ngbkit import options
from ngbkit.dataset.long_form import list_labels
from ngbkit.dataset.storage import Data
from ngbkit.device import contents
from ngbkit.device.world import World
from ngbkit.errors import NgbkitError, UsageError
from ngbkit.files import Store
from ngbkit.metrics.beside import label_network
from ngbkit.metrics.compared_runs import match_by_place
from ngbkit.runs.folders import get_runs_dir
from ngbkit.runs.recordings import Recordings
from ngbkit.runs.run_context import RunContext
from ngbkit.runs.summary import summarize
from ngbkit.workloads import cell
from ngbkit.workloads.base import Workload


def list_earlier(data: Data, label: str, workloads: Sequence[Workload]) -> list[Workload]:
    """List the networks of a dataset that the new `workloads` replace, by name or else by place, with its label."""
    run_id = str(data.attrs.get("run_id", ""))
    if not data.attrs.get("sweep") or ", " in run_id:
        kind = "a merged dataset" if data.attrs.get("sweep") else "a dataset without its sweep"
        raise UsageError(f"invalid dataset beside: got {kind}; expected that of one run, which has its networks.")
    names, locate = set(map(str, list_labels(data, "workload"))), _open_store().locate
    described = [Workload.from_json(each, locate=locate) for each in json.loads(data.attrs["sweep"])["workloads"]]
    # Those that it measured again of a still earlier run are left out.
    again = tuple(label_network(name, "")[:-1] for name in names)
    networks = [each for each in described if each.name in names and not each.name.startswith(again)]
    earlier = _select(networks, workloads, label)
    files = {each.spec["filename"]: each.path for each in workloads if each.path and "filename" in each.spec}
    # A dataset has no paths: a file that both name has its modules where they are now.
    located = [replace(each, path=files.get(each.spec.get("filename", ""), "")) for each in earlier]
    if Recordings.from_environment(RunContext.capture().notebook) is None:  # what is replayed is not built
        for workload in located:
            _check(workload, run_id, label)
    return [replace(workload, name=label_network(workload.name, label)) for workload in located]


def _select(earlier: Sequence[Workload], workloads: Sequence[Workload], label: str) -> list[Workload]:
    before, after = ([workload.name for workload in each] for each in (earlier, workloads))
    matched = {*before} & {*after} | match_by_place(before, after).keys()
    if not matched:
        raise UsageError(
            f"invalid networks beside {label}: got {', '.join(after)}, where {label} has {', '.join(before)}; expected "
            "the same names, or as many networks. Name the new ones as the earlier ones are: --name."
        )
    return [workload for workload in earlier if workload.name in matched]


def _check(workload: Workload, run_id: str, label: str) -> None:
    """Refuse a network that can no longer be built as it was, and warn of one of which that is unknown."""
    store = _open_store()
    if any(not store.contains(digest) for digest in workload.artifacts):
        raise UsageError(
            f"{workload.name} of {label} cannot be measured again: its files are no longer in the state folder of this "
            "machine. Name its file beside the new one, with --together."
        )
    digests: dict[str, str] = {}
    with suppress(NgbkitError, OSError):  # a run that is gone
        digests = summarize(get_runs_dir() / run_id).digests
    of_network = [digest for key, digest in digests.items() if json.loads(key)[0] == workload.name]
    changes = [contents.find_change(options.get_state_dir(), digest) for digest in of_network]
    is_foreign = all(change is None for change in changes)  # the run of another machine, or one that noted nothing
    imports = False
    if is_foreign and workload.source == cell.SOURCE.name:
        world = World.capture()
        imports = bool(cell.list_surroundings(workload, [*world.list_additions(), world.folder]))
    if any(changes) or imports:
        raise UsageError(
            f"{workload.name} of {label} cannot be measured again: the modules that it imports have changed since, or "
            "are not those of this machine. Put both versions into one cell, as models, with --together."
        )


def _open_store() -> Store:
    return Store(options.get_state_dir() / options.LAYOUT.artifacts)
