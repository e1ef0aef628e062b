"""Executing a notebook: in a kernel of its own, without measuring unless that was asked for, where it has changed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ngbkit
from ngbkit.errors import NgbkitError
from ngbkit.figures import provenance
from ngbkit.files import replacing
from ngbkit.runs import recordings
from ngbkit.workloads.base import content_hash

MEASURES = "measures"
"""The tag of a cell that measures what cannot be recorded: it is left out where nothing is to be measured."""

NOTE = "*This cell measures. It was not executed here: `ngbkit publish --re-run` does.*"


class ExecutionError(NgbkitError):
    """A notebook did not execute to its end. The message holds the end of what the kernel said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """Executes notebooks, each where something has changed since it was executed last.

    Parameters
    ----------
    folder
        Where executed notebooks are kept, and what they were made of.
    recorded
        The recordings of what notebooks measure.
    datasets
        Where figures leave the datasets that they draw, by their hash.
    measure
        What is measured: see `ngbkit.runs.recordings`.
    parameters
        By notebook's stem the values of names in its cell tagged ``parameters``.
    """

    folder: Path
    recorded: Path
    datasets: Path
    measure: recordings.Measure = "never"
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def execute(self, notebook: Path) -> tuple[Path, bool]:
        """The executed notebook, and whether it was executed now.

        Raises
        ------
        ExecutionError
            A cell failed.
        """
        target = self.folder / notebook.name
        made_of = self.folder / f"{notebook.stem}.json"
        key = self._key(notebook)
        known = json.loads(made_of.read_text()).get("key") if made_of.is_file() and target.is_file() else None
        if known == key and self.measure != "always":
            return target, False
        self.folder.mkdir(parents=True, exist_ok=True)
        self.datasets.mkdir(parents=True, exist_ok=True)
        for old in (made_of, target):
            old.unlink(missing_ok=True)
        with TemporaryDirectory(prefix="ngbkit-publish-") as place:
            source = Path(place) / notebook.name
            content = json.loads(notebook.read_text())
            source.write_text(json.dumps(without_measuring(content) if self.measure == "never" else content))
            self._papermill(source, target, notebook)
        with replacing(made_of) as temporary:
            temporary.write_text(json.dumps({"key": key}))
        return target, True

    def _papermill(self, source: Path, target: Path, notebook: Path) -> None:
        words = [sys.executable, "-m", "papermill", str(source), str(target), "--cwd", str(notebook.parent.absolute())]
        words += ["--kernel", "python3", "--no-progress-bar", "--no-log-output"]
        own = self.parameters.get(notebook.stem)
        if own:
            words += ["--parameters_base64", _base64(own)]
        settings = {
            recordings.FOLDER: str(self.recorded.absolute()),
            recordings.MEASURE: self.measure,
            provenance.DATASETS: str(self.datasets.absolute()),
        }
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **settings},
        )
        if done.returncode:
            said = _failure(target) or "\n".join((done.stderr or done.stdout).strip().splitlines()[-30:])
            raise ExecutionError(f"{notebook} did not execute to its end: {said}")

    def _key(self, notebook: Path) -> str:
        """A hash of all that what comes out depends on: the notebook, its data, our own code, how it is executed."""
        data = notebook.parent / "data"
        return content_hash(
            {
                "notebook": _hash([notebook]),
                "data": _hash(sorted(one for one in data.rglob("*") if one.is_file())) if data.is_dir() else "",
                "code": _hash(sorted(Path(ngbkit.__file__).parent.rglob("*.py"))),
                "measure": self.measure == "never",
                "parameters": dict(self.parameters.get(notebook.stem, {})),
            }
        )


def _failure(executed: Path) -> str:
    """What the cell said that failed."""
    if not executed.is_file():
        return ""
    for number, cell in enumerate(json.loads(executed.read_text())["cells"]):
        outputs = cell.get("outputs", [])
        if cell["metadata"].get("papermill", {}).get("exception"):
            error = next((one for one in outputs if one["output_type"] == "error"), None)
            told = f"{error['ename']}: {error['evalue']}\n" if error else ""
            # An error of ours is a line that the cell printed.
            printed = "".join("".join(one["text"]) for one in outputs if one.get("name") == "stderr")
            return f"cell {number}: {told}{printed}".strip()
    return ""


def without_measuring(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """A notebook in which the cells that measure what cannot be recorded are text."""
    return {**notebook, "cells": [_told(cell) if _measures(cell) else cell for cell in notebook["cells"]]}


def _measures(cell: Mapping[str, Any]) -> bool:
    return cell["cell_type"] == "code" and MEASURES in cell.get("metadata", {}).get("tags", [])


def _told(cell: Mapping[str, Any]) -> dict[str, Any]:
    text = "".join(cell["source"]).rstrip()
    source = f"```python\n{text}\n```\n\n{NOTE}"
    return {"cell_type": "markdown", "id": cell.get("id", ""), "metadata": {}, "source": source}


def _hash(files: Iterable[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _base64(parameters: Mapping[str, Any]) -> str:
    from base64 import b64encode

    # JSON is YAML.
    return b64encode(json.dumps(dict(parameters)).encode()).decode()
