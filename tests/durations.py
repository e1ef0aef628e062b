"""Recorded durations of tests: they order the tests, and select those that are quick enough to run after a change.

``make durations`` and continuous integration record them, on one machine and in one run of all tests.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

RECORD = Path(__file__).with_name("durations.json")
#: The shortest duration that is recorded, and the longest total of the recorded tests of a quick file.
LONG_S, QUICK_FILE_S = 1.0, 2.0


def load() -> dict[str, float]:
    """Load the seconds that each long test takes."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def save(reports: Iterable[pytest.TestReport | pytest.CollectReport], available_s: float = math.inf) -> None:
    """Save the durations of the long tests of these reports, replacing the earlier record.

    Tests that share cores take longer: their sum is scaled to `available_s`, the seconds of all cores. The report of a
    file that cannot be imported has no duration.
    """
    seconds: Counter[str] = Counter()
    for report in reports:
        seconds[report.nodeid] += getattr(report, "duration", 0.0)
    share = min(1.0, available_s / max(sum(seconds.values()), LONG_S))
    seconds = Counter({test: share * total for test, total in seconds.items()})
    long = {test: round(total, 1) for test, total in sorted(seconds.items()) if total >= LONG_S}
    RECORD.write_text(json.dumps(long, indent=1) + "\n")


def sum_by_file(seconds: Mapping[str, float]) -> Counter[str]:
    """Sum the seconds of the tests of each file."""
    totals: Counter[str] = Counter()
    for test, duration in seconds.items():
        totals[test.partition("::")[0]] += duration
    return totals


def is_quick(file: str, seconds: Mapping[str, float]) -> bool:
    """Return whether the tests of a file are quick in all; they share the set-up of the first one."""
    return sum_by_file(seconds)[file] <= QUICK_FILE_S


def order_tests(tests: Sequence[str], seconds: Mapping[str, float]) -> list[int]:
    """Order tests as indices: the files that take longest come first, so that none of them is alone at the end."""
    totals = sum_by_file(seconds)
    return sorted(range(len(tests)), key=lambda index: -totals[tests[index].partition("::")[0]])
