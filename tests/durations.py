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
#: Seconds from which on a test is recorded, and that the recorded tests of a quick file come to at most.
LONG_S, QUICK_FILE_S = 1.0, 2.0


def load() -> dict[str, float]:
    """Seconds by test, of the long ones."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def save(reports: Iterable[pytest.TestReport]) -> None:
    """Record the long tests of these reports, in the place of what was recorded before."""
    seconds: Counter[str] = Counter()
    for report in reports:
        seconds[report.nodeid] += report.duration
    long = {test: round(total, 1) for test, total in sorted(seconds.items()) if total >= LONG_S}
    RECORD.write_text(json.dumps(long, indent=1) + "\n")


def by_file(seconds: Mapping[str, float]) -> Counter[str]:
    """Seconds by file."""
    totals: Counter[str] = Counter()
    for test, duration in seconds.items():
        totals[test.partition("::")[0]] += duration
    return totals


def is_quick(file: str, seconds: Mapping[str, float]) -> bool:
    """Whether the tests of a file are quick, all together: what the first of them sets up the others need too."""
    return by_file(seconds)[file] <= QUICK_FILE_S


def longest_first(tests: Sequence[str], seconds: Mapping[str, float]) -> list[int]:
    """The order in which tests start, as indices: those of the files that take longest first, so that none is left."""
    totals = by_file(seconds)
    return sorted(range(len(tests)), key=lambda index: -totals[tests[index].partition("::")[0]])
