"""Pythons of another version, with and without ngbkit.

``python tests/pythons.py`` runs the tests of the device side on the oldest and the newest of them, with nothing but
ngbkit's dependencies and ONNX Runtime.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from requirements import OTHER_PYTHON, run, skip

_PINS = Path(__file__).parents[1] / "constraints.txt"
VERSIONS = ("3.10", "3.13", "3.12", "3.11")
# What these tests need; SciPy has the right results of statistics.
_TEST_PACKAGES = ("hypothesis", "pytest", "pytest-timeout", "scipy")
#: The files and folders of tests that need neither torch nor a package of the client.
DEVICE_SIDE = (
    *(f"tests/test_{name}.py" for name in ("files", "registry", "user_text", "validation")),
    *(f"tests/sweep/test_{name}.py" for name in ("journal", "journal_file", "notes", "records")),
    *(f"tests/hardware/{name}" for name in ("conditions", "telemetry", "test_environment.py", "test_resources.py")),
    *(f"tests/hardware/accelerators/test_{name}.py" for name in ("cuda", "events", "cuda_graphs", "probing")),
    "tests/workloads/test_value_artifacts.py",
    *("tests/device/isolation", "tests/device/timing", "tests/device/serving/test_loadgen.py"),
    *(f"tests/device/test_{name}.py" for name in ("keepalive", "lock", "process_lifetime")),
)


def find_other_python(version: str | None = None) -> Path | None:
    """Find an interpreter of that version, or of any but this process's; return None if there is none."""
    current = "{}.{}".format(*sys.version_info)
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for number in [version] if version else [number for number in VERSIONS if number != current]:
        for candidate in [*versions.glob(f"{number}.*/bin/python{number}"), shutil.which(f"python{number}")]:
            # The one on PATH may be pyenv's, which only lists the versions.
            program = [candidate or "false", "-I", "-c", "import sys; print(sys.executable)"]
            process = subprocess.run(program, capture_output=True, text=True, check=False)
            if process.returncode == 0:
                return Path(process.stdout.strip())
    return None


def create_other_environment(tmp: Path, version: str | None = None, extras: Sequence[str] = ("onnxruntime",)) -> Path:
    """Create an environment of another Python with this ngbkit, or reuse it; return its Python.

    It is in `tmp`, pytest's base folder; `version` is that of `find_other_python`, and `extras` are ngbkit's.
    """
    base = find_other_python(version)
    if base is None:
        skip(OTHER_PYTHON)
    folder = tmp / "-".join(["far", base.name, *extras])
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    package = f"{_PINS.parent}[{','.join(extras)}]"
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
    run([str(base), "-m", "venv", "--without-pip", str(folder)])
    run([*install, "--constraint", str(_PINS), package])
    (folder / "complete").touch()
    return python


def create_environment(folder: str, version: str, *packages: str) -> str:
    """Create an environment of a version of Python, which uv downloads if there is none; return its Python."""
    uv, python = [sys.executable, "-m", "uv"], str(Path(folder, "bin", "python"))
    run([*uv, "venv", "--quiet", "--clear", "--python", str(find_other_python(version) or version), folder])
    run([*uv, "pip", "install", "--quiet", "--python", python, *packages])
    return python


def run_device_side(version: str) -> None:
    """Run the tests of the device side on a version of Python, without torch."""
    package = ["--constraint", str(_PINS), "--editable", f"{_PINS.parent}[onnxruntime]"]
    with tempfile.TemporaryDirectory(prefix="ngbkit-python-") as folder:
        python = create_environment(folder, version, *package, *_TEST_PACKAGES)
        subprocess.run([python, "-m", "pytest", "-q", *DEVICE_SIDE], cwd=_PINS.parent, check=True)


if __name__ == "__main__":
    for version in VERSIONS[:2]:
        run_device_side(version)
