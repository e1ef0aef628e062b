"""How altair's charts are shown in a notebook, without a network: as a specification, with a picture beside it.

JupyterLab 4.6 draws Vega-Lite by itself, under the name of version 5; altair's own renderer would fetch scripts from
elsewhere. A viewer that draws none, and a page that a notebook is turned into, have the picture.
"""

from __future__ import annotations

import base64
import json
import math
import re
from html import escape
from typing import Any

from ngbkit.figures.pictures import converter
from ngbkit.figures.slimming import slim

MIME = "application/vnd.vegalite.v5+json"
"""What JupyterLab 4.6 calls a Vega-Lite chart, of any version."""

MOST_SVG_BYTES = 300_000
"""A picture with more marks than this is made of dots."""

# A specification with more rows than fit into this has too many marks for an SVG, which need not be made to be seen so.
_DENSE_BYTES = 400_000

_SVG, _DOTS = "image/svg+xml", "image/jpeg"
# Of the dots: fine, unless the picture is a large one.
_SCALE, _MOST_DOTS, _QUALITY = 2, 3e6, 85


def mimebundle(spec: dict[str, Any]) -> dict[str, Any]:
    """A chart as a notebook keeps it: the specification, an SVG of it (a JPEG of one with many marks), and its title.

    Parameters
    ----------
    spec
        Of Vega-Lite.

    Raises
    ------
    MissingDependencyError
        vl-convert is not installed.
    """
    kind, picture = _picture(spec)
    return {MIME: spec, "text/plain": _title(spec), kind: picture}


def to_html(spec: dict[str, Any]) -> str:
    """The picture alone, as an element of a page, with the chart's title for who reads it aloud.

    Raises
    ------
    MissingDependencyError
        vl-convert is not installed.
    """
    kind, picture = _picture(spec)
    if kind == _DOTS:
        return f'<img alt="{escape(_title(spec), quote=True)}" src="data:{kind};base64,{picture}">'
    return picture


def _picture(spec: dict[str, Any]) -> tuple[str, str]:
    """The MIME type, and the picture."""
    convert = converter()
    if len(json.dumps(spec)) > _DENSE_BYTES:
        return _DOTS, base64.b64encode(convert.vegalite_to_jpeg(spec, scale=1, quality=_QUALITY)).decode()
    picture = slim(str(convert.vegalite_to_svg(spec)), _title(spec))
    if len(picture) <= MOST_SVG_BYTES:
        return _SVG, picture
    # A whole number keeps the edges of cells sharp, and with them the file small.
    scale = max(1, min(_SCALE, int(math.sqrt(_MOST_DOTS / _area(picture)))))
    return _DOTS, base64.b64encode(convert.svg_to_jpeg(picture, scale=scale, quality=_QUALITY)).decode()


def _area(picture: str) -> float:
    """The pixels of an SVG."""
    found = [re.search(rf'<svg[^>]*\s{name}="([\d.]+)', picture) for name in ("width", "height")]
    width, height = (float(one[1]) if one else 1000.0 for one in found)
    return max(1.0, width * height)


def _title(spec: dict[str, Any]) -> str:
    title = spec.get("title") or "a chart"
    text = title if isinstance(title, str) else title.get("text", "")
    return text if isinstance(text, str) else " ".join(text)
