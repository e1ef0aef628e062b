"""Executes notebooks that have changed, each in a kernel of its own, replaying recordings instead of measuring."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ngbkit
from ngbkit import options
from ngbkit.errors import NgbkitError, UsageError
from ngbkit.figures import provenance
from ngbkit.files import write_atomically
from ngbkit.runs.recordings import FOLDER, MEASURE, Measure
from ngbkit.user_text import parse_json
from ngbkit.workloads.base import hash_json
from ngbkit.workloads.subprocesses import build_arguments

MEASURING_TAG = "measures"
"""The tag of a cell whose measurement cannot be recorded; it is not executed where measuring is forbidden."""

_IMPORT = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.MULTILINE)

NOTE = "*This cell measures. It was not executed here; `ngbkit publish --re-run` executes it.*"


class ExecutionError(NgbkitError):
    """A notebook failed. The message quotes the error of its cell, or the last output of the kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """Executes notebooks that have changed since their last execution."""

    folder: Path  # of executed notebooks and of the hashes of their inputs
    recordings: Path  # the folder of recordings
    datasets: Path  # the folder in which figures save their datasets, by hash
    state: Path  # the state folder of notebooks that measure; the others have an empty one each
    measure: Measure = "never"  # see `ngbkit.runs.recordings`
    # Values for the names in the cell tagged ``parameters``, by stem of the notebook.
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def execute(self, notebook: Path) -> tuple[Path, bool]:
        """Return the executed notebook, and whether it was executed by this call."""
        target = self.folder / notebook.name
        key_file = self.folder / f"{notebook.stem}.json"
        key = self._hash_inputs(notebook)
        last_key = json.loads(key_file.read_text()).get("key") if key_file.is_file() and target.is_file() else None
        if last_key == key and self.measure != "always":
            return target, False
        self.folder.mkdir(parents=True, exist_ok=True)
        self.datasets.mkdir(parents=True, exist_ok=True)
        for path in (key_file, target):
            path.unlink(missing_ok=True)
        with TemporaryDirectory(prefix="ngbkit-publish-") as folder:
            source = Path(folder) / notebook.name
            content = _read_notebook(notebook)
            source.write_text(json.dumps(replace_measuring_cells(content) if self.measure == "never" else content))
            state = Path(folder) / "state"
            if self.measure != "never":
                state = self.state
                _make_measuring_state(state)
            self._run_papermill(source, target, notebook, state)
        with write_atomically(key_file) as temporary:
            temporary.write_text(json.dumps({"key": key}))
        return target, True

    def _run_papermill(self, source: Path, target: Path, notebook: Path, state: Path) -> None:
        command = [sys.executable, *build_arguments("papermill", str(source), str(target))]
        command += ["--cwd", str(notebook.parent.absolute()), "--kernel", "python3", "--no-progress-bar"]
        command += ["--no-log-output"]
        if parameters := self.parameters.get(notebook.stem):
            # JSON is YAML.
            command += ["--parameters_base64", b64encode(json.dumps(dict(parameters)).encode()).decode()]
        settings = {
            FOLDER: str(self.recordings.absolute()),
            MEASURE: self.measure,
            provenance.DATASETS: str(self.datasets.absolute()),
            options.STATE_DIR: str(state.absolute()),
        }
        process = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **settings},
        )
        if process.returncode:
            output = "\n".join((process.stderr or process.stdout).strip().splitlines()[-30:])
            raise ExecutionError(f"executing {notebook} failed: {_find_failure(target) or output}")

    def _hash_inputs(self, notebook: Path) -> str:
        """Hash all that the output depends on: the notebook, its data and modules, ngbkit's code, and the settings."""
        data = notebook.parent / "data"
        return hash_json(
            {
                "notebook": _hash([notebook]),
                "data": _hash(sorted(path for path in data.rglob("*") if path.is_file())) if data.is_dir() else "",
                "code": _hash(sorted(Path(ngbkit.__file__).parent.rglob("*.py"))),
                "modules": _hash(find_modules(notebook)),
                "measure": self.measure == "never",
                "parameters": dict(self.parameters.get(notebook.stem, {})),
            }
        )


def find_modules(notebook: Path) -> list[Path]:
    """Find the Python files beside a notebook that its cells import, and those that these files import."""
    cells = _read_notebook(notebook)["cells"]
    texts = ["\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")]
    files: set[Path] = set()
    while texts:
        for name in _IMPORT.findall(texts.pop()):
            module = notebook.parent / f"{name}.py"
            new = {*([module] if module.is_file() else []), *(notebook.parent / name).rglob("*.py")} - files
            files |= new
            texts += [file.read_text(encoding="utf-8", errors="replace") for file in new]
    return sorted(files)


def _make_measuring_state(folder: Path) -> None:
    """Make a state folder for notebooks that measure on this machine, with runs of its own.

    It shares the devices of the user's state folder, whose locks keep two runs from measuring at once, and has copies
    of what is known about this machine.
    """
    user_state, layout = options.make_state_dir(), options.LAYOUT
    devices = options.make_private(user_state / layout.devices)
    link = options.make_private(folder) / layout.devices
    link.unlink(missing_ok=True)
    link.symlink_to(devices)
    shutil.rmtree(folder / layout.selfcheck, ignore_errors=True)
    if (user_state / layout.selfcheck).is_dir():
        shutil.copytree(user_state / layout.selfcheck, folder / layout.selfcheck)
    if (user_state / layout.peaks).is_file():
        shutil.copyfile(user_state / layout.peaks, folder / layout.peaks)


def _find_failure(executed: Path) -> str:
    """Find the output of the cell that failed; empty if none did."""
    if not executed.is_file():
        return ""
    for number, cell in enumerate(json.loads(executed.read_text())["cells"]):
        outputs = cell.get("outputs", [])
        if cell["metadata"].get("papermill", {}).get("exception"):
            error = next((output for output in outputs if output["output_type"] == "error"), None)
            message = f"{error['ename']}: {error['evalue']}\n" if error else ""
            # The cell prints an error of ngbkit as a line.
            printed = "".join("".join(output["text"]) for output in outputs if output.get("name") == "stderr")
            return f"cell {number}: {message}{printed}".strip()
    return ""


def _read_notebook(path: Path) -> dict[str, Any]:
    try:
        notebook = parse_json(path.read_text(encoding="utf-8"))
        return {**notebook, "cells": [{**cell, "source": cell["source"]} for cell in notebook["cells"]]}
    except (OSError, UnicodeDecodeError, UsageError, TypeError, LookupError) as error:
        raise UsageError(f"{path} cannot be read as a notebook: {error}. Save it again in JupyterLab.") from None


def replace_measuring_cells(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """Return the notebook with text in place of each cell whose measurement cannot be recorded."""
    return {**notebook, "cells": [_to_text(cell) if _is_measuring(cell) else cell for cell in notebook["cells"]]}


def _is_measuring(cell: Mapping[str, Any]) -> bool:
    return cell["cell_type"] == "code" and MEASURING_TAG in cell.get("metadata", {}).get("tags", [])


def _to_text(cell: Mapping[str, Any]) -> dict[str, Any]:
    code = "".join(cell["source"]).rstrip()
    source = f"```python\n{code}\n```\n\n{NOTE}"
    return {"cell_type": "markdown", "id": cell.get("id", ""), "metadata": {}, "source": source}


def _hash(files: Iterable[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
