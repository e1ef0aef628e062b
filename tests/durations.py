"""How long each test takes, as it was recorded: what starts first, and what is quick enough to run after a change.

``make durations`` records. The seconds are of one machine and one run; they order tests, and decide nothing else.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

RECORD = Path(__file__).with_name("durations.json")
#: Seconds from which on a test is no quick one, and is recorded.
QUICK_S = 1.0


def load() -> dict[str, float]:
    """Seconds by test, of those that are not quick."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def save(reports: Iterable[pytest.TestReport]) -> None:
    """Record the tests of these reports that are not quick, in the place of what was recorded before."""
    seconds: Counter[str] = Counter()
    for report in reports:
        seconds[report.nodeid] += report.duration
    slow = {test: round(total, 1) for test, total in sorted(seconds.items()) if total >= QUICK_S}
    RECORD.write_text(json.dumps(slow, indent=1) + "\n")


def is_quick(test: str, seconds: Mapping[str, float]) -> bool:
    """Whether a test is known to be quick, or not known."""
    return seconds.get(test, 0.0) < QUICK_S


def longest_first(tests: Sequence[str], seconds: Mapping[str, float]) -> list[int]:
    """The order in which tests start, as indices: those of the files that take longest first, so that none is left."""
    files = [test.partition("::")[0] for test in tests]
    totals: Counter[str] = Counter()
    for file, test in zip(files, tests, strict=True):
        totals[file] += seconds.get(test, 0.0)
    return sorted(range(len(tests)), key=lambda index: -totals[files[index]])
