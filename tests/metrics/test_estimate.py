"""Numbers with their intervals, as text."""

from __future__ import annotations

import json
import math

import pytest

from ngbkit.metrics.estimate import Estimate


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(1.7149, 1.5604, 1.8711), "1.71 ± 0.16"),
        (Estimate(1.7149, 1.70, 1.73), "1.715 ± 0.015"),
        (Estimate(3.33, 2.8, 3.8), "3.3 ± 0.5"),
        (Estimate(1.1119, 1.004, 1.2559), "1.11 (1.00 to 1.26)"),  # 1.11 ± 0.13 would have 1 in it
        (Estimate(0.9, 0.78, 0.99), "0.90 (0.78 to 0.99)"),
        (Estimate(3.99, 2.66, 6.06), "4.0 (2.7 to 6.1)"),
        (Estimate(12345.6, 12000.0, 12700.0), "12,350 ± 350"),
        (Estimate(0.0123, 0.0121, 0.0125), "0.01230 ± 0.00020"),
        (Estimate(1.0, 1.0, 1.0), "1"),
        (Estimate(0.25, 0.25, 0.25), "0.2500"),
        (Estimate(1.7149), "~1.7"),
        (Estimate(2.84, 2.69, 2.97, conclusive=False), "2.84 ± 0.14?"),
        (Estimate(12.3, 9.8, math.inf), "12.3 (9.8 to inf)"),
        (Estimate(6954.0, 960.0, math.inf, conclusive=False), "7,000 (1,000 to inf)?"),
        (Estimate(-0.001, -0.04, 0.038), "0.00 ± 0.04"),
        (Estimate(252.0, 10.0, 14_000.0, conclusive=False), "300 (0 to 14,000)?"),
        (Estimate(math.nan), "–"),
        (Estimate(math.inf), "inf"),
    ],
)
def test_a_number_has_the_digits_that_its_interval_supports(estimate: Estimate, text: str) -> None:
    """Both sides of a skewed interval are printed; the marks say what is missing."""
    assert text == str(estimate)


def test_an_estimate_is_a_number() -> None:
    """An estimate computes, compares and becomes JSON as a number."""
    estimate = Estimate(1.5, 1.0, 2.0)

    assert 3.0 == 2 * estimate
    assert 1.5 == estimate
    assert "1.5" == json.dumps(estimate)
