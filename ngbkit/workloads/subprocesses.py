"""Modules run in a process of their own and for a limited time: what crashes or hangs there harms nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress

_LISTED = 300  # characters of an error message


def run_module(module: str, arguments: Sequence[str], limit_s: float, *, own_session: bool = False) -> str:
    """Run ``python -m MODULE ARGUMENTS…`` and return the reason why it failed; empty if it succeeded.

    The process is killed after `limit_s` seconds; with an `own_session`, all that it started ends with it.
    """
    # Its output may be long: a file never blocks it, as a full pipe would.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            # The order of a set depends on the seed: the same file in must be the same bytes out.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHASHSEED": "0"},
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
