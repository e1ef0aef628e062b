"""Adoption: a page shows the run that its author measured, and nothing is executed while a measurement is missing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import nbformat
import pytest
import synthetic
from authored import SWEEP, build_notebook
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from ngbkit import registry
from ngbkit.dataset import storage
from ngbkit.device import contents
from ngbkit.errors import UsageError
from ngbkit.files import hash_file
from ngbkit.publish import publish
from ngbkit.publish.adoption import Adoption
from ngbkit.publish.manifest import Manifest
from ngbkit.runs.folders import build_metadata, load_dataset
from ngbkit.runs.recordings import copy_run
from ngbkit.runs.run_context import RunContext
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.trials import facts_key
from ngbkit.workloads import cell
from ngbkit.workloads.content.manifests import BuildManifest, FileSet

LINE = f"%ngbench data/mlp.onnx {SWEEP}"
SOURCE = "from helper import WIDTH\nimport torch\nmodel = torch.nn.Linear(WIDTH, 2)\ninput_shape = (8,)"
Author = Callable[..., Path]


@pytest.fixture
def author(folder: Path, tmp_path: Path, state_dir: Path) -> Author:
    """Write a notebook beside its data, and the run of its author into the state folder, of a cell with that text."""

    def write(text: str, *sources: str) -> Path:
        (recording,) = (folder / "data" / "recorded").iterdir()
        run_id = json.loads((recording / "run.json").read_text())["id"]
        shutil.copytree(recording, state_dir / "runs" / run_id)
        notebook = tmp_path / "author" / "mine.ipynb"
        (notebook.parent / "data").mkdir(parents=True)
        shutil.copyfile(folder / "data" / "mlp.onnx", notebook.parent / "data" / "mlp.onnx")
        RunContext(notebook=str(notebook), cell=text, note="private").save(state_dir / "runs" / run_id)
        cells = map(new_code_cell, ("%load_ext ngbkit", *sources))
        nbformat.write(build_notebook(new_markdown_cell("# Mine"), *cells), notebook)
        return notebook

    return write


@pytest.mark.parametrize("cell", [LINE, "%ngpanel"])
def test_the_run_of_a_cell_is_published(author: Author, cell: str, state_dir: Path, tmp_path: Path) -> None:
    """A page has the dataset of the run that its line or its panel measured, value by value."""
    text = LINE if cell == LINE else f"{cell}\n{LINE}"
    notebook = author(text, cell, "ds.ngb.plot.throughput()")
    lines: list[str] = []
    publish(notebook, tmp_path / "site", report=lines.append)
    (figure,) = Manifest.read(tmp_path / "site").figures
    (stem,) = figure.datasets.values()
    published = storage.load(tmp_path / "site" / "_static" / "datasets" / f"{stem}.nc")
    (run,) = (state_dir / "runs").glob("2*")
    measured = load_dataset(run)
    (recording,) = (notebook.parent / "data" / "recorded").iterdir()

    assert measured.equals(published)
    assert [measured.attrs[name] for name in ("run_id", "sweep", "environments", "facts")] == [
        published.attrs[name] for name in ("run_id", "sweep", "environments", "facts")
    ]
    assert any(run.name in line for line in lines)
    assert hash_file(run / "journal.sqlite") == hash_file(recording / "journal.sqlite")
    assert RunContext(notebook="mine.ipynb", cell=text) == RunContext.load(recording)
    assert f"notebooks/data/recorded/{recording.name}/run.json" in ZipFile(tmp_path / "site" / "archive.zip").namelist()


def write_run(folder: Path, sweep: Grid, text: str, state: str, *, measured: bool) -> None:
    """Write the folder of a run, without measuring."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(build_metadata(folder.name, sweep)))
    RunContext(cell=text).save(folder)
    with Journal(folder / "journal.sqlite") as journal:
        if measured:
            journal.finish(synthetic.make_records(sweep))
        journal.note("ending", "run", {"state": state, "error": ""})


