"""``--estimate``: the duration and the likely results of a sweep, in the same words in a shell and in a notebook."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

from ngbkit.commands import listing
from ngbkit.commands.listing import Answer, Row
from ngbkit.sweep.json_values import to_json_value

if TYPE_CHECKING:
    from ngbkit.predictor.forecast import Estimate

# From the largest: the first unit of which a time is at least one.
_UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


def answer_estimate(estimate: Estimate) -> Answer:
    """Report the duration of a sweep, and the likely fastest compiler of each of its groups."""
    best = estimate.list_best()
    return Answer(
        json=to_json_value({"seconds": estimate.seconds, "best": best}),
        rows=[_describe(row) for row in best],
        empty="No earlier run, nor a predictor, predicts the results.",
    )


def to_text(estimate: Estimate) -> str:
    """Render an estimate as text."""
    return f"{estimate}\n{answer_estimate(estimate).to_text()}"


def to_html(estimate: Estimate) -> str:
    """Render an estimate as HTML."""
    answer = answer_estimate(estimate)
    return f"<p>{escape(str(estimate))}</p>{listing.to_html(answer.rows, answer.empty)}"


def format_time(seconds: float, low: float | None, high: float | None) -> str:
    """Format a short time with its interval, in a unit of which it is at least one.

    >>> format_time(0.12863036474046108, 0.1, 0.16)
    '129 ± 30 ms'
    """
    from ngbkit.metrics.estimate import Estimate as Number

    unit = next((unit for unit, size in _UNITS.items() if seconds >= size), "µs")
    lower, upper = (math.nan if end is None else end / _UNITS[unit] for end in (low, high))
    return f"{Number(seconds / _UNITS[unit], lower, upper)} {unit}"


def _describe(row: dict[str, Any]) -> Row:
    labels = {name: value for name, value in row.items() if name not in _RESULTS}
    return {
        **labels,
        "likely fastest": row["compiler"],
        "expected latency": format_time(row["latency"], row["low"], row["high"]),
        "lead": "" if row["lead"] is None else f"{row['lead']:.2f}",
    }


_RESULTS = ("compiler", "latency", "low", "high", "measured", "lead")
