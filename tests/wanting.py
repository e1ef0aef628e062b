"""What a test needs of the machine: programs that it has, and what becomes of the test where it has not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import NoReturn

import pytest


def missing(what: str) -> NoReturn:
    """Skip the test for want of something, or fail it where nothing may be wanting."""
    if os.environ.get("NGBKIT_REQUIRE_ALL") == "1":
        pytest.fail(f"{what}; NGBKIT_REQUIRE_ALL=1 wants it")
    pytest.skip(what)


def run(program: Sequence[str]) -> str:
    """What a program prints; it must not fail."""
    done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(program)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout
