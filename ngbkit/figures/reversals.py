"""Pairs of networks that change places: the paper's figure 1."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ngbkit import metrics
from ngbkit.errors import MetricError
from ngbkit.figures import captions, lines, marks, rows
from ngbkit.storage import Data

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

PAIRS = 9
"""Pairs of one figure, at most."""

_COLOURS = ("#0072B2", "#D55E00")
_WIDTH, _HEIGHT, _ROOM = 150, 130, 150


def reversals(
    data: Data, *, probability: float = 0.95, ci: float | None = 0.95, untuned: bool = False, **select: Any
) -> alt.FacetChart:
    """Pairs of networks whose order by throughput two columns do not agree on (the paper's figure 1).

    A panel a pair, with the two columns in which both leads are largest; a pair is drawn once.

    Parameters
    ----------
    data
        With at least two networks and two columns.
    probability
        Leave out reversals that are less probable; where the dataset has no samples, their probability is unknown, and
        they are drawn.
    ci
        As for `throughput`.
    untuned
        Whether columns count that were not tuned though their compiler is made for it.
    **select
        By dim, the label or labels that both sides of a pair are to have.

    Raises
    ------
    MetricError
        No pair is reversed with that probability.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    import altair as alt

    rates = rows.rows(data, rows.of_metric(metrics.throughput, ci), select)
    found = metrics.reversals(data, probability=probability, unlike="mask", untuned=untuned)
    chosen = _chosen(found, rates)
    if not chosen:
        raise MetricError(
            f"no two of these networks change places with a probability of at least {probability:g}. "
            "Lower `probability`, or compare more networks, compilers or devices."
        )
    frame = _frame(chosen[:PAIRS], rates)
    panels = list(dict.fromkeys(frame["panel"]))
    x = alt.X("column:N", title=None, sort=None, axis=alt.Axis(labelAngle=0, labelLimit=140, ticks=False))
    scale = alt.Scale(type="log", nice=False, padding=16)
    y = alt.Y("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=4, format=".3~s"))
    colours = alt.Scale(domain=["a", "b"], range=list(_COLOURS))
    base = alt.Chart().encode(x, alt.Color("side:N", scale=colours, legend=None))
    told = ["network:N", "column:N", "value:Q", "low:Q", "high:Q"]
    layers = [
        base.mark_line(strokeWidth=2.5).encode(y),
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.5, opacity=0.6)
        .encode(alt.Y("low:Q", scale=scale, title=None), alt.Y2("high:Q")),
        base.mark_circle(size=50, opacity=1).encode(y, tooltip=told),
    ]
    baselines: dict[str, Literal["bottom", "top"]] = {"above": "bottom", "below": "top"}
    for place, baseline in baselines.items():
        name = base.transform_filter(f"datum.name == '{place}'")
        layers.append(
            name.mark_text(align="left", dx=9, baseline=baseline, limit=_ROOM - 12).encode(y, text="network:N")
        )
    facet = alt.Facet("panel:N", title=None, sort=panels, header=lines.HEADER)
    chart = alt.layer(*layers, data=marks.inline(frame), width=_WIDTH, height=_HEIGHT)
    drawn: alt.FacetChart = chart.facet(facet=facet, columns=min(3, len(panels)), spacing={"column": _ROOM, "row": 24})
    drawn = drawn.resolve_scale(y="independent", x="independent")
    remarks = [f"{len(chosen) - PAIRS} more pairs are not drawn"] if len(chosen) > PAIRS else []
    title = captions.title("Networks that change places: throughput (samples/s)", data, rates, remarks)
    return lines.finished(drawn, title)


def _chosen(found: pd.DataFrame, rates: pd.DataFrame) -> list[dict[Any, Any]]:
    """Of each pair of networks the reversal whose smaller lead is the largest; the largest of all first."""
    kept = found[[_drawn(row, rates) for row in found.to_dict("records")]] if len(found) else found
    leads = np.minimum(*(abs(np.log(kept[name].to_numpy(float))) for name in ("ratio_1", "ratio_2")))
    best: dict[tuple[str, str], dict[Any, Any]] = {}
    for row, lead in sorted(zip(kept.to_dict("records"), leads.tolist(), strict=True), key=lambda one: -one[1]):
        best.setdefault((row["workload_a"], row["workload_b"]), {**dict(row), "lead": lead})
    return list(best.values())


def _drawn(row: dict[Any, Any], rates: pd.DataFrame) -> bool:
    """Whether all four trials are among the rows that were selected."""
    return len(_trials(row, rates)) == len(_CORNERS)


_CORNERS = tuple((side, column) for side in ("a", "b") for column in ("1", "2"))


def _trials(row: dict[Any, Any], rates: pd.DataFrame) -> list[dict[Any, Any]]:
    index = _index(rates)
    keys = [(row[f"workload_{side}"], *_column(row, column), *_place(row, rates)) for side, column in _CORNERS]
    return [index[key] for key in keys if key in index]


def _column(row: dict[Any, Any], column: str) -> tuple[str, str]:
    return row[f"device_{column}"], row[f"compiler_{column}"]


def _place(row: dict[Any, Any], rates: pd.DataFrame) -> tuple[Any, ...]:
    return tuple(_known(row.get(name)) for name in ["batch_size", *_factors(rates)])


def _factors(rates: pd.DataFrame) -> Collection[str]:
    return [name for name in rates.columns if name not in _NOT_FACTORS]


_NOT_FACTORS = {
    *("network", "workload", "device", "compiler", "batch_size"),
    *("value", "low", "high", "status", "error", "parameters"),
}


def _known(value: Any) -> Any:
    return None if value is None or value != value else value


def _index(rates: pd.DataFrame) -> dict[tuple[Any, ...], dict[Any, Any]]:
    """The rows by what tells them apart; made once a frame."""
    if "index" not in rates.attrs:
        rates.attrs["index"] = {
            (row["workload"], row["device"], row["compiler"], *_place(row, rates)): row
            for row in rates.to_dict("records")
        }
    found: dict[tuple[Any, ...], dict[Any, Any]] = rates.attrs["index"]
    return found


def _frame(chosen: list[dict[Any, Any]], rates: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([one for row in chosen for one in _corners(row, rates)])


def _corners(row: dict[Any, Any], rates: pd.DataFrame) -> Iterator[dict[str, Any]]:
    several = rates["device"].nunique() > 1
    takes = [f"{name} {row[name]:g}" for name in _factors(rates) if _known(row.get(name)) is not None]
    sure = f", {row['probability']:.0%} sure" if row["probability"] == row["probability"] else ""
    panel = f"{', '.join(['batch ' + str(row['batch_size']), *takes])}{sure}"
    found = _trials(row, rates)
    highest = max(found[1]["value"], found[3]["value"])
    for (side, column), trial in zip(_CORNERS, found, strict=True):
        device, compiler = _column(row, column)
        yield {
            "panel": f"{row['workload_a']} / {row['workload_b']}, {panel}",
            "side": side,
            "network": trial["workload"],
            "column": f"{compiler} on {device}" if several else compiler,
            "value": trial["value"],
            "low": trial["low"],
            "high": trial["high"],
            "name": ("above" if trial["value"] == highest else "below") if column == "2" else "",
        }
