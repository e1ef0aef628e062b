"""A number with its interval, printed with as many digits as the interval supports; times with their unit."""

from __future__ import annotations

import math

from ngbkit.user_text import choose_time_unit

INCONCLUSIVE, UNBOUNDED = "?", "~"
"""Marks of a number that is not conclusive, behind it, and of one without an interval, before it."""

# A half width whose leading digits are below 3.55 has two digits, as the Particle Data Group rounds; others have one.
_TWO_DIGITS = 3.55
# The sides of an interval that differ by more than this factor are both printed.
_SKEWED = 1.5
_MOST_DIGITS = 6


class Estimate(float):
    """A number with the ends of its interval, NaN where there is none, and whether it is conclusive.

    It is conclusive if enough rounds behind it were uncontended and outputs were checked: see
    `ngbkit.dataset.contention.conclusive`.

    >>> str(Estimate(1.7149, 1.5604, 1.8711))
    '1.71 ± 0.16'
    >>> str(Estimate(3.99, 2.66, 6.06, conclusive=False))
    '4.0 (2.7 to 6.1)?'
    >>> str(Estimate(12.3, 9.8, math.inf))
    '12.3 (9.8 to inf)'
    >>> str(Estimate(1.7149))
    '~1.7'
    """

    low: float
    high: float
    conclusive: bool

    def __new__(cls, value: float, low: float = math.nan, high: float = math.nan, conclusive: bool = True) -> Estimate:
        estimate = super().__new__(cls, value)
        estimate.low, estimate.high, estimate.conclusive = float(low), float(high), bool(conclusive)
        return estimate

    @property
    def bounded(self) -> bool:
        """True if it has an interval, whose high end may be infinite."""
        return math.isfinite(self.low) and not math.isnan(self.high)

    def __str__(self) -> str:
        if not math.isfinite(self):
            return "–" if math.isnan(self) else f"{float(self):g}"
        mark = "" if self.conclusive else INCONCLUSIVE
        if not self.bounded:
            return f"{UNBOUNDED}{_round(float(self), 1 - _find_exponent(float(self)))}{mark}"
        if math.isinf(self.high):
            decimals = _count_decimals(float(self), max(self - self.low, abs(self) / 10))
            return f"{_round(float(self), decimals)} ({_round(self.low, decimals)} to inf){mark}"
        half = (self.high - self.low) / 2
        if half <= 0:
            return f"{_round(float(self), _count_decimals(float(self), 0.0))}{mark}"
        # The first digit before the point stays, even where the interval does not support it: 300, and not 0.
        decimals = max(_count_decimals(float(self), half), min(0, -_find_exponent(float(self))))
        value, low, high = (_round(number, decimals) for number in (float(self), self.low, self.high))
        below, above = self - self.low, self.high - self
        # A ratio that is surely above or below 1 is printed as such.
        hides_one = (self.low > 1, self.high < 1) != (self - half > 1, self + half < 1)
        if hides_one or max(below, above) > _SKEWED * min(below, above):
            return f"{value} ({low} to {high}){mark}"
        return f"{value} ± {_round(half, decimals)}{mark}"

    def __repr__(self) -> str:
        return float.__repr__(self)


class Uncertain(float):
    """A number without an interval of a trial that was not checked: tables mark it."""


def format_time(seconds: float, low: float | None = None, high: float | None = None, *, conclusive: bool = True) -> str:
    """Format a short time with its interval, in a unit of which it is at least one.

    >>> format_time(0.12863036474046108, 0.1, 0.16)
    '129 ± 30 ms'
    """
    unit, size = choose_time_unit(seconds)
    lower, upper = (math.nan if end is None else end / size for end in (low, high))
    return f"{Estimate(seconds / size, lower, upper, conclusive)} {unit}"


def _count_decimals(value: float, half: float) -> int:
    """Count the decimals that a half width supports; negative where not even all digits before the point are."""
    most = _MOST_DIGITS - 1 - _find_exponent(value)
    if half <= 0:
        return 0 if value == int(value) else max(0, most - 2)
    exponent = _find_exponent(half)
    return min(most, (1 if half / 10**exponent < _TWO_DIGITS else 0) - exponent)


def _find_exponent(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value else 0


def _round(value: float, decimals: int) -> str:
    return f"{round(value, decimals) + 0.0:,.{max(decimals, 0)}f}"  # of -0.0 this makes 0.0
