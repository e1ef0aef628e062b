"""The round trip: a notebook is measured and published; its reader replays it and measures it again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from authored import build_notebook
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell
from state import make_state_dir

from ngbkit.cluster import engines
from ngbkit.publish import publish, verify

CELL = """%%ngbench -c identity,onnxruntime -b 1 -r 5 --threads 1 -o blocks
import torch
from sizes import WIDTH
model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())
input_shape = (WIDTH,)
"""


@pytest.fixture
def notebook(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, peaks_file: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A notebook that its author has executed, in a state folder of the author's own."""
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(make_state_dir(tmp_path_factory, peaks_file)))
    folder = tmp_path / "author" / "notebooks"
    folder.mkdir(parents=True)
    (folder / "sizes.py").write_text("WIDTH = 48\n")
    (folder / "site.toml").write_text('title = "A layer"\nlicense = "CC-BY-4.0"\n')
    cells = ["%load_ext ngbkit", CELL, "blocks.ngb.plot.throughput()"]
    content = build_notebook(new_markdown_cell("# A layer"), *map(new_code_cell, cells))
    NotebookClient(content, resources={"metadata": {"path": str(folder)}}).execute()
    nbformat.write(content, folder / "layer.ipynb")
    yield folder / "layer.ipynb"
    engines.close()


def read(archive: Path, home: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Replay an archive as a reader with an empty home folder does."""
    variables = {"HOME": str(home), "PATH": os.environ["PATH"], "NGBKIT_PATIENCE": "0"}
    process = subprocess.run(
        [sys.executable, "-m", "ngbkit", "replay", str(archive), "--json", *options],
        cwd=home,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stdout, process.stderr
    return process.returncode, json.loads(process.stdout)


def list_runs(home: Path) -> list[str]:
    folder = home / ".local" / "state" / "ngbkit" / "runs"
    return [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


def test_a_reader_replays_and_measures_again(notebook: Path, tmp_path: Path) -> None:
    """The author's run is published and verified; a reader gets its figure, and the numbers of another machine."""
    site, home = tmp_path / "author" / "site", tmp_path / "home"
    home.mkdir()
    publish(notebook, site)
    assert [] == verify(site).findings
    shutil.copytree(site, tmp_path / "altered")
    (file,) = (tmp_path / "altered" / "_static" / "datasets").glob("*.json")
    file.write_text(file.read_text().replace('"repeats": 5', '"repeats": 500'))
    assert verify(tmp_path / "altered").findings

    code, answer = read(site / "archive.zip", home)
    assert (0, ["same"]) == (code, [figure["verdict"] for figure in answer["figures"]])
    assert [] == list_runs(home)

    code, answer = read(site / "archive.zip", home, "--again")
    (findings,) = answer["findings"].values()
    rows = [row for row in findings if "onnxruntime" in row["finding"]]
    assert rows
    assert all(row["published"] and row["here"] for row in rows)
    assert (tmp_path / "home" / "replayed" / "findings.html").read_text().count("<tr>") > len(rows)
    (run,) = list_runs(home)

    repeated = read(site / "archive.zip", home, "--again")
    assert (code, answer["findings"]) == (repeated[0], repeated[1]["findings"])
    assert [run] == list_runs(home)
