"""The marks of every figure: embedded rows, one colour per compiler, one shape per failure status."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import altair as alt
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from ngbkit.figures import theme
from ngbkit.sweep.records import OPEN

REASON_COLOUR = theme.adapt("#B3261E", contrast=4.6)
"""The colour of the text that explains a missing value."""

# Between the intervals of two lines at one x, and of the first and the last, in pixels.
_STEP, _SPREAD = 3.0, 16.0

_DIGITS = "%.6g"

TITLE: dict[str, Any] = {"fontSize": 12, "fontWeight": "bold", "color": theme.TITLE}
"""The style of the title of a panel."""

TITLE_LIFT = 9
"""The distance of the title from its panel, in pixels: above half of a label of the axis."""

_LINE = TITLE["fontSize"] + 2
LETTER = 6.2
"""The mean width of a letter of a label, in pixels."""

# The mean width of a bold letter over the size of its font, and the smallest size of a title.
_BOLD, _LEAST_TITLE = 0.63, 9.0

# Between a name and its panel, in pixels; and how much wider a name is in the widest of the usual fonts.
_LABEL_GAP, _WIDER = 4, 1.2

# The height of an entry of a legend, and the width of its symbol with the space around, in pixels.
_ENTRY, _SYMBOL = 16, 40


def inline(frame: pd.DataFrame) -> alt.InlineData:
    """Embed the rows of a frame in the figure as CSV, a third of the size of JSON.

    NaN becomes null, so that a line breaks there. Texts stay texts, also those that look like numbers; booleans become
    0 or 1.
    """
    plain = frame.astype({name: int for name, column in frame.items() if is_bool_dtype(column)})
    text = plain.to_csv(index=False, float_format=_DIGITS, lineterminator="\n")
    kinds = {str(name): "number" if is_numeric_dtype(column) else "string" for name, column in plain.items()}
    return alt.InlineData(values=text, format=alt.CsvDataFormat(type="csv", parse=kinds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The encodings that distinguish the lines and the failure statuses of a figure."""

    labels: list[str]  # of the lines, in the order of the legend
    statuses: Sequence[str]  # of trials without a result
    series: str = "compiler"  # a line per "compiler" or per "network"

    @classmethod
    def of(cls, frame: pd.DataFrame, series: str = "compiler") -> Look:
        """The look of the rows of a figure, with the columns `series` and ``status``."""
        statuses = set(frame["status"])
        shapes = [name for name in theme.STATUS_SHAPES if name in statuses]
        return cls(labels=list(dict.fromkeys(frame[series])), statuses=shapes, series=series)

    def encode_colour(
        self, *, symbol: str = "stroke", area: tuple[float, float] | None = None, **options: Any
    ) -> alt.Color:
        """Encode one colour per line; the legend shows a stroke, or another `symbol`.

        A legend that is higher than the panels, whose width and height are `area`, is below them in columns.
        """
        import altair as alt

        assign = theme.assign_colours if self.series == "compiler" else theme.assign_network_colours
        scale = alt.Scale(domain=self.labels, range=list(map(theme.adapt, assign(self.labels).values())))
        legend = alt.Legend(symbolType=symbol, symbolSize=90, symbolOpacity=1)
        if symbol == "stroke":
            legend = alt.Legend(symbolType=symbol, symbolStrokeWidth=3, symbolSize=200, symbolOpacity=1)
        if area is not None and _ENTRY * (len(self.labels) + 1) > area[1]:
            longest = _SYMBOL + LETTER * max(map(len, self.labels))
            legend.orient, legend.columns = "bottom", max(1, int(area[0] / longest))
        return alt.Color(f"{self.series}:N", scale=scale, title=self.series, **{"legend": legend, **options})

    def dodge(self) -> alt.ExprRef:
        """Shift the marks of each line by its own number of pixels, so that intervals at one x stand side by side."""
        import altair as alt

        step = min(_STEP, _SPREAD / max(1, len(self.labels) - 1))
        middle = (len(self.labels) - 1) / 2
        return alt.ExprRef(f"{step:.2g} * (indexof({json.dumps(self.labels)}, datum.{self.series}) - {middle})")

    def encode_dash(self) -> alt.StrokeDash:
        """Encode one dash per set of options of a compiler; for networks, a new dash when their colours repeat."""
        import altair as alt

        assign = theme.assign_dashes if self.series == "compiler" else theme.assign_network_dashes
        scale = alt.Scale(domain=self.labels, range=list(assign(self.labels).values()))
        return alt.StrokeDash(f"{self.series}:N", scale=scale, title=self.series)

    def encode_shape(self) -> alt.Shape:
        """Encode one shape per failure status."""
        import altair as alt

        scale = alt.Scale(domain=self.statuses, range=[theme.STATUS_SHAPES[name] for name in self.statuses])
        return alt.Shape("status:N", scale=scale, title="no result")


