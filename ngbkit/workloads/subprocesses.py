"""Python in a process of its own: what crashes or hangs there harms nothing else, and no user's file hides a module.

Python begins its path with the folder of a script or, after ``-c`` and ``-m``, with the working folder, where a
``queue.py`` of the user hides that of Python; ``-P`` is new in Python 3.11.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ngbkit.workloads.files import find_script_folder, find_working_folder, is_on_python_path

SAFE_PATH = "import sys; sys.path[:] = filter(None, sys.path)\n"
"""The beginning of a program for ``python -c``: it removes the working folder from the path."""
_RUN_MODULE = f"{SAFE_PATH}import runpy; runpy._run_module_as_main(sys.argv.pop(1))"
_LISTED = 300  # characters of an error message


def build_arguments(module: str, *arguments: str) -> list[str]:
    """Build the arguments of Python that run a module as ``-m`` does, but import nothing from the working folder."""
    return ["-c", _RUN_MODULE, module, *arguments]


def build_python_path() -> str:
    """Build the PYTHONPATH of a process that finds the modules of this one.

    The folders of the user's own PYTHONPATH are the first, and those of the notebook or the script the last.
    """
    working = Path(find_working_folder() or "/")
    last = (working, Path(find_script_folder()))
    standard = sysconfig.get_path("stdlib")

    def rank(entry: str) -> int:
        is_standard = entry.startswith(standard) and not entry.endswith("-packages")
        if is_standard or is_on_python_path(entry):
            return 0
        return 2 if Path(entry) in last else 1

    return os.pathsep.join(sorted((str(working / entry) for entry in sys.path), key=rank))


def run_module(module: str, arguments: Sequence[str], limit_s: float, *, own_session: bool = False) -> str:
    """Run ``python -m MODULE ARGUMENTS…`` for at most `limit_s`, and return why it failed; empty if it succeeded."""
    # Its output may be long: a file never blocks it, as a full pipe would.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, *build_arguments(module, *arguments)],
            # The order of a set depends on the seed: the same file in must be the same bytes out.
            env={**os.environ, "PYTHONPATH": build_python_path(), "PYTHONHASHSEED": "0"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=own_session,
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return f"stopped: it took longer than {limit_s:g} s"
        finally:
            with suppress(ProcessLookupError):
                (os.killpg if own_session else os.kill)(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
    if status < 0:
        return f"crashed: {signal.Signals(-status).name}"
    if status:
        return f"failed: {lines[-1][:_LISTED] if lines else f'it ended with {status}'}"
    return ""
