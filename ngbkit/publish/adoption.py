"""Finds the runs that the cells of notebooks made, which a publication takes for recordings instead of measuring."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from ngbkit import registry
from ngbkit.cluster import devices
from ngbkit.errors import NgbkitError
from ngbkit.publish.cells import is_measuring, read_notebook
from ngbkit.runs.folders import get_runs_dir, load_metadata
from ngbkit.runs.recordings import EarlierRun, build_name, copy_run, is_complete, list_changed
from ngbkit.runs.run_context import RunContext
from ngbkit.runs.run_index import summaries
from ngbkit.runs.summary import RUNNING, Summary
from ngbkit.sweep.journal import Journal
from ngbkit.user_text import shorten

_RUN_ID = re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{4}\b")
_MAGIC = re.compile(r"^\s*(?:\w+\s*=\s*)?(%%?ngbench\b.*)$", re.MULTILINE)
# Its line measures nothing.
_NO_RUN = re.compile(r"\?\s*$|(?:^|\s)(?:-h|--help|--estimate)\b")
# Words of a line that change no measurement.
_IRRELEVANT = re.compile(r"\s+(?:(?:-o|--out)[\s=]+\S+|--background|--again)")
_PANEL = re.compile("panel", re.IGNORECASE)
# A cell with at least this much of another's text is a changed version of it.
_SIMILAR = 0.6


@dataclass(frozen=True, slots=True)
class Adoption:
    """The runs of this machine, and the recordings beside notebooks for which they may be taken."""

    recordings: Path
    # The latest first.
    runs: tuple[Summary, ...]

    @classmethod
    def collect(cls, recordings: Path) -> Adoption:
        """Collect the runs of this user."""
        return cls(recordings, tuple(summaries()))

    def list_gaps(self, notebook: Path) -> Iterator[str]:
        """Yield a sentence for each cell whose measurement is missing, unfinished or of a changed cell."""
        cells = list(_list_code(notebook))
        contexts = [RunContext.load(folder).cell for folder in self._list_recordings()]
        recorded = {part for text in contexts for part in _list_parts(text)}
        present = {_find_part(source) for _, source, _ in cells}
        for index, source, outputs in cells:
            part, lines = _find_part(source), _find_lines(source)
            runs = [run for run in self.runs if part in _list_parts(run.context.cell)]
            if part in recorded or not (runs or lines):
                continue
            complete = next((run for run in runs if _find_name(run)), None)
            if complete is not None:
                if not (changed := list_changed(complete.digests)):
                    continue
                names, verb = ", ".join(changed), "import" if len(changed) > 1 else "imports"
                reason = f"a module or a package that {names} {verb} has changed since run {complete.id} measured it"
            elif runs:
                reason = _describe_end(runs[0])
            elif not all(contexts):
                continue  # a recording of a script, or of the shell, may be that of this cell
            else:
                earlier = self._find_version(part, notebook, outputs, present)
                reason = f"it has changed since run {earlier.id} measured it" if earlier else "no run measured it"
            yield f"{notebook.name}, cell {index} ({_name_cell(lines[0] if lines else source)}): {reason}"

    def adopt(self, notebook: Path) -> Iterator[str]:
        """Record newer runs, or shown ones that no sweep will ask for, of a notebook; yield a sentence for each."""
        cells = list(_list_code(notebook))
        sources, output_ids = [source for _, source, _ in cells], self._list_shown(cells)
        panels = {_find_part(source) for source in sources if _PANEL.search(source)}
        for run in sorted(self.runs, key=lambda run: run.id not in output_ids):
            name = _find_name(run)
            part = _list_parts(run.context.cell)[-1]
            is_opened = part in panels or any(run.id in source for source in sources)
            panels -= {part}  # a panel opens its latest run
            if not name or not (is_opened or run.id in output_ids):
                continue
            folder = self.recordings / name
            recorded = load_metadata(folder) if is_complete(folder) else None
            is_newer = recorded is not None and run.created > recorded["created"] and run.id in output_ids
            if (is_newer or (recorded is None and is_opened)) and not list_changed(run.digests):
                copy_run(get_runs_dir() / run.id, folder)
                replaced = f"; it replaces that of run {recorded['id']}, measured earlier" if recorded else ""
                yield f"{notebook.name}: run {run.id} is a recording{replaced}"

    def open_runs(self, notebook: Path, folder: Path) -> list[Path]:
        """Copy the recordings that a notebook opens, by a panel or their id, to a folder of runs; return them."""
        opened = []
        sources = [source for _, source, _ in _list_code(notebook)]
        panels = {_find_part(source) for source in sources if _PANEL.search(source)}
        for name, run_id in self.list_recorded().items():
            context = RunContext.load(self.recordings / name)
            is_panel = _list_parts(context.cell)[-1] in panels
            if is_panel or any(run_id in source for source in sources):
                opened.append(self.recordings / name)
                copy_run(opened[-1], folder / run_id)
                replace(context, notebook=str(notebook.absolute())).save(folder / run_id)
        return opened

    def write(self, notebook: Path, target: Path) -> None:
        """Write the runs that the sweeps of a notebook may adopt: those that it shows, or the latest."""
        output_ids = self._list_shown(_list_code(notebook))
        latest: dict[str, Summary] = {}
        for run in sorted(self.runs, key=lambda run: run.id not in output_ids):
            if name := _find_name(run):
                latest.setdefault(name, run)
        entries = {
            name: EarlierRun(folder=str((get_runs_dir() / run.id).absolute()), digests=run.digests)
            for name, run in latest.items()
        }
        target.write_text(json.dumps(entries), encoding="utf-8")

    def list_recorded(self) -> dict[str, str]:
        """List the ids of the recorded runs, by the names of their recordings."""
        return {folder.name: str(load_metadata(folder)["id"]) for folder in self._list_recordings()}

    def describe(self, names: Iterable[str]) -> Iterator[str]:
        """Yield a sentence for each new recording, with the packages that have changed since it was measured."""
        for name in sorted(names):
            metadata = load_metadata(self.recordings / name)
            place = RunContext.load(self.recordings / name).place
            moment = time.strftime("%Y-%m-%d %H:%M", time.localtime(metadata["created"]))
            changes = ", ".join(_list_changed_packages(self.recordings / name))
            note = f" Since then {changes}: --measure always measures it again." if changes else ""
            yield f"run {metadata['id']} of {moment} is published as measured ({_name_cell(place)}).{note}"

    def _list_recordings(self) -> list[Path]:
        return sorted(path for path in self.recordings.glob("*") if is_complete(path))

    def _list_shown(self, cells: Iterable[tuple[int, str, str]]) -> set[str]:
        """List the runs of this machine whose ids the outputs of cells contain."""
        ids = {run_id for _, _, outputs in cells for run_id in _RUN_ID.findall(outputs)}
        return ids & {run.id for run in self.runs}

    def _find_version(self, part: str, notebook: Path, outputs: str, present: set[str]) -> Summary | None:
        """Find the latest run of an earlier version of a cell: its output shows it, or the notebook measured it."""
        output_ids = set(_RUN_ID.findall(outputs))
        for run in self.runs:
            text = _find_part(run.context.cell)
            is_here = run.id in output_ids or Path(run.context.notebook) == notebook.absolute()
            if text and is_here and text not in present and SequenceMatcher(None, text, part).ratio() > _SIMILAR:
                return run
        return None


def _list_code(notebook: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the index, the source and the outputs as JSON of each cell of code that is executed without measuring."""
    for index, cell in enumerate(read_notebook(notebook)["cells"]):
        if cell["cell_type"] == "code" and not is_measuring(cell):
            yield index, "".join(cell["source"]), json.dumps([cell.get("outputs", []), cell.get("metadata", {})])


