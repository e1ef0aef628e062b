"""Programs of ours run in a process of their own, whose answer is the last line that they print, as JSON."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from ngbkit.errors import DeviceError


def answer(command: Sequence[str], *, environment: Mapping[str, str], timeout_s: float) -> Any:
    """What a program answers.

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
        It failed, took longer, or its last line is no JSON; the message holds what it said last.
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
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    last = said[-1] if said else "it printed nothing"
    if done.returncode:
        raise DeviceError(f"it ended with {done.returncode}: {last}")
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise DeviceError(f"it gave no answer: {last}") from None
