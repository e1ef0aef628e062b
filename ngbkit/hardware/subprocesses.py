"""Programs that are run to their end in a process of their own, and what they say."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from ngbkit.errors import DeviceError


def run(command: Sequence[str], *, environment: Mapping[str, str], timeout_s: float) -> str:
    """What a program prints.

    Parameters
    ----------
    command
        The program and its arguments.
    environment
        Every environment variable that it is to have.
    timeout_s
        How long it may take, in seconds.

    Raises
    ------
    DeviceError
        It failed or took longer; the message holds what it said last.
    """
    try:
        done = subprocess.run(
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
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
        raise DeviceError(f"it ended with {done.returncode}: {said[-1]}")
    return done.stdout


def answer(command: Sequence[str], *, environment: Mapping[str, str], timeout_s: float) -> Any:
    """What a program answers: the JSON on the last line that it prints. Parameters and errors are those of `run`."""
    printed = run(command, environment=environment, timeout_s=timeout_s).strip()
    try:
        return json.loads(printed.splitlines()[-1])
    except (IndexError, ValueError):
        raise DeviceError(f"its last line is no JSON: {printed[-200:] or 'it printed nothing'}") from None
