"""Measures the sweeps of a replayed site again, on this machine, and says which of their findings hold here."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve

from ngbkit import options
from ngbkit.api import Sweep, resume
from ngbkit.dataset import storage
from ngbkit.dataset.storage import Data
from ngbkit.errors import NgbkitError, RunNotFoundError
from ngbkit.figures.provenance import list_parts
from ngbkit.files import Store, hash_file, write_atomically
from ngbkit.hardware.environment import count_usable_cores
from ngbkit.metrics.reproduction import FAILS, ReproducedFinding, list_findings, summarize
from ngbkit.publish.replaying import ReplayFolder
from ngbkit.runs.folders import assemble_dataset, load_metadata
from ngbkit.runs.run_context import RunContext
from ngbkit.sweep.column import BASELINE, Column
from ngbkit.tabular import Texts

if TYPE_CHECKING:
    from ngbkit.runs import Run

MEASURED, REPORT = "measured", "findings.html"
"""In the folder of a replay: the folder of what was measured here, and the page of findings."""
NAMES = ("published", "here")
"""The two runs of a comparison, as columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSweep:
    """A sweep of a site with its recording, as this machine can measure it."""

    # Its networks and its notebook, for people; with a number where the notebook has several sweeps of them.
    name: str
    recording: Path  # the folder
    published: Sweep  # as its author measured it
    sweep: Sweep | None  # for this machine; None if it cannot be measured here
    notes: Sequence[str]  # what differs from the published sweep, in sentences; or why it cannot be measured

    def load(self) -> Data:
        """Load the published dataset."""
        return assemble_dataset(self.recording, self.published)


def list_sweeps(folder: ReplayFolder, notebooks: Sequence[str], repeats: int | None = None) -> list[PublishedSweep]:
    """List the recorded sweeps of notebooks of a replayed site, adapted to this machine.

    Of a site whose recordings do not say which notebook made them, those that no figure shows belong to each notebook.
    """
    _store_artifacts(folder)
    owners = _find_owners(folder)
    recordings = sorted(path.parent for path in folder.recordings.glob("*/run.json"))
    sweeps = []
    for recording in recordings:
        metadata = load_metadata(recording)
        names = owners.get(metadata["id"], notebooks)
        if {*names} & {*notebooks}:
            sweeps.append(_adapt(recording, metadata, names, repeats))
    counts = Counter(each.name for each in sweeps)
    places = {name: itertools.count(1) for name in counts}
    return [
        replace(each, name=f"{each.name}, sweep {next(places[each.name])}") if counts[each.name] > 1 else each
        for each in sweeps
    ]


def start(folder: ReplayFolder, each: PublishedSweep) -> Run:
    """Measure a sweep here, or go on with the run that an earlier call began."""
    assert each.sweep is not None
    file = folder.root / MEASURED / f"{each.recording.name}.json"
    if file.is_file():
        state = json.loads(file.read_text())
        if state["sweep"] == each.sweep.id:
            try:
                return resume(state["run"])
            except RunNotFoundError:  # it was deleted
                pass
    run = each.sweep.start(again=True, note=f"replay of {folder.manifest.title}")
    with write_atomically(file) as draft:
        draft.write_text(json.dumps({"sweep": each.sweep.id, "run": run.id}))
    return run


def judge(folder: ReplayFolder, each: PublishedSweep, data: Data) -> list[ReproducedFinding]:
    """Save the dataset that was measured here, and judge the findings of the published one by it."""
    storage.save(data, folder.root / MEASURED / f"{each.recording.name}.nc", overwrite=True)
    return list_findings(each.load(), data)


def write_report(
    folder: ReplayFolder, findings: Mapping[str, Sequence[ReproducedFinding]], notes: Sequence[str]
) -> Path:
    """Write the page of findings: a table for each sweep, without a script or a request."""
    title = f"{escape(folder.manifest.title)}: which findings hold here"
    total = summarize([row for rows in findings.values() for row in rows])
    parts = [f"<h1>{title}</h1><p>{escape(total)}</p>"]
    for name, rows in findings.items():
        table = Texts.of_rows([row.to_row(NAMES) for row in rows], "It has no speed-up.")
        parts.append(f"<h2>{escape(name)}</h2>{replace(table, marked={FAILS}).to_html()}")
    parts.append("".join(f"<p><small>{escape(note)}</small></p>" for note in notes))
    # The scheme of the root is that of the page's ground.
    style = ":root { color-scheme: light dark; } body { font-family: sans-serif; margin: 2rem; }"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    target = folder.root / REPORT
    with write_atomically(target) as draft:
        draft.write_text(
            f"<!doctype html><html><head>{head}<style>{style}</style></head><body>{''.join(parts)}</body></html>\n"
        )
        draft.chmod(0o644)
    return target


