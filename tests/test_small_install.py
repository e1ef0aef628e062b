"""An environment without torch measures ONNX files, shows the results and draws them."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from pythons import create_other_environment
from requirements import run

from ngbkit.runs import recordings

EXTRAS = ("notebook", "onnxruntime", "openvino")
SHOWN = """
import importlib.util, json, sys
import ngbkit
from ngbkit import figures

data = ngbkit.load(sys.argv[1])
figures.save(data.ngb.plot.overview(), sys.argv[2])
speedup = data.ngb.speedup().sel(compiler="openvino")
heavy = [name for name in ("torch", "jupyterlab") if importlib.util.find_spec(name)]
print(json.dumps({"heavy": heavy, "speedup": speedup.values.ravel().tolist()}))
"""
REPLAYED = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        shell.run_cell("".join(cell["source"])).raise_error()
"""
NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with these extras and nothing else."""
    version = "{}.{}".format(*sys.version_info)
    return create_other_environment(tmp_path_factory.getbasetemp(), version, EXTRAS)


def test_onnx_files_are_measured_without_torch(python: Path, mlp_file: Path, tmp_path: Path) -> None:
    """A small installation measures ONNX files and draws the figure without torch."""
    out, picture = tmp_path / "out.nc", tmp_path / "overview.svg"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NGBKIT_STATE_DIR": str(tmp_path / "state")}
    words = ["run", str(mlp_file), "-c", f"identity,{','.join(EXTRAS[1:])}", "-b", "1,4", "-r", "5", "-o", str(out)]
    run([str(python), "-m", "ngbkit", *words, "--quiet"], environment=environment)
    report = json.loads(run([str(python), "-c", SHOWN, str(out), str(picture)], environment=environment))

    assert [] == report["heavy"]
    assert 2 == len(report["speedup"])
    assert all(value > 0 for value in report["speedup"])
    assert "<svg" in picture.read_text()


def test_the_quick_start_is_replayed_without_torch(python: Path, tmp_path: Path) -> None:
    """The quick start is replayed from its recordings in an environment without torch."""
    (tmp_path / "notebooks").mkdir()
    page = shutil.copy(NOTEBOOKS / "01-quickstart.ipynb", tmp_path / "notebooks")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NGBKIT_STATE_DIR": str(tmp_path / "state")}
    environment |= {recordings.FOLDER: str(NOTEBOOKS / "data" / "recorded"), recordings.MEASURE: "never"}
    printed = run([str(python), "-c", REPLAYED, str(page)], environment=environment, cwd=tmp_path / "notebooks")

    assert "resnet18" in printed
    assert (tmp_path / "results" / "quickstart.nc").exists()
