"""Displays altair's charts without a network: as a specification, and as a picture for viewers that do not draw."""

from __future__ import annotations

import base64
import json
import math
from html import escape
from typing import Any

from ngbkit.figures.converter import RenderError, convert
from ngbkit.figures.pictures import get_title, measure
from ngbkit.figures.slimming import slim

MIME = "application/vnd.vegalite.v5+json"
"""The MIME type of charts of any version that JupyterLab 4.6 draws itself; altair's renderer would fetch scripts."""

MOST_SVG_BYTES = 300_000
"""A larger SVG is replaced by a JPEG."""

# The SVG of a larger specification would have too many marks, so that it is not even rendered.
_DENSE_BYTES = 400_000

_SVG, _JPEG = "image/svg+xml", "image/jpeg"
# The JPEG has two pixels per unit, unless that would be too many.
_SCALE, _MOST_PIXELS, _QUALITY = 2, 3e6, 85


def to_mimebundle(spec: dict[str, Any]) -> dict[str, Any]:
    """A Vega-Lite chart as a notebook stores it: the specification, a picture of it or why not, and its title."""
    try:
        kind, picture = _render(spec)
    except RenderError as error:
        return {MIME: spec, "text/plain": f"{get_title(spec)}: {error}"}
    return {MIME: spec, "text/plain": get_title(spec), kind: picture}


def to_html(spec: dict[str, Any]) -> str:
    """The picture alone, as an HTML element, with the chart's title for screen readers."""
    try:
        kind, picture = _render(spec)
    except RenderError as error:
        return f"<p>{escape(f'{get_title(spec)}: {error}')}</p>"
    if kind == _JPEG:
        return f'<img alt="{escape(get_title(spec), quote=True)}" src="data:{kind};base64,{picture}">'
    return picture


def _render(spec: dict[str, Any]) -> tuple[str, str]:
    """The MIME type and the content of the picture."""
    if len(json.dumps(spec)) > _DENSE_BYTES:
        dense = convert("vegalite_to_svg", spec)
        return _JPEG, base64.b64encode(convert("svg_to_jpeg", dense, scale=1, quality=_QUALITY)).decode()
    picture = slim(convert("vegalite_to_svg", spec), get_title(spec))
    if len(picture) <= MOST_SVG_BYTES:
        return _SVG, picture
    # An integer keeps the edges of cells sharp, and therefore the file small.
    scale = max(1, min(_SCALE, int(math.sqrt(_MOST_PIXELS / math.prod(measure(picture))))))
    return _JPEG, base64.b64encode(convert("svg_to_jpeg", picture, scale=scale, quality=_QUALITY)).decode()