def _find_lines(source: str) -> list[str]:
    """Find the lines of a cell that measure by the magic."""
    return [line.strip() for line in _MAGIC.findall(source) if not _NO_RUN.search(line)]


def _find_part(source: str) -> str:
    """Find the part of a cell that a measurement depends on: the lines of the magic, or else the whole cell."""
    lines = _find_lines(source)
    if lines and not lines[0].startswith("%%"):
        return _IRRELEVANT.sub("", "\n".join(lines))
    line, newline, code = source.strip().partition("\n")
    return f"{_IRRELEVANT.sub('', line) if lines else line}{newline}{code}"


def _list_parts(text: str) -> list[str]:
    """List the parts of the text of a run's cell; for a panel, which adds its line, also that without the line."""
    cell, _, line = text.rpartition("\n")
    is_panel = bool(_PANEL.search(cell)) and bool(_find_lines(line))
    return [_find_part(text), *([_find_part(cell)] if is_panel else [])]


def _find_name(run: Summary) -> str:
    """Find the name of the recording that a run would be; empty for one that is not complete."""
    if run.state != "finished":
        return ""
    if "pending" not in run.statuses:
        return build_name(run.sweep_id)
    try:
        with Journal(get_runs_dir() / run.id / "journal.sqlite", writable=False) as journal:
            guide_key = str(journal.notes("guide").get("run", ""))
    except (NgbkitError, OSError):
        return ""
    return build_name(run.sweep_id, guide_key) if guide_key else ""


def _describe_end(run: Summary) -> str:
    missing = run.statuses.get("pending", 0)
    if run.state == RUNNING:
        return f"run {run.id} still measures it"
    if missing:
        return f"{missing} of {run.trials} trials of run {run.id} are missing"
    return f"run {run.id} was {run.state}"


def _list_changed_packages(recording: Path) -> Iterator[str]:
    """Yield the packages of this machine that have another version than when the run of a recording was measured."""
    with Journal(recording / "journal.sqlite", writable=False) as journal:
        environments: Mapping[str, Any] = journal.notes("environment")
    configured = devices.load()
    versions = {
        (name, version)
        for label, environment in environments.items()
        if label in configured and configured[label].shares_packages
        for name, version in (environment.get("packages") or {}).items()
    }
    for name, version in sorted(versions):
        if (installed := registry.find_version(name)) and installed != version:
            yield f"{name} {version} is {installed}"


def _name_cell(text: str) -> str:
    return shorten(text.strip().partition("\n")[0], 60)
