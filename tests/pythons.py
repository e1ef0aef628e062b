"""Pythons of another version than this one, with ngbkit in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from requirements import OTHER_PYTHON, run, skip

from ngbkit.cluster.deployment import wheel

_PINS = Path(__file__).parents[1] / "binder" / "requirements.txt"
_VERSIONS = ("3.10", "3.13", "3.12", "3.11")


def far_python(version: str | None = None) -> Path | None:
    """An interpreter of that version, or of any but this process's own; None where there is none."""
    own = "{}.{}".format(*sys.version_info)
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for wanted in [version] if version else [one for one in _VERSIONS if one != own]:
        for candidate in [*versions.glob(f"{wanted}.*/bin/python{wanted}"), shutil.which(f"python{wanted}")]:
            # One that is on PATH may be pyenv's program that says which versions there are.
            program = [candidate or "false", "-I", "-c", "import sys; print(sys.executable)"]
            said = subprocess.run(program, capture_output=True, text=True, check=False)
            if said.returncode == 0:
                return Path(said.stdout.strip())
    return None


def far_environment(tmp: Path, version: str | None = None, extras: Sequence[str] = ("onnxruntime",)) -> Path:
    """The Python of a virtual environment of another version, with this ngbkit in it.

    Parameters
    ----------
    tmp
        Where it is kept and, when it is asked for again, found: pytest's base folder.
    version, extras
        That of `far_python`, and those of ngbkit.
    """
    base = far_python(version)
    if base is None:
        skip(OTHER_PYTHON)
    folder = tmp / "-".join(["far", base.name, *extras])
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    package = f"{wheel.build(folder / 'wheel')}[{','.join(extras)}]"
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
    run([str(base), "-m", "venv", "--without-pip", str(folder)])
    run([*install, "--constraint", str(_PINS), package])
    (folder / "complete").touch()
    return python
