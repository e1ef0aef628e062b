"""Pairs of networks that change places: the paper's figure 1."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ngbkit import metrics
from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.figures import captions, lines, marks, provenance, rows

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

PAIRS = 9
"""Pairs of one figure, at most."""

_COLOURS = ("#0072B2", "#D55E00")
_WIDTH, _HEIGHT, _ROOM = 150, 130, 150


@provenance.traced
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
    import pandas as pd

    rates = rows.rows(data, rows.of_metric(metrics.throughput, ci), select)
    found = metrics.reversals(data, probability=probability, unlike="mask", untuned=untuned)
    trials = _Trials.of(rates, list(dict.fromkeys(name for node in nodes(data).values() for name in factor_dims(node))))
    chosen = _chosen(found, trials)
    if not chosen:
        raise MetricError(
            f"no two of these networks change places with a probability of at least {probability:g}. "
            "Lower `probability`, or compare more networks, compilers or devices."
        )
    frame = pd.DataFrame([one for row in chosen[:PAIRS] for one in _panel(row, trials)])
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trials:
    """The rows to draw, by what tells them apart.

    Parameters
    ----------
    factors
        The factors that the networks take.
    rows
        By workload, device, compiler, batch size and those factors.
    several
        Whether there is more than one device.
    """

    factors: list[str]
    rows: dict[tuple[Any, ...], dict[Any, Any]]
    several: bool

    @classmethod
    def of(cls, frame: pd.DataFrame, factors: list[str]) -> _Trials:
        empty = cls(factors=factors, rows={}, several=frame["device"].nunique() > 1)
        for row in frame.to_dict("records"):
            empty.rows[(row["workload"], row["device"], row["compiler"], *empty.place(row))] = row
        return empty

    def place(self, row: Mapping[Any, Any]) -> tuple[Any, ...]:
        """The batch size and the factors of a row; None for one that its network does not take."""
        return row["batch_size"], *(value if _is_known(value := row.get(name)) else None for name in self.factors)

    def corners(self, row: Mapping[Any, Any]) -> list[dict[Any, Any]]:
        """Both networks of a reversal in both of its columns, as far as they are drawn."""
        columns = [(row[f"device_{column}"], row[f"compiler_{column}"]) for _, column in _CORNERS]
        names = [row[f"workload_{side}"] for side, _ in _CORNERS]
        keys = [(name, *column, *self.place(row)) for name, column in zip(names, columns, strict=True)]
        return [self.rows[key] for key in keys if key in self.rows]


_CORNERS = tuple((side, column) for side in ("a", "b") for column in ("1", "2"))


def _is_known(value: Any) -> bool:
    return value is not None and value == value


def _chosen(found: pd.DataFrame, trials: _Trials) -> list[dict[Any, Any]]:
    """Of each pair of networks the reversal whose smaller lead is the largest; the largest of all first."""
    drawn = [dict(row) for row in found.to_dict("records") if len(trials.corners(row)) == len(_CORNERS)]
    best: dict[tuple[str, str], dict[Any, Any]] = {}
    for row in sorted(drawn, key=_lead, reverse=True):
        best.setdefault((row["workload_a"], row["workload_b"]), row)
    return list(best.values())


def _lead(row: Mapping[Any, Any]) -> float:
    return min(abs(math.log(row["ratio_1"])), abs(math.log(row["ratio_2"])))


def _panel(row: Mapping[Any, Any], trials: _Trials) -> Iterator[dict[str, Any]]:
    """A row each corner."""
    takes = [f"{name} {row[name]:g}" for name in trials.factors if _is_known(row.get(name))]
    sure = f", {row['probability']:.0%} sure" if _is_known(row["probability"]) else ""
    parts = [f"{row['workload_a']} / {row['workload_b']}", f"batch {row['batch_size']}", *takes]
    found = trials.corners(row)
    highest = max(found[1]["value"], found[3]["value"])
    for (side, column), trial in zip(_CORNERS, found, strict=True):
        place = f"{trial['compiler']} on {trial['device']}" if trials.several else trial["compiler"]
        yield {
            "panel": f"{', '.join(parts)}{sure}",
            "side": side,
            "network": trial["workload"],
            "column": place,
            **{name: trial[name] for name in ("value", "low", "high")},
            "name": ("above" if trial["value"] == highest else "below") if column == "2" else "",
        }
