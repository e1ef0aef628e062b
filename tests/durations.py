"""Recorded durations of tests: they order the tests, and divide them into short and long ones.

A test is long if it, or a fixture that it shares with others, has a record: it took `LONG_S` or more. ``make check``
runs the files whose tests are quick in all, ``make test`` the short tests and those marked as guards, ``make test-all``
all, which records them, as continuous integration does.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

RECORD = Path(__file__).with_name("durations.json")
#: The shortest duration of a long test, and the longest total of the tests of a quick file.
LONG_S, QUICK_FILE_S = 1.0, 2.0
#: The property of a report with the seconds of a fixture that several tests share.
PROPERTY = "shared fixture"


def load() -> dict[str, float]:
    """Load the seconds of each long test, of each long shared fixture, and of all short tests of a file."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def save(
    reports: Iterable[pytest.TestReport | pytest.CollectReport], available_s: float = math.inf, *, is_part: bool = False
) -> None:
    """Save the durations of the long tests of these reports, and of the short ones of a file, where they add up.

    Where the reports are a part of all, others keep their record.
    Tests that share cores take longer: their sum is scaled to `available_s`, the seconds of all cores. The report of a
    file that cannot be imported has no duration.
    """
    seconds: Counter[str] = Counter()
    fixtures: dict[str, float] = {}
    for report in reports:
        seconds[report.nodeid] += getattr(report, "duration", 0.0)
        if getattr(report, "when", "") == "setup":
            fixtures |= dict(value for name, value in report.user_properties if name == PROPERTY)
    share = min(1.0, available_s / max(sum(seconds.values()), LONG_S))
    short = sum_by_file({name: total for name, total in seconds.items() if share * total < LONG_S})
    measured = {name: round(share * total, 1) for name, total in (short | seconds | fixtures).items()}
    earlier = load() if is_part else {}
    # A part may have had some of the short tests of a file: the most that they were stays.
    measured |= {file: max(measured.get(file, 0.0), earlier[file]) for file in short.keys() & earlier.keys()}
    long = {name: total for name, total in (earlier | measured).items() if total >= LONG_S}
    RECORD.write_text(json.dumps(dict(sorted(long.items())), indent=1) + "\n")


def sum_by_file(seconds: Mapping[str, float]) -> Counter[str]:
    """Sum the seconds of the tests of each file."""
    totals: Counter[str] = Counter()
    for test, duration in seconds.items():
        totals[test.partition("::")[0]] += duration
    return totals


def is_quick(file: str, seconds: Mapping[str, float]) -> bool:
    """Return whether the tests of a file are quick in all; they share the set-up of the first one."""
    return sum_by_file(seconds)[file] <= QUICK_FILE_S


def is_short(item: pytest.Item, seconds: Mapping[str, float]) -> bool:
    """Return whether neither a test nor a fixture that it shares is long."""
    shared = getattr(item, "_fixtureinfo", None)
    names = [name_fixture(each[-1]) for each in shared.name2fixturedefs.values()] if shared else []
    return not any(name in seconds for name in (item.nodeid, *names))


def name_fixture(fixture: pytest.FixtureDef[object]) -> str:
    """Return the key of a fixture's record: no test has one colon."""
    return f"{fixture.baseid}:{fixture.argname}"


def order_tests(tests: Sequence[str], seconds: Mapping[str, float]) -> list[int]:
    """Order tests as indices: the files that take longest come first, so that none of them is alone at the end."""
    totals = sum_by_file(seconds)
    return sorted(range(len(tests)), key=lambda index: -totals[tests[index].partition("::")[0]])