def draw_points(
    base: alt.Chart, frame: pd.DataFrame, *, size: int, opacity: float = 1.0, **options: Any
) -> list[alt.Chart]:
    """Draw a mark for each row, a circle unless `base` encodes a shape, hollow where it is not ``conclusive``."""
    if "conclusive" not in frame or frame["conclusive"].all():
        return [base.mark_point(filled=True, size=size, opacity=opacity, **options)]
    hollow = base.transform_filter("!datum.conclusive").mark_point(
        size=size, opacity=1, fill=theme.BACKGROUND, **options
    )
    filled = base.transform_filter("datum.conclusive").mark_point(filled=True, size=size, opacity=opacity, **options)
    return [filled, hollow]


def build_number_tooltip(frame: pd.DataFrame, titles: Mapping[str, str]) -> list[alt.Tooltip]:
    """Build the lines of a tooltip for numbers, by column with their titles; none for a column without any number."""
    names = [name for name in titles if frame[name].notna().any()]
    return [alt.Tooltip(f"{name}:Q", title=titles[name], format=".4~g") for name in names]


def draw_reasons(
    missing: alt.Chart, frame: pd.DataFrame, text: str, labels: Sequence[str], **options: Any
) -> alt.Chart:
    """Draw a text for each row without a value, red unless it is only pending; its tooltip explains an error."""
    colour = alt.condition(
        f"indexof({json.dumps(OPEN)}, datum.status) >= 0",
        alt.value(cast("Any", theme.SUBTITLE)),
        alt.value(cast("Any", REASON_COLOUR)),
    )
    explained = ["error:N"] if (frame["error"].fillna("") != "").any() else []
    reason = missing.mark_text(align="left", fontSize=10, **options)
    return cast("alt.Chart", reason.encode(color=colour, text=f"{text}:N", tooltip=[*labels, *explained]))


def encode_networks(frame: pd.DataFrame) -> tuple[alt.Shape | alt.ShapeValue, list[str]]:
    """Encode one shape per network, if there are enough shapes; otherwise a remark points to the tooltips."""
    networks = list(dict.fromkeys(frame["network"]))
    if len(networks) > len(theme.NETWORK_SHAPES):
        return alt.ShapeValue("circle"), [f"{len(networks)} networks: the tooltip of a mark names its own"]
    scale = alt.Scale(domain=networks, range=list(theme.NETWORK_SHAPES[: len(networks)]))
    return alt.Shape("network:N", scale=scale, title="network"), []


def draw_titles(panel: str, titles: Iterable[str], width: float, *, lines: int = 1) -> alt.Chart:
    """Draw the title of each panel above its left edge, with so many `lines`.

    Titles that would reach beyond `width` in the widest of the usual fonts are smaller, or cut off if they are very
    long: the next panel has its own. All titles of a row stand on one line; a header of Vega-Lite would rise with the
    highest label of its panel's axis.
    """
    longest = max([1, *(len(line) for title in titles for line in title.split("\n"))])
    size = min(float(TITLE["fontSize"]), width / (_BOLD * longest))
    fitting = {"fontSize": max(_LEAST_TITLE, size), "limit": width if size >= _LEAST_TITLE else width / _WIDER}
    title = alt.Chart().transform_aggregate(groupby=[panel])
    title = title.mark_text(align="left", baseline="bottom", lineBreak="\n", **{**TITLE, **fitting})
    title = title.encode(
        x=alt.value(0), y=alt.value(-TITLE_LIFT - (lines - 1) * _LINE), text=f"{panel}:N", tooltip=f"{panel}:N"
    )
    return cast("alt.Chart", title)


def drop_conclusive(frame: pd.DataFrame) -> pd.DataFrame:
    """Drop the column ``conclusive`` where all rows are, since `draw_points` then has no use for it."""
    return frame.drop(columns="conclusive") if frame["conclusive"].all() else frame


def build_name_axis(names: Iterable[str], limit: float, **options: Any) -> alt.Axis:
    """Build the axis of names at the left of a panel, each of `limit` pixels at most.

    It leaves the space that the names take in the widest of the usual fonts: a stored picture may be displayed in
    another font than the one its text was measured in, which would cut off their beginnings.
    """
    widest = LETTER * max(map(len, names), default=0)
    return alt.Axis(
        **{"labelLimit": limit, "minExtent": min(widest, _WIDER * limit) + _LABEL_GAP, "ticks": False, **options}
    )
