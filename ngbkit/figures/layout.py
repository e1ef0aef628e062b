"""Lays a figure out for the column of a paper: fewer panels a row, the legend below, wrapped titles."""

from __future__ import annotations

import copy
import math
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any

from ngbkit import validation
from ngbkit.errors import UsageError
from ngbkit.figures import pictures
from ngbkit.validation import number

PX_PER_MM = pictures.PX_PER_INCH / 25.4
"""The pixels a millimetre of a figure as drawn."""

LEAST_PT = 5.0
"""The smallest text that journals print, in points; a figure's is 11 px, or 8.25 points."""

_EASY_PT, _TEXT_PX, _PT_PER_PX = 6.5, 11, 0.75
# The mean widths of a letter of the title and of the subtitle, and the width of an entry of a legend, in pixels.
_TITLE_PX, _SUBTITLE_PX, _ENTRY_PX = 8.5, 5.6, 130

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
    """Lay a specification out such that its text is readable at a width in millimetres.

    A figure that is too wide has fewer panels a row, its legend below, and shorter lines of its title.

    Raises
    ------
    UsageError
        The text would be smaller than `LEAST_PT` even so.
    """
    best, most = spec, compute_points(spec, width)
    for candidate in _list_layouts(spec, width):
        if most >= _EASY_PT:
            break
        points = compute_points(candidate, width)
        if points > most:
            best, most = candidate, points
    if most < LEAST_PT:
        raise UsageError(
            f"invalid width={width:g}: the text of the figure would be {most:.1f} points high, and journals print "
            f"{LEAST_PT:g} or more. Use a width >= {math.ceil(width * LEAST_PT / most)} mm, or select fewer trials."
        )
    return best


def compute_points(spec: dict[str, Any], width: float) -> float:
    """The height of the text of a figure in points, if the figure is so many millimetres wide."""
    svg = str(pictures.load_converter().vegalite_to_svg(spec))
    return _TEXT_PX * _PT_PER_PX * width * PX_PER_MM / pictures.measure(svg)[0]


def _list_layouts(spec: dict[str, Any], width: float) -> Iterator[dict[str, Any]]:
    """The specification with its legend below, and ever fewer columns."""
    px = width * PX_PER_MM * _TEXT_PX * _PT_PER_PX / _EASY_PT
    for columns in range(int(spec.get("columns", 1)), 0, -1):
        changed = copy.deepcopy(spec)
        if "columns" in spec:
            changed["columns"] = columns
        legend = changed.setdefault("config", {}).setdefault("legend", {})
        legend.update(orient="bottom", columns=max(1, int(px / _ENTRY_PX)))
        title = changed.get("title")
        if isinstance(title, dict):
            title["text"] = textwrap.wrap(pictures.get_title(spec), int(px / _TITLE_PX))
            lines = title.get("subtitle") or []
            lines = [lines] if isinstance(lines, str) else lines
            title["subtitle"] = [part for line in lines for part in textwrap.wrap(line, int(px / _SUBTITLE_PX))]
        yield changed
