"""What a user gave: kept as it is meant, or refused with what would have been valid."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from ngbkit.errors import UsageError
from ngbkit.sweep import validation


@pytest.mark.parametrize(("value", "share"), [(0.01, 0.01), ("1%", 0.01), (" 2.5 %", 0.025), ("0.05", 0.05)])
def test_a_precision_is_a_share_or_a_percentage(value: Any, share: float) -> None:
    """As a number, and as a user types it."""
    assert pytest.approx(share) == validation.precision(value)


@pytest.mark.parametrize("value", [0, 1, "100%", "1", "-1%", "tight", math.nan, True, None])
def test_what_is_no_precision_is_refused(value: Any) -> None:
    """One that nothing would reach, or that everything would, as much as a word; the error shows two that would do."""
    with pytest.raises(UsageError, match=r"expected a share between 0 and 1, such as 0\.01 or '1%'"):
        validation.precision(value)


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (validation.counts, 4, (4,)),
        (validation.counts, range(1, 3), (1, 2)),
        (validation.factor_values, 0.5, (0.5,)),
        (validation.factor_values, [1, 2.5], (1, 2.5)),
        (validation.factor_values, "plain", ("plain",)),
        (validation.seconds, 3, 3.0),
        (validation.flag, False, False),
    ],
)
def test_one_value_or_several_are_kept_alike(check: Callable[[str, Any], Any], value: Any, expected: Any) -> None:
    """A single one becomes a tuple of one."""
    assert expected == check("thing", value)


@pytest.mark.parametrize(
    ("check", "value", "text"),
    [
        (validation.counts, [], "invalid thing: got none"),
        (validation.counts, [1, 1], "invalid thing: got 1 twice"),
        (validation.count, True, "integer >= 1"),
        pytest.param(validation.count, 10**5000, "got a number of over 18 digits; expected 1 to", id="huge"),
        (validation.factor_values, [True], "one or more numbers, or one or more texts"),
        (validation.seconds, math.inf, "seconds above 0"),
        (validation.flag, 1, "True or False"),
    ],
)
def test_what_does_not_fit_is_refused(check: Callable[[str, Any], Any], value: Any, text: str) -> None:
    """By the name that the user knows it by."""
    with pytest.raises(UsageError, match=text):
        check("thing", value)
