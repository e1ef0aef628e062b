"""Searches for a capacity, each in a file of the state folder that is written after every test: none is lost."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ngbkit import options, validation
from ngbkit.device.serving.load import LoadTest
from ngbkit.errors import JournalError
from ngbkit.files import write_atomically
from ngbkit.hardware.environment import find_differences
from ngbkit.user_text import parse_json
from ngbkit.validation import Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySearch:
    """The tests of one question on one device."""

    # The network, its compiler and device, and what the server must keep, as plain JSON.
    question: Mapping[str, Any]
    # The device's `ngbkit.hardware.environment.describe`.
    environment: Mapping[str, Any]
    started_at: Positive
    tests: tuple[LoadTest, ...] = ()
    number: int = 0

    def add(self, test: LoadTest) -> CapacitySearch:
        """Write the search with one more test to its file, and return it."""
        search = replace(self, tests=(*self.tests, test))
        options.make_state_dir()
        with write_atomically(_locate(self.question, self.number)) as draft:
            draft.write_text(json.dumps(asdict(search)))
        return search


def find(question: Mapping[str, Any]) -> CapacitySearch | None:
    """Find the latest search for the answer to a question; None without any."""
    path = max(_list_files(question), key=_read_number, default=None)
    if path is None:
        return None
    try:
        data = parse_json(path.read_text())
        return CapacitySearch(
            question=question,
            environment=dict(data["environment"]),
            started_at=validation.parse(Positive, data["started_at"]),
            tests=validation.parse(tuple[LoadTest, ...], data["tests"]),
            number=_read_number(path),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise JournalError(f"invalid load tests in {path}: {error}. Move the file away, and measure again.") from None


def resume(question: Mapping[str, Any], environment: Mapping[str, Any], *, again: bool) -> CapacitySearch:
    """Return the latest search, to go on with it; or a new one, if asked to or if the device has changed since."""
    latest = find(question)
    if latest is not None and not again and not find_differences(latest.environment, environment):
        return latest
    number = 0 if latest is None else latest.number + 1
    return CapacitySearch(question=question, environment=environment, started_at=time.time(), number=number)


def _list_files(question: Mapping[str, Any]) -> list[Path]:
    path = _locate(question, 0)
    return list(path.parent.glob(f"{path.stem.rpartition('-')[0]}-*.json"))


def _locate(question: Mapping[str, Any], number: int) -> Path:
    digest = hashlib.blake2b(json.dumps(question, sort_keys=True).encode(), digest_size=16).hexdigest()
    return options.get_state_dir() / options.LAYOUT.capacities / f"{digest}-{number}.json"


def _read_number(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])
