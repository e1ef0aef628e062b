"""``--estimate``: the duration and the likely results of a sweep, in the same words in a shell and in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from ngbkit.commands import listing
from ngbkit.commands.listing import Answer, Row
from ngbkit.sweep.json_values import to_json_value

if TYPE_CHECKING:
    from ngbkit.predictor.forecast import Estimate


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


def _describe(row: dict[str, Any]) -> Row:
    from ngbkit.metrics.estimate import format_time

    labels = {name: value for name, value in row.items() if name not in _RESULTS}
    return {
        **labels,
        "likely fastest": row["compiler"],
        "expected latency": format_time(row["latency"], row["low"], row["high"]),
        "lead": "" if row["lead"] is None else f"{row['lead']:.2f}",
    }


_RESULTS = ("compiler", "latency", "low", "high", "measured", "lead", "settled")
