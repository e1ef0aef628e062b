"""Notebooks of an author with a recording, and the site that is built of them; all modules share them."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest
from authored import SWEEP, build_notebook
from nbformat.v4 import new_code_cell, new_markdown_cell
from state import make_state_dir

import ngbkit
from ngbkit.publish import publish
from ngbkit.runs import recordings
from ngbkit.workloads import onnx


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, mlp_file: Path, peaks_file: Path) -> Path:
    """Two notebooks of an author, one of which measures, with its recording."""
    folder = tmp_path_factory.mktemp("author") / "notebooks"
    (folder / "data").mkdir(parents=True)
    shutil.copyfile(mlp_file, folder / "data" / "mlp.onnx")
    config = 'title = "A small study"\ndescription = "Of one network."\napi = ["ngbkit.metrics.frames"]\n'
    config += 'license = "CC-BY-4.0"\nauthors = ["A team"]\n'
    (folder / "site.toml").write_text(config)
    first = build_notebook(
        new_markdown_cell("# What was measured\n\nSee [the other](02-again.ipynb)."),
        new_code_cell("rows = 1", metadata={"tags": ["parameters"]}),
        new_code_cell(f"%load_ext ngbkit\n%ngbench data/mlp.onnx {SWEEP}"),
        new_code_cell("ds.ngb.plot.throughput()"),
        new_code_cell("print('parameter', rows)", metadata={"jupyter": {"source_hidden": True}}),
        new_code_cell("ds.ngb.plot.speedup()"),
        new_code_cell('ds.ngb.table("speedup", batch_size=[1, 2])'),
        new_code_cell("ds"),
    )
    second = build_notebook(
        new_markdown_cell("# Once more"),
        new_code_cell("raise RuntimeError('it was executed')", metadata={"tags": ["measures"]}),
        new_code_cell("import pandas as pd\nfrom helper import NAME\n\npd.DataFrame({NAME: [1]})"),
    )
    (folder / "parts").mkdir()
    (folder / "parts" / "names.py").write_text("NAME = 'a'\n")
    (folder / "helper.py").write_text("from parts.names import NAME\n")
    (folder / "other.py").write_text("import parts\n")
    for name, content in (("01-first", first), ("02-again", second)):
        nbformat.write(content, folder / f"{name}.ipynb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(recordings.FOLDER, str(folder / "data" / "recorded"))
        patch.setenv("NGBKIT_STATE_DIR", str(make_state_dir(tmp_path_factory, peaks_file)))
        workload = onnx.file(folder / "data" / "mlp.onnx")
        ngbkit.Sweep(workload, ["identity", "onnxruntime"], [1, 2], repeats=10, threads=1).run()
        from ngbkit.cluster import engines

        engines.close()
    return folder


@pytest.fixture(scope="session")
def site(folder: Path) -> Path:
    publish(folder, folder.parent / "site")
    return folder.parent / "site"
