"""The date of a site: of its data, so that another build of the same site has the same."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timezone
from typing import Annotated

from ngbkit import validation
from ngbkit.validation import integer

VARIABLE = "SOURCE_DATE_EPOCH"
"""The environment variable that sets the date of reproducible builds, in seconds since the epoch."""

# A zip has dates from 1980 to 2107.
_Seconds = Annotated[int, integer(315532800, 4354819199)]


def find_date(times: Iterable[str]) -> datetime:
    """Find the date of a site: that of `SOURCE_DATE_EPOCH`, or of the latest of its datasets, or else today."""
    if text := os.environ.get(VARIABLE):
        seconds = validation.check(VARIABLE, _Seconds, int(text) if text.isdecimal() else text)
        return datetime.fromtimestamp(seconds, timezone.utc)
    today = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
    return find_latest(times) or today


def find_latest(times: Iterable[str]) -> datetime | None:
    """Find the latest date of datasets; None without any."""
    moments = []
    for text in times:
        # A dataset of another program may have any text, or none.
        with suppress(ValueError):
            time = datetime.fromisoformat(text)
            moments.append(time.astimezone(timezone.utc) if time.tzinfo else time.replace(tzinfo=timezone.utc))
    return max(moments, default=None)
