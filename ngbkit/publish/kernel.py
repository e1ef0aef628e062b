"""The kernel of a publication, which notes the files that its notebook reads: these travel in the archive."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from ngbkit.runs.recordings import AUDIT
from ngbkit.workloads.subprocesses import build_arguments

ROOT, LOG = "NGBKIT_READ_FOLDER", "NGBKIT_READ_LOG"
NAME = "python3"


def write_spec(folder: Path) -> None:
    """Write the specification of this kernel below a folder for JUPYTER_PATH."""
    file = folder / "kernels" / NAME / "kernel.json"
    file.parent.mkdir(parents=True)
    arguments = [sys.executable, *build_arguments(__name__, "-f", "{connection_file}")]
    file.write_text(json.dumps({"argv": arguments, "display_name": "Python 3", "language": "python"}))


def watch(root: str, log: str) -> None:
    """Write the path of each file below a folder that this process reads to a log, once, a line each."""
    stream = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    paths: set[str] = set()

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(path, (str, bytes)) or flags & os.O_ACCMODE == os.O_WRONLY:
                return
        elif event == AUDIT:
            path = arguments[0]
        else:
            return
        path = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  of a file that may not exist, without a request to it
        if path.startswith(root) and path not in paths:
            paths.add(path)
            os.write(stream, f"{path}\n".encode(errors="surrogateescape"))

    sys.addaudithook(note)


if __name__ == "__main__":
    watch(os.path.join(os.environ.pop(ROOT), ""), os.environ.pop(LOG))  # noqa: PTH118  with its last slash
    runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)
