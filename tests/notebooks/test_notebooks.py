"""Every notebook of the documentation runs, and is small, valid and stored without outputs."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

from ngbkit.publish.cells import find_modules, replace_measuring_cells
from ngbkit.runs import recordings

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MOST_BYTES = 1_000_000
#: The notebook that measures here; the sweeps of the others are replayed.
MEASURED = "gallery-deployment-phase"


def list_files(folder: Path) -> set[Path]:
    """The files of a folder, without those that Python caches, and the cell of a sweep that is recorded again."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path for path in files if path.name != "context.json"}


def test_there_are_notebooks() -> None:
    """The notebooks are numbered, and the first is the quick start."""
    assert "01-quickstart.ipynb" == NOTEBOOKS[0].name


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_valid_small_and_without_outputs(path: Path) -> None:
    """Outputs are made where the notebook is read."""
    notebook: Any = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]

    assert path.stat().st_size < MOST_BYTES
    assert [] == [cell.id for cell in code if cell.outputs or cell.execution_count is not None]
    assert "python3" == notebook.metadata.kernelspec.name


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.guard] if path == NOTEBOOKS[0] else []) for path in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_notebook_runs(path: Path, tmp_path: Path, state_dir: Path) -> None:
    """Every cell runs without an error and leaves no file beside the notebook, which keeps its size budget.

    As when the site is built, sweeps are replayed from recordings; one notebook measures.
    """
    notebook: Any = nbformat.read(path, as_version=4)
    if path.stem != MEASURED:
        notebook = nbformat.from_dict(replace_measuring_cells(notebook))
    shutil.copytree(FOLDER / "data", tmp_path / "notebooks" / "data")
    for module in find_modules(path):
        copy = tmp_path / "notebooks" / module.relative_to(FOLDER)
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(module, copy)
    files = list_files(tmp_path / "notebooks")
    replayed = {
        recordings.FOLDER: str(tmp_path / "notebooks" / "data" / "recorded"),
        recordings.MEASURE: "always" if path.stem == MEASURED else "never",
    }
    client = nbclient.NotebookClient(
        notebook, timeout=None, kernel_name="python3", resources={"metadata": {"path": str(tmp_path / "notebooks")}}
    )
    client.execute(env={**os.environ, "NGBKIT_STATE_DIR": str(state_dir), **replayed})
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]

    assert [] == [output for output in outputs if output.output_type == "error"]
    # A machine that is slow today sees the progress of a fit.
    lines = [line for output in outputs if output.get("name") == "stderr" for line in output.text.splitlines()]
    assert [] == [line for line in lines if not re.match(r"\d+%: ", line)]
    assert len(nbformat.writes(notebook).encode()) < MOST_BYTES
    assert files == list_files(tmp_path / "notebooks")
