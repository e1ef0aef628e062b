"""The normal distribution, as the estimates of every room use it."""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

LEVEL = 0.95
"""The level of the intervals in tables, figures and the stopping rule."""

MAD_SCALE = 1.4826
"""The standard deviation of normal values over their median absolute deviation."""


@lru_cache(maxsize=64)
def find_quantile(level: float) -> float:
    """Find how many standard deviations lie on either side of an interval of that level.

    >>> round(find_quantile(0.95), 2)
    1.96
    """
    return NormalDist().inv_cdf((1 + level) / 2)
