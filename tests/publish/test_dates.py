"""A site has the date of its data, or the one that its author sets."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from ngbkit.errors import UsageError
from ngbkit.publish.manifest import DATE_VARIABLE, find_date

TIMES = ["2026-01-02T03:04:05+00:00", "2026-01-02T03:04:06+01:00", "", "some day"]


def test_the_latest_measurement_dates_a_site(monkeypatch: pytest.MonkeyPatch) -> None:
    """The date is that of the latest measurement, in UTC, and without any that of the day of the build."""
    monkeypatch.delenv(DATE_VARIABLE, raising=False)

    assert datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc) == find_date(TIMES)
    assert (0, 0, 0) == (find_date([]).hour, find_date([]).minute, find_date([]).second)


def test_an_author_sets_the_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """`SOURCE_DATE_EPOCH` comes first, and an invalid one is refused."""
    monkeypatch.setenv(DATE_VARIABLE, "1700000000")
    date = find_date(TIMES)
    monkeypatch.setenv(DATE_VARIABLE, "tomorrow")

    assert datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc) == date
    with pytest.raises(UsageError, match="invalid SOURCE_DATE_EPOCH: got 'tomorrow'"):
        find_date(TIMES)
