"""The change of each trial from one run to another, sorted, beside a line at no change."""

from __future__ import annotations

import math

import altair as alt
import pandas as pd

from ngbkit.device.timing.normal import LEVEL
from ngbkit.figures import captions, lines, marks
from ngbkit.metrics.comparison import NOT_CHECKED, NOT_CONCLUSIVE, SAME, Comparison
from ngbkit.user_text import format_value

_WIDTH, _ROW, _MOST_ROWS, _NAMES = 420, 18, 40, 360
_LETTERS = 100  # of a line below the title
# A change by a larger factor is drawn at the edge of the axis, and its tooltip has the number.
_WIDEST = 20.0
_GUIDE = "#888888"
# A colour and a shape: of Okabe and Ito's palette, light enough for dark pages.
_HIGHER, _LOWER, _NEITHER = ("#2E8BC0", "triangle-right"), ("#D55E00", "triangle-left"), ("#8A8A8A", "circle")
_LOOKS = {
    **dict.fromkeys(("faster", "higher"), _HIGHER),
    **dict.fromkeys(("slower", "lower"), _LOWER),
    **dict.fromkeys((NOT_CONCLUSIVE, NOT_CHECKED, SAME), _NEITHER),
}


def changes(comparison: Comparison) -> alt.LayerChart:
    """The metric of every trial in the second run over that in the first, with its interval, the largest gain above.

    A trial that is surely higher has a blue triangle to the right, one that is surely lower an orange one to the left,
    and any other a hollow circle. Beyond 40 trials, the largest changes are drawn.

    Parameters
    ----------
    comparison
        The result of ``ds.ngb.compare(other)``.
    """
    frame, hidden = _select_rows(comparison)
    ends = _find_ends(frame)
    frame = frame.assign(**{name: frame[name].clip(*ends) for name in ("change", "change_low", "change_high")})
    scale = alt.Scale(type="log", nice=False, domain=ends)
    axis = alt.Axis(values=_list_ticks(*ends), labelExpr="'×' + " + f"({lines.NUMBER})", grid=False)
    first, second = comparison.runs.names
    title = f"{comparison.metric} of {second} over {first}; right of the line {second} is {comparison.words[0]}"
    x = alt.X("change:Q", title=title, scale=scale, axis=axis)
    names = frame["trial"].tolist()
    y = alt.Y("trial:N", title=None, sort=names, axis=marks.build_name_axis(names, _NAMES))
    verdicts = [verdict for verdict in _LOOKS if verdict in set(frame["verdict"])]
    looks = [[_LOOKS[verdict][index] for verdict in verdicts] for index in range(2)]
    colour = alt.Color("verdict:N", title=None, scale=alt.Scale(domain=verdicts, range=looks[0]))
    shape = alt.Shape("verdict:N", title=None, scale=alt.Scale(domain=verdicts, range=looks[1]))
    base = alt.Chart().encode(y=y, color=colour)
    is_sure = alt.condition(alt.FieldOneOfPredicate("verdict", list(comparison.words)), alt.value(1), alt.value(0.15))
    columns = {"before": first, "after": second, "ratio": "ratio", "verdict": "verdict"}
    tooltip = [alt.Tooltip("trial:N"), *(alt.Tooltip(f"{column}:N", title=name) for column, name in columns.items())]
    chart: alt.LayerChart = alt.layer(  # type: ignore[assignment]  # of charts without facets
        alt.Chart(alt.InlineData(values=[{"change": 1}])).mark_rule(color=_GUIDE, strokeDash=[4, 4]).encode(x=x),
        base.mark_rule(strokeWidth=2).encode(x=alt.X("change_low:Q", scale=scale), x2="change_high:Q"),
        base.mark_point(size=70, opacity=1).encode(x=x, shape=shape, fill=colour, fillOpacity=is_sure, tooltip=tooltip),
        data=marks.inline(frame),
        width=_WIDTH,
        height=alt.Step(_ROW),
    )
    remarks = [
        f"bars: {100 * LEVEL:g} % intervals of the ratio; dashed: no change",
        *([f"{hidden} more trials, which changed less, are not drawn"] if hidden else []),
        str(comparison),
        *comparison.list_notes(),
    ]
    return lines.finish(chart, captions.build_heading(comparison.title, remarks, _LETTERS))


def _select_rows(comparison: Comparison) -> tuple[pd.DataFrame, int]:
    """Select the trials to draw, the largest gain first, and count the others."""
    table, trials = comparison.to_table(), comparison.trials
    texts = {"before": table.columns[-4], "after": table.columns[-3], "ratio": "ratio", "verdict": "verdict"}
    frame = pd.DataFrame({column: table[name].map(str) for column, name in texts.items()})
    frame = frame.join(trials[["change", "change_low", "change_high"]]).assign(trial=_name_trials(comparison, table))
    frame = frame.fillna({"change_low": frame["change"], "change_high": frame["change"]})
    frame = frame[frame["change"] > 0].sort_values("change", ascending=False, kind="stable")
    if len(frame) <= _MOST_ROWS:
        return frame, 0
    sizes = frame["change"].map(math.log).abs().where(frame["verdict"].isin(comparison.words), -1)
    return frame[sizes.rank(method="first", ascending=False) <= _MOST_ROWS], len(frame) - _MOST_ROWS


def _name_trials(comparison: Comparison, table: pd.DataFrame) -> list[str]:
    """Name each trial by the labels in which trials differ: ``model, batch 8, openvino``."""
    names = [name for name in comparison.list_labels() if table[name].nunique(dropna=False) > 1] or ["compiler"]
    usual = {"workload": "", "compiler": "", "device": "on ", "batch_size": "batch "}
    return [
        ", ".join(
            f"{usual.get(name, f'{name} ')}{format_value(value)}"
            for name, value in zip(names, row, strict=True)
            if value == value
        )
        for row in table[names].itertuples(index=False)
    ]


def _find_ends(frame: pd.DataFrame) -> tuple[float, float]:
    """Find the ends of the axis: around all intervals and 1, but no further than `_WIDEST` from the changes."""
    changes = [1.0, *frame["change"]]
    low, high = min([1.0, *frame["change_low"]]), max([1.0, *frame["change_high"]])
    low, high = max(low, min(changes) / _WIDEST), min(high, max(changes) * _WIDEST)
    room = max((high / low) ** 0.05, 1.02)
    return low / room, high * room


def _list_ticks(low: float, high: float) -> list[float]:
    """List the ticks of a logarithmic axis, 1 among them, as far apart as its length asks for."""
    steps = ((1.02, 0.01), (1.1, 0.02), (1.25, 0.05), (1.6, 0.1), (3.0, 0.25), (6.0, 0.5))
    step = next((step for length, step in steps if high / low <= length), None)
    if step is None:
        ticks = [digit * 10.0**power for power in range(-6, 7) for digit in (1, 2, 5)]
    else:
        ticks = [round(1 + step * index, 6) for index in range(-100, 201)]
    return [tick for tick in ticks if low <= tick <= high]
