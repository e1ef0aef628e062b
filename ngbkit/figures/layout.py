"""Lays a figure out for the column of a paper: text of 8 points, shared axes, the legend below, no title."""

from __future__ import annotations

import copy
import csv
import io
import math
from collections.abc import Iterator
from typing import Annotated, Any

from ngbkit import validation
from ngbkit.errors import UsageError
from ngbkit.figures import panels, pictures
from ngbkit.figures.converter import convert
from ngbkit.validation import number

PX_PER_MM = pictures.PX_PER_INCH / 25.4
"""The pixels a millimetre of a figure as drawn."""

MOST_MM = 230.0
"""The height of the largest figure, in millimetres: of a page without its caption."""

# A narrower panel shows no more than a tendency, in pixels; and the share of its width on a page.
_LEAST_PANEL, _LEAST_SHARE, _COMPACT_PANEL = 84.0, 0.35, 58.0
# Below this share of the width, names of trials leave most of a figure to its panels.
_NAMES = 0.45
_SYMBOL, _ROUNDS, _SLACK, _WIDE = 34.0, 4, 5.0, 0.58

_WIDTH = Annotated[
    float,
    number(
        10,
        2000,
        "millimetres from 10 to 2000, such as 88 for a column of a paper with two, and 180 for both",
    ),
]
_DPI = Annotated[float, number(36, 2400, "pixels an inch from 36 to 2400, such as 300 or 600")]


def check_width(width: float) -> float:
    """Check a width in millimetres."""
    millimetres: float = validation.check("width", _WIDTH, width)
    return millimetres


def check_dpi(dpi: float) -> float:
    """Check a number of pixels an inch."""
    pixels: float = validation.check("dpi", _DPI, dpi)
    return pixels


def fit(spec: dict[str, Any], width: float) -> dict[str, Any]:
    """Lay a specification out for a width in millimetres, such that its text is 8 points high at that width.

    A figure that is too wide has fewer panels side by side. Panels share the titles of their axes, and the labels of
    axes that are alike; legends are below. The title is left to the caption (`ngbkit.figures.latex`). UsageError: the
    panels would be too narrow, or the figure higher than a page.
    """
    px = width * PX_PER_MM
    plain = _style({name: value for name, value in spec.items() if name != "title"}, px)
    plain["description"] = pictures.get_title(spec)
    heights: list[float] = []
    for compact in (False, True):
        for arranged, columns in _list_arrangements(plain, px, compact):
            fitted = _fit_width(arranged, px, columns, compact)
            if fitted is not None:
                heights.append(fitted[1] / PX_PER_MM)
                if heights[-1] <= MOST_MM:
                    return fitted[0]
                break
    reason = f"the figure would be {min(heights):.0f} mm high" if heights else "its panels would be too narrow"
    raise UsageError(
        f"invalid width={width:g}: {reason} with text of 8 points; expected a figure that fits a page, which is "
        f"{MOST_MM:g} mm high. Select fewer trials, such as `batch_size=8`, or use a larger width."
    )


def _list_arrangements(spec: dict[str, Any], px: float, compact: bool) -> Iterator[tuple[dict[str, Any], int]]:
    """The arrangements of a figure that may fit a width, the one with the most panels side by side first."""
    least = 100 * _find_least_scale(spec, compact)
    fitting = int((px - panels.AXIS) / (panels.GAP + least))
    usual = panels.count_columns(spec)
    for columns in range(fitting if compact else min(fitting, usual), 0, -1):
        yield panels.arrange(spec, columns, px, spread=compact), columns


def _fit_width(spec: dict[str, Any], px: float, columns: int, compact: bool) -> tuple[dict[str, Any], float] | None:
    """Widen the panels of a specification to a width in pixels; return it with its height, or None if too narrow."""
    least, best = _find_least_scale(spec, compact), None
    scale = max(least, (px / columns - panels.AXIS) / 100)
    slope, previous = 100.0 * columns, None
    for _ in range(_ROUNDS):
        sized = panels.set_sizes(spec, scale, compact=compact)
        total, height = _measure(sized)
        if total <= px:
            sized["config"]["padding"] = {"left": 1, "top": 1, "bottom": 1, "right": 1 + px - total}
            best = (sized, height)
        if px - _SLACK < total <= px or (total > px and scale == least):
            break
        if previous is not None and previous[0] != scale:
            slope = (total - previous[1]) / (scale - previous[0])
        previous = (scale, total)
        scale = max(scale + (px - total - _SLACK / 2) / max(slope, 20.0), least)
    return best


def _measure(spec: dict[str, Any]) -> tuple[float, float]:
    """The width and the height of a figure in pixels."""
    return pictures.measure(convert("vegalite_to_svg", spec))