def test_cells_without_a_measurement_are_listed(author: Author, state_dir: Path, tmp_path: Path) -> None:
    """A changed cell, a stopped run, a changed module and a new cell are listed with one command, before execution."""
    stopped, imported = "%%ngbench -o b\nmodel = 1", f"%%ngbench -o c\n{SOURCE}"
    failing = "raise RuntimeError('it was executed')"
    cells = [failing, LINE.replace("-b 1,2", "-b 1,2,4"), stopped, imported, "%ngbench resnet18", "%ngbench?", LINE]
    notebook = author(LINE.replace("-r 10", "-r 11"), *cells)
    workloads = cell.from_source(f"\n{SOURCE}")
    sweep = Grid(workloads=workloads)
    write_run(state_dir / "runs" / "20260101-000000-0001", sweep, stopped, "stopped", measured=False)
    write_run(state_dir / "runs" / "20260101-000000-0002", sweep, imported, "finished", measured=True)
    write_run(state_dir / "runs" / "20260101-000000-0003", sweep, LINE, "finished", measured=True)
    helper = notebook.parent / "helper.py"
    helper.write_text("WIDTH = 4\n")
    manifests = contents.open_manifests(state_dir, "cpu")
    manifest = BuildManifest(files=FileSet.read([str(helper)]))
    manifests.add("recipe", "earlier", manifest, manifests.add_packages([])[0])
    with Journal(state_dir / "runs" / "20260101-000000-0002" / "journal.sqlite") as journal:
        journal.note("content", facts_key("model", {}), {"cpu": {"digest": "earlier", "settings": ""}})
    helper.write_text("WIDTH = 8\n")
    with pytest.raises(UsageError) as raised:
        publish(notebook, tmp_path / "site")
    message = str(raised.value).splitlines()

    assert 6 == len(message)
    assert message[1].startswith("  mine.ipynb, cell 3 (%ngbench data/mlp.onnx")
    assert "has changed since run" in message[1]
    assert "cell 4 (%%ngbench -o b): 1 of 1 trials of run 20260101-000000-0001 are missing" in message[2]
    assert "that model imports has changed since run 20260101-000000-0002 measured it" in message[3]
    assert "cell 6 (%ngbench resnet18): no run measured it" in message[4]
    assert f"`ngbkit publish {notebook} -o {tmp_path / 'site'} --measure missing`" in message[5]
    assert not (tmp_path / "site").exists()


def test_a_notebook_that_shows_a_later_run_replaces_the_recording(author: Author, state_dir: Path) -> None:
    """The recording is then that of the run whose id its outputs contain, and not of an earlier one."""
    notebook = author(LINE, LINE)
    (run,) = (state_dir / "runs").glob("2*")
    recordings = notebook.parent / "data" / "recorded"
    adoption = Adoption.collect(recordings)
    (summary,) = adoption.runs
    sweep = summary.sweep
    write_run(recordings / sweep.id, sweep, LINE, "finished", measured=True)
    earlier = json.loads((recordings / sweep.id / "run.json").read_text())["id"]
    later = replace(adoption, runs=(replace(summary, created=2e10),))
    content = nbformat.read(notebook, nbformat.NO_CONVERT)

    assert [] == list(later.adopt(notebook))
    content.cells[2].outputs = [new_output("stream", text=f"run {run.name}")]
    nbformat.write(content, notebook)
    assert [] == list(adoption.adopt(notebook))
    (line,) = later.adopt(notebook)
    assert earlier in line
    assert {sweep.id: run.name} == later.list_recorded()


def test_a_run_of_other_packages_is_published_and_said(
    author: Author, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sentence lists the packages that have changed since the run; none is said where none has."""
    notebook = author(LINE, LINE)
    (run,) = (state_dir / "runs").glob("2*")
    adoption = Adoption.collect(notebook.parent / "data" / "recorded")
    (summary,) = adoption.runs
    copy_run(run, adoption.recordings / summary.sweep_id)
    (sentence,) = adoption.describe([summary.sweep_id])
    assert sentence.startswith(f"run {run.name} of ")
    assert sentence.endswith("is published as measured (mine.ipynb).")
    monkeypatch.setattr(registry, "find_version", {"numpy": "0.1"}.get)
    (sentence,) = adoption.describe([summary.sweep_id])
    assert re.search(r"Since then numpy \S+ is 0\.1: --measure always measures it again\.$", sentence)
