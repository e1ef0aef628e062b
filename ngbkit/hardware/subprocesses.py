"""Programs that run to their end in a process of their own, and their output."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from ngbkit.errors import DeviceError


def run(command: Sequence[str], *, environment: Mapping[str, str], timeout_s: float) -> str:
    """Run a program with exactly these environment variables and return its output; DeviceError if it fails."""
    try:
        process = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DeviceError(f"it did not end within {timeout_s:g} s") from None
    except OSError as error:
        raise DeviceError(f"it did not start: {error}") from error
    if process.returncode:
        lines = (process.stderr.strip() or process.stdout.strip() or "it printed nothing").splitlines()
        raise DeviceError(f"it ended with {process.returncode}: {lines[-1]}")
    return process.stdout


def run_json(command: Sequence[str], *, environment: Mapping[str, str], timeout_s: float) -> Any:
    """Run a program as `run` does and parse the JSON on the last line of its output."""
    output = run(command, environment=environment, timeout_s=timeout_s).strip()
    try:
        return json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise DeviceError(f"its last line is not JSON: {output[-200:] or 'it printed nothing'}") from None