def _store_artifacts(folder: ReplayFolder) -> None:
    """Add the files of the site that a recorded sweep names by their content to the state folder."""
    sweeps = [json.loads(file.read_text())["sweep"] for file in folder.recordings.glob("*/run.json")]
    workloads = [workload for sweep in sweeps for workload in sweep["workloads"]]
    needed = {digest for workload in workloads for digest in workload.get("artifacts", ())}
    store = Store(options.make_state_dir() / options.LAYOUT.artifacts)
    missing = {digest for digest in needed if not store.contains(digest)}
    for file in folder.notebooks.rglob("*") if missing else ():
        if file.is_file() and file.name not in ("journal.sqlite", "run.json") and hash_file(file) in missing:
            store.add(file)


def _find_owners(folder: ReplayFolder) -> dict[str, list[str]]:
    """Find the notebooks that show each run: by the provenance of their figures, and by what the recordings note."""
    owners: dict[str, list[str]] = {}
    for figure in folder.manifest.figures:
        for part in list_parts(figure.provenance):
            for run_id in str(part.get("run_id") or "").split(", "):
                owners.setdefault(run_id, []).append(figure.notebook)
    for file in folder.recordings.glob("*/run.json"):
        name = Path(RunContext.load(file.parent).notebook).stem
        if name in folder.manifest.notebooks:
            owners.setdefault(load_metadata(file.parent)["id"], []).append(name)
    return owners


def _adapt(
    recording: Path, metadata: Mapping[str, Any], notebooks: Sequence[str], repeats: int | None
) -> PublishedSweep:
    """Adapt a recorded sweep to this machine, or say why that cannot be."""
    store = Store(options.get_state_dir() / options.LAYOUT.artifacts)
    published = Sweep.from_json(metadata["sweep"], locate=store.locate)
    networks = ", ".join(workload.name for workload in published.workloads[:4])
    name = f"{networks} ({', '.join(dict.fromkeys(notebooks))})"
    device, notes = options.get_device(), []
    compilers, reasons = _select_compilers(published.compilers)
    notes += reasons
    lost = [each.name for each in published.workloads if any(not store.contains(digest) for digest in each.artifacts)]
    if lost or not compilers:
        reason = (
            f"{', '.join(lost)} cannot be measured here: the archive lacks the program of a module that its notebook "
            "built; run its cell with --again in JupyterLab"
            if lost
            else "none of its compilers is installed"
        )
        return PublishedSweep(name=name, recording=recording, published=published, sweep=None, notes=[*notes, reason])
    if published.devices != (device,):
        notes.append(f"{', '.join(published.devices)} of its author is {device} here")
    changes: dict[str, Any] = {"devices": [device], "compilers": compilers}
    if repeats is not None:
        changes |= {"repeats": repeats, "precision": None, "max_seconds": None}
        notes.append(f"measured with {repeats} repeats")
    if published.threads is not None and published.threads > (cores := count_usable_cores()):
        changes["threads"] = None
        notes.append(f"measured with {cores} threads, since this machine has no {published.threads}")
    if published.gpu_timer != "host" or published.flush_l2:
        changes |= {"gpu_timer": "host", "flush_l2": False}
    sweep = evolve(published, **changes)
    return PublishedSweep(name=name, recording=recording, published=published, sweep=sweep, notes=notes)


def _select_compilers(labels: Sequence[str]) -> tuple[list[str], list[str]]:
    """Select the compilers that are installed here, and say which are left out."""
    selected, notes = [], []
    for label in labels:
        try:
            problem = Column.parse(label).load_compiler().find_package_problem()
        except NgbkitError as error:
            problem = str(error)
        if problem:
            notes.append(f"{label} is left out: {problem}")
        else:
            selected.append(label)
    if selected and BASELINE in labels and BASELINE not in selected:
        notes.append(f"no speed-ups, which are over {BASELINE}")
    return selected, notes
