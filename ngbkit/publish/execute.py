"""Executes notebooks that have changed, each in a kernel of its own, replaying recordings instead of measuring."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import ngbkit
from ngbkit import options
from ngbkit.errors import NgbkitError
from ngbkit.figures import provenance
from ngbkit.files import list_files, write_atomically
from ngbkit.publish import kernel
from ngbkit.publish.adoption import Adoption
from ngbkit.publish.cells import find_modules, read_notebook, replace_measuring_cells
from ngbkit.runs.recordings import EARLIER, FOLDER, MEASURE, Measure
from ngbkit.workloads.base import hash_json
from ngbkit.workloads.subprocesses import build_arguments


class ExecutionError(NgbkitError):
    """A notebook failed. The message quotes the error of its cell, or the last output of the kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """Executes notebooks that have changed since their last execution."""

    folder: Path  # of executed notebooks and of the hashes of their inputs
    adoption: Adoption  # the recordings, and the runs that may become some
    datasets: Path  # the folder in which figures save their datasets, by hash
    state: Path  # the state folder of notebooks that measure; the others have an empty one each
    measure: Measure = "never"  # see `ngbkit.runs.recordings`

    def execute(self, notebook: Path) -> tuple[Path, bool]:
        """Return the executed notebook, and whether it was executed by this call."""
        target = self.folder / notebook.name
        key_file = self.folder / f"{notebook.stem}.json"
        last = json.loads(key_file.read_text()) if key_file.is_file() and target.is_file() else {}
        if last.get("key") == self._hash_inputs(notebook, last.get("reads", ())) and self.measure != "always":
            return target, False
        self.folder.mkdir(parents=True, exist_ok=True)
        self.datasets.mkdir(parents=True, exist_ok=True)
        for path in (key_file, target):
            path.unlink(missing_ok=True)
        with TemporaryDirectory(prefix="ngbkit-publish-") as folder:
            source = Path(folder) / notebook.name
            content = read_notebook(notebook)
            source.write_text(json.dumps(replace_measuring_cells(content) if self.measure == "never" else content))
            state = Path(folder) / "state"
            if self.measure != "never":
                state = self.state
                _make_measuring_state(state)
            opened = self.adoption.open_runs(notebook, options.make_private(state) / options.LAYOUT.runs)
            kernel.write_spec(Path(folder))
            self.adoption.write(notebook, Path(folder) / "runs.json")
            self._run_papermill(source, target, notebook, state)
            paths = (Path(folder) / "reads").read_text(errors="surrogateescape").splitlines()
        root = notebook.parent.resolve()
        files = [file for file in {*(path.resolve() for path in opened), *map(Path, paths)} if root in file.parents]
        reads = sorted(file.relative_to(root).as_posix() for file in files)
        with write_atomically(key_file) as temporary:
            temporary.write_text(json.dumps({"key": self._hash_inputs(notebook, reads), "reads": reads}))
        return target, True

    def list_reads(self, notebook: Path) -> list[str]:
        """List the files and the recordings that an executed notebook read, relative to its folder."""
        reads: list[str] = json.loads((self.folder / f"{notebook.stem}.json").read_text())["reads"]
        return reads

    def _run_papermill(self, source: Path, target: Path, notebook: Path, state: Path) -> None:
        command = [sys.executable, *build_arguments("papermill", str(source), str(target))]
        command += ["--cwd", str(notebook.parent.absolute()), "--kernel", kernel.NAME, "--no-progress-bar"]
        command += ["--no-log-output"]
        settings = {
            # A process has no working folder with links, and notes what it reads without them.
            FOLDER: str(self.adoption.recordings.resolve()),
            MEASURE: self.measure,
            EARLIER: str(source.with_name("runs.json")),
            kernel.ROOT: str(notebook.parent.resolve()),
            kernel.LOG: str(source.with_name("reads")),
            "JUPYTER_PATH": os.pathsep.join(filter(None, [str(source.parent), os.environ.get("JUPYTER_PATH")])),
            # By which a panel finds its run.
            "JPY_SESSION_NAME": str(notebook.absolute()),
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

    def _hash_inputs(self, notebook: Path, reads: Iterable[str]) -> str:
        """Hash all that the output depends on: notebook, data, modules, read recordings, ngbkit's code, settings."""
        recordings = self.adoption.recordings
        replayed = [path for path in map(notebook.parent.joinpath, reads) if path.is_relative_to(recordings)]
        return hash_json(
            {
                "notebook": _hash([notebook]),
                "data": _hash(path for path in list_files(notebook.parent / "data") if recordings not in path.parents),
                "recordings": _hash(file for path in replayed for file in list_files(path)),
                "code": _hash(sorted(Path(ngbkit.__file__).parent.rglob("*.py"))),
                "modules": _hash(find_modules(notebook)),
                "measure": self.measure == "never",
            }
        )


def _make_measuring_state(folder: Path) -> None:
    """Make a state folder for notebooks that measure here, with copies of what is known about this machine."""
    user_state, layout = options.make_state_dir(), options.LAYOUT
    # Its locks keep two runs from measuring at once.
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


def _hash(files: Iterable[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        content = file.read_bytes()
        digest.update(f"{file.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()