def _find_least_scale(spec: dict[str, Any], compact: bool) -> float:
    """Find the smallest scale of `ngbkit.figures.panels.set_sizes` at which panels and the texts of cells have room."""
    rows = _read_rows(spec)
    return max(_find_least(view, rows, compact) for view in panels.walk_views(spec))


def _find_least(view: dict[str, Any], rows: list[dict[str, str]], compact: bool) -> float:
    width = view.get("width")
    if not isinstance(width, dict):
        return (
            _COMPACT_PANEL
            if compact
            else max(_LEAST_PANEL, _LEAST_SHARE * (width if isinstance(width, (int, float)) else 0.0))
        ) / 100
    texts = [layer for layer in panels.walk_layers(view) if "field" in layer.get("encoding", {}).get("text", {})]
    fields = {layer["encoding"]["text"]["field"] for layer in texts}
    longest = max((len(row.get(field) or "") for row in rows for field in fields), default=0)
    return max(8.0, longest * _WIDE * panels.SMALL_PX + 4) / float(width["step"])


def _read_rows(spec: dict[str, Any]) -> list[dict[str, str]]:
    """The rows that a figure embeds as CSV (`ngbkit.figures.marks.inline`)."""
    texts = [values for part in panels.walk(spec) if isinstance(values := part.get("values"), str)]
    return [row for text in texts for row in csv.DictReader(io.StringIO(text))]


def _style(spec: dict[str, Any], px: float) -> dict[str, Any]:
    """Set the sizes of all texts, put legends below in columns that fit a width in pixels, and wrap long names."""
    styled = copy.deepcopy(spec)
    styled["config"] = _merge(styled.get("config", {}), _CONFIG)
    for part in filter(panels.is_titled, panels.walk(styled)):
        del part["title"]
    for part in panels.walk(
        {name: value for name, value in styled.items() if name not in ("config", "data", "datasets")}
    ):
        mark = part.get("mark")
        if isinstance(mark, dict) and mark.get("type") == "text":
            mark["fontSize"] = min(panels.PX, max(panels.SMALL_PX, mark.get("fontSize", panels.PX)))
        for channel, encoding in (part.get("encoding") or {}).items():
            if isinstance(encoding, dict):
                _style_encoding(channel, encoding, px)
    return styled


def _style_encoding(channel: str, encoding: dict[str, Any], px: float) -> None:
    legend, domain = encoding.get("legend", {}), (encoding.get("scale") or {}).get("domain")
    if channel in ("color", "fill", "shape", "strokeDash") and legend is not None and "field" in encoding:
        changed = {name: value for name, value in legend.items() if name not in ("orient", "columns")}
        if isinstance(domain, list) and encoding.get("type") == "nominal":
            longest = _SYMBOL + panels.LETTER * panels.PX * max((len(str(label)) for label in domain), default=0)
            fitting = max(1, int(px / longest))
            changed["columns"] = math.ceil(len(domain) / math.ceil(len(domain) / fitting)) if domain else 1
        encoding["legend"] = changed
    if channel in ("x", "y") and isinstance(encoding.get("axis", {}), dict) and "field" in encoding:
        axis = {name: value for name, value in encoding.get("axis", {}).items() if name != "minExtent"}
        names = encoding.get("sort")
        if channel == "y" and isinstance(names, list):
            axis["labelLimit"] = 0
            letters = int(_NAMES * px / (panels.LETTER * panels.PX))
            if max(map(len, map(str, names)), default=0) > letters:
                axis["labelExpr"] = _WRAP % letters
        encoding["axis"] = axis


# Breaks a label after a space, a comma or an underscore.
_WRAP = "split(replace(replace(datum.label, regexp('(.{1,%d})([ ,_]+|$)', 'g'), '$1$2\\n'), regexp('\\n$'), ''), '\\n')"


def _merge(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(config)
    for name, value in changes.items():
        merged[name] = _merge(merged.get(name) or {}, value) if isinstance(value, dict) else value
    return merged


_TEXT = {"labelFontSize": panels.PX, "titleFontSize": panels.PX}
_CONFIG: dict[str, Any] = {
    "padding": {"left": 1, "top": 1, "right": 1, "bottom": 1},
    "axis": {**_TEXT, "titlePadding": 4, "labelPadding": 2, "tickSize": 4},
    "axisY": {"minExtent": 0},
    "header": _TEXT,
    "legend": {
        **_TEXT,
        "orient": "bottom",
        "offset": 6,
        "padding": 0,
        "rowPadding": 1,
        "columnPadding": 10,
        "titlePadding": 3,
        "labelLimit": 0,
        "layout": {"bottom": {"anchor": "start", "direction": "vertical", "margin": 3}},
    },
    "title": {"fontSize": panels.PX, "subtitleFontSize": panels.PX, "offset": 4},
}
