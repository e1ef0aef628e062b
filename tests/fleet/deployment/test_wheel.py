"""The wheel of the running ngbkit: complete, reproducible, and valid for pip."""

from __future__ import annotations

import base64
import csv
import hashlib
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import ngbkit
from ngbkit.errors import UsageError
from ngbkit.fleet.deployment import wheel


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.build(tmp_path_factory.mktemp("built"))


def test_a_wheel_is_the_same_each_time(built: Path, tmp_path: Path) -> None:
    """Byte for byte, so it has one content hash."""
    again = wheel.build(tmp_path / "new" / "folder")

    assert (built.name, built.read_bytes()) == (again.name, again.read_bytes())


def test_a_wheel_has_the_package_alone(built: Path) -> None:
    """The wheel has every module and data file of the package, and no byte code."""
    root = Path(ngbkit.__file__).parent
    modules = {f"ngbkit/{path.relative_to(root).as_posix()}" for path in root.rglob("*.py")}
    names = set(zipfile.ZipFile(built).namelist())

    assert {*modules, "ngbkit/py.typed"} <= names
    assert set() == {name for name in names if "__pycache__" in name or "/." in name}


def test_the_record_lists_every_file_with_its_hash_and_size(built: Path) -> None:
    """The record lists every file of the wheel with its hash and size."""
    archive = zipfile.ZipFile(built)
    info = f"ngbkit-{ngbkit.__version__}.dist-info"
    record = {row[0]: row[1:] for row in csv.reader(archive.read(f"{info}/RECORD").decode().splitlines())}
    record_line = record.pop(f"{info}/RECORD")
    expected = {}
    for name in set(archive.namelist()) - {f"{info}/RECORD"}:
        content = archive.read(name)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        expected[name] = [f"sha256={digest}", str(len(content))]

    assert ["", ""] == record_line
    assert expected == record
    assert f"{info}/licenses/LICENSE" in record


def test_pip_installs_it_into_a_bare_environment(built: Path, tmp_path: Path) -> None:
    """The installed wheel has its version, its entry points and its command."""
    env = tmp_path / "env"
    python = [str(env / "bin" / "python"), "-I"]
    subprocess.run([sys.executable, "-m", "venv", env], check=True)
    subprocess.run([*python, "-m", "pip", "install", "--no-deps", "--no-index", built], check=True, capture_output=True)
    program = (
        "import ngbkit; from importlib.metadata import entry_points; print(ngbkit.__version__);"
        "print(*sorted(entry.name for entry in entry_points(group='ngbkit.compilers')))"
    )
    output = subprocess.run([*python, "-c", program], check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    version, compilers = output.splitlines()

    assert ngbkit.__version__ == version
    ours = metadata.distribution("ngbkit").entry_points.select(group="ngbkit.compilers")
    assert sorted(entry.name for entry in ours) == compilers.split()
    assert "identity" in compilers.split()
    assert (env / "bin" / "ngbkit").exists()


def test_the_extras_are_those_of_the_metadata() -> None:
    """The extras of the wheel are those of the metadata, including compilers."""
    assert {"torch", "onnxruntime", "openvino", "tvm", "tensorrt", "notebook"} <= set(wheel.list_extras())


def test_an_ngbkit_without_an_installation_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An ngbkit without an installation builds no wheel, as its requirements are unknown."""

    def find(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", find)

    with pytest.raises(UsageError, match=r"without being installed.*pip install -e"):
        wheel.build(tmp_path)
