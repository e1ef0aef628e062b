"""Pairs of networks whose order reverses: the paper's figure 1."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt
import pandas as pd

from ngbkit import metrics
from ngbkit.dataset.long_form import list_factors
from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, marks, provenance, rows, theme
from ngbkit.metrics.rankings.reversals import reversals as list_reversals
from ngbkit.user_text import format_value

PAIRS = 9
"""The largest number of pairs of a figure."""

_COLOURS = tuple(theme.adapt(colour, contrast=4.6) for colour in ("#0072B2", "#B84E00"))  # of text too
_WIDTH, _HEIGHT, _LABEL_WIDTH, _AXIS = 150, 130, 150, 30


@provenance.traced
def reversals(
    data: Data, *, probability: float = 0.95, ci: float | None = 0.95, untuned: bool = False, **select: Any
) -> alt.FacetChart:
    """Pairs of networks whose order by throughput differs between two columns (the paper's figure 1).

    One panel per pair, with the two columns in which both leads are largest; without a pair, an empty panel that says
    so.

    Parameters
    ----------
    data
        With at least two networks and two columns.
    probability
        Exclude less probable reversals; without samples their probability is unknown, and all are drawn.
    ci
        As for `throughput`.
    untuned
        Whether to include columns that were not tuned, although their compiler supports tuning.
    **select
        By dim, the label or labels that both sides of a pair must have.

    Raises
    ------
    UnknownNameError, UsageError
        As for `throughput`.
    """
    rates = rows.build_rows(data, rows.wrap_metric(metrics.throughput, ci), select)
    reversed_pairs = list_reversals(data, probability=probability, unlike="mask", untuned=untuned)
    trials = _Trials.of(rates, list_factors(data))
    pairs = _select_pairs(reversed_pairs, trials)
    text = "Rank reversals: throughput (samples/s)"
    if not pairs:
        return lines.finish(_draw_none(probability), captions.build_title(text, data, rates))
    frame = pd.DataFrame([point for pair in pairs[:PAIRS] for point in _build_panel(pair, trials)])
    panels = list(dict.fromkeys(frame["panel"]))
    x = alt.X("column:N", title=None, sort=None, axis=alt.Axis(labelAngle=0, labelLimit=140, ticks=False))
    scale = alt.Scale(type="log", nice=False, padding=16)
    y = alt.Y("value:Q", title=None, scale=scale, axis=alt.Axis(tickCount=4, labelExpr=lines.NUMBER))
    colours = alt.Scale(domain=["a", "b"], range=list(_COLOURS))
    base = alt.Chart().encode(x, alt.Color("side:N", scale=colours, legend=None))
    numbers = {"value": "throughput (samples/s)", "low": "low", "high": "high"}
    tooltip: list[Any] = [
        "network:N",
        alt.Tooltip("column:N", title="compiler"),
        *marks.build_number_tooltip(frame, numbers),
    ]
    layers = [
        base.mark_line(strokeWidth=2.5).encode(y),
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.5, opacity=0.6)
        .encode(alt.Y("low:Q", scale=scale, title=None), alt.Y2("high:Q")),
        *(points.encode(y, tooltip=tooltip) for points in marks.draw_points(base, frame, size=50)),
    ]
    baselines: dict[str, Literal["bottom", "top"]] = {"above": "bottom", "below": "top"}
    for position, baseline in baselines.items():
        label = base.transform_filter(f"datum.name == '{position}'")
        label = label.mark_text(align="left", dx=9, baseline=baseline, limit=_LABEL_WIDTH - 12)
        layers.append(label.encode(y, text="network:N"))
    layers.append(marks.draw_titles("panel", panels, _WIDTH + _LABEL_WIDTH, lines=2))
    facet = alt.Facet("panel:N", title=None, sort=panels, header=lines.NO_HEADER)
    chart = alt.layer(*layers, data=marks.inline(marks.drop_conclusive(frame)), width=_WIDTH, height=_HEIGHT)
    spacing = {"column": _LABEL_WIDTH + _AXIS, "row": 74}
    grid: alt.FacetChart = chart.facet(facet=facet, columns=min(3, len(panels)), bounds="flush", spacing=spacing)
    grid = grid.resolve_scale(y="independent", x="independent")
    remarks = [*reversed_pairs.attrs["notes"]]
    remarks += [f"{len(pairs) - PAIRS} more pairs are not drawn"] if len(pairs) > PAIRS else []
    return lines.finish(grid, captions.build_title(text, data, rates, remarks, ci=ci))


def _draw_none(probability: float) -> alt.FacetChart:
    """An empty panel: that no order reverses is a result, and later cells run on."""
    reason = f"No two of these networks reverse their order with a probability of at least {probability:g}."
    frame = pd.DataFrame({"panel": ["no reversal"], "reason": [reason]})
    text = alt.Chart(marks.inline(frame), width=3 * _WIDTH, height=_HEIGHT // 3)
    text = text.mark_text(align="left", baseline="middle", fontSize=12, color=theme.TITLE)
    text = text.encode(alt.Text("reason:N"), x=alt.value(0), y=alt.value(_HEIGHT // 6))
    chart: alt.FacetChart = text.facet(facet=alt.Facet("panel:N", title=None, header=lines.HEADER), columns=1)
    return chart


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trials:
    """The rows to draw, indexed by their labels."""

    factors: list[str]
    rows: dict[tuple[Any, ...], dict[Any, Any]]  # by workload, device, compiler, batch size and factors
    with_device: bool  # whether there are several devices

    @classmethod
    def of(cls, frame: pd.DataFrame, factors: list[str]) -> _Trials:
        trials = cls(factors=factors, rows={}, with_device=frame["device"].nunique() > 1)
        for row in frame.to_dict("records"):
            trials.rows[(row["workload"], row["device"], row["compiler"], *trials.build_key(row))] = row
        return trials

    def build_key(self, row: Mapping[Any, Any]) -> tuple[Any, ...]:
        """The batch size and the factors of a row; None for a factor that its network does not take."""
        return row["batch_size"], *(value if _is_known(value := row.get(name)) else None for name in self.factors)

    def find_corners(self, pair: Mapping[Any, Any]) -> list[dict[Any, Any]]:
        """Both networks of a reversal in both of its columns, if they are selected."""
        columns = [(pair[f"device_{column}"], pair[f"compiler_{column}"]) for _, column in _CORNERS]
        names = [pair[f"workload_{side}"] for side, _ in _CORNERS]
        keys = [(name, *column, *self.build_key(pair)) for name, column in zip(names, columns, strict=True)]
        return [self.rows[key] for key in keys if key in self.rows]


_CORNERS = tuple((side, column) for side in ("a", "b") for column in ("1", "2"))


def _is_known(value: Any) -> bool:
    return value is not None and value == value


def _select_pairs(reversed_pairs: pd.DataFrame, trials: _Trials) -> list[dict[Any, Any]]:
    """For each pair of networks the reversal whose smaller lead is the largest, in descending order."""
    complete = [pair for pair in reversed_pairs.to_dict("records") if len(trials.find_corners(pair)) == len(_CORNERS)]
    best: dict[tuple[str, str], dict[Any, Any]] = {}
    for pair in sorted(complete, key=_compute_lead, reverse=True):
        best.setdefault((pair["workload_a"], pair["workload_b"]), pair)
    return list(best.values())


def _compute_lead(pair: Mapping[Any, Any]) -> float:
    return min(abs(math.log(pair["ratio_1"])), abs(math.log(pair["ratio_2"])))


def _build_panel(pair: Mapping[Any, Any], trials: _Trials) -> Iterator[dict[str, Any]]:
    """One row per corner."""
    factors = [f"{name} {format_value(pair[name])}" for name in trials.factors if _is_known(pair.get(name))]
    probability = [f"{pair['probability']:.0%} sure"] if _is_known(pair["probability"]) else []
    names = f"{pair['workload_a']} / {pair['workload_b']}"
    corners = trials.find_corners(pair)
    highest = max(corners[1]["value"], corners[3]["value"])
    for (side, column), trial in zip(_CORNERS, corners, strict=True):
        yield {
            "panel": names + "\n" + ", ".join([f"batch {pair['batch_size']}", *factors, *probability]),
            "side": side,
            "network": trial["workload"],
            "column": f"{trial['compiler']} on {trial['device']}" if trials.with_device else trial["compiler"],
            **{name: trial[name] for name in ("value", "low", "high", "conclusive")},
            "name": ("above" if trial["value"] == highest else "below") if column == "2" else "",
        }
