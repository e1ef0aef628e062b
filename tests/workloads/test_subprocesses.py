"""Python in processes of their own: no file of the user hides a module there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ngbkit.workloads import files
from ngbkit.workloads.subprocesses import build_arguments, build_python_path, run_module

# Of Python and of packages; each has once ended a controller, an engine or a child.
NAMES = (
    "queue",
    "random",
    "types",
    "logging",
    "secrets",
    "token",
    "inspect",
    "onnx",
    "numpy",
    "torch",
    "zmq",
    "ngbkit",
)


@pytest.fixture
def hiding_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, where files of the user have names of modules."""
    folder = tmp_path / "hiding"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"raise RuntimeError('{name}.py of the user was imported')")
    monkeypatch.chdir(folder)
    return folder


def test_a_module_runs_where_files_hide_modules(hiding_folder: Path) -> None:
    """The working folder is not on its path, and its arguments are its own."""
    assert "" == run_module("json.tool", ["--help"], 60)
    assert "unrecognized arguments: --none" in run_module("json.tool", ["--none"], 60)


@pytest.mark.parametrize(
    "variables", [{}, {"IPP_CLUSTER_ID": "lab", "IPP_PROFILE_DIR": "/proc/none", "PYTHONWARNINGS": "error"}]
)
def test_a_run_survives_files_that_hide_modules(
    variables: dict[str, str], hiding_folder: Path, mlp_file: Path, tmp_path: Path
) -> None:
    """A run succeeds despite files that hide modules and variables for other programs."""
    settings = {"NGBKIT_STATE_DIR": str(tmp_path / "state"), "NGBKIT_PATIENCE": "0", **variables}
    words = ["run", str(mlp_file), "-c", "onnxruntime", "-b", "1", "-r", "2", "--json", "--quiet"]
    process = subprocess.run(
        [sys.executable, *build_arguments("ngbkit", *words)],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (process.returncode, process.stderr)
    assert '"status": "ok"' in process.stdout


def test_the_users_folder_is_the_last_on_the_path(hiding_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of PYTHONPATH stays first, and one that a program adds follows the standard library."""
    monkeypatch.setattr(files, "_PYTHON_PATH", {"/first"})
    monkeypatch.setattr(sys, "path", ["", "/added", str(hiding_folder), "/first", os.__file__.rpartition("/")[0]])
    first, standard, added, *working = build_python_path().split(os.pathsep)

    assert ("/first", os.__file__.rpartition("/")[0], "/added") == (first, standard, added)
    assert {str(hiding_folder)} == set(working)


def test_a_folder_of_pythonpath_is_first_also_where_it_is_the_users(
    hiding_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every process imports from a working folder that PYTHONPATH names, as this one does."""
    monkeypatch.setattr(files, "_PYTHON_PATH", {str(hiding_folder)})
    monkeypatch.setattr(sys, "path", ["", "/added", str(hiding_folder)])

    assert f"{hiding_folder}{os.pathsep}{hiding_folder}{os.pathsep}/added" == build_python_path()
