"""Renders a figure as SVG, PNG or PDF with embedded provenance, without a network."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterable, Mapping
from html import escape
from io import BytesIO
from typing import Any

from ngbkit.errors import UsageError, import_optional
from ngbkit.figures.converter import convert
from ngbkit.figures.provenance import KEY
from ngbkit.figures.slimming import slim

KINDS = (".svg", ".png", ".pdf")
"""The suffixes of the formats of a picture."""


PX_PER_INCH = 96
"""The pixels of CSS, in which figures are drawn, an inch."""

_MM_PER_INCH, _POINTS_PER_INCH = 25.4, 72
_DPI, _DPI_OF_PAPER = 192.0, 300.0
# The labels of axes as drawn, the smallest text that journals print, and the height of a page without its caption.
_LABEL_PX, _LEAST_POINTS, _MOST_MM = 11, 5.0, 230.0


def render(
    spec: dict[str, Any], kinds: Iterable[str] = KINDS, *, width: float | None = None, dpi: float | None = None
) -> dict[str, bytes]:
    """Render a figure as the content of a file of each kind, `width` millimetres wide.

    The provenance of the figure (`ngbkit.figures.provenance`) is embedded as JSON: in the element ``metadata`` of an
    SVG, the text ``ngbkit`` of a PNG, the metadata entry ``/ngbkit`` of a PDF. UsageError: it fits no page.
    """
    # usvg refuses groups as deep as vega's of many nested views.
    svg = slim(convert("vegalite_to_svg", spec), get_title(spec))
    density = dpi or (_DPI if width is None else _DPI_OF_PAPER)
    scale, in_mm, in_points = 1.0, svg, svg
    if width is not None:
        size = measure(svg)
        scale = width / _MM_PER_INCH * PX_PER_INCH / size[0]
        _check_paper(width, size)
        in_mm = _resize(svg, size, width / size[0], "mm")
        # vl-convert makes a pixel a point.
        in_points = _resize(svg, size, scale * _POINTS_PER_INCH / PX_PER_INCH, "")
    provenance = spec.get("usermeta", {}).get(KEY)
    metadata = json.dumps(provenance) if provenance else ""
    files = {}
    for kind in kinds:
        if kind == ".svg":
            files[kind] = _embed_in_svg(in_mm, metadata).encode()
        elif kind == ".png":
            png = convert("svg_to_png", svg, scale=scale * density / PX_PER_INCH)
            files[kind] = _embed_in_png(png, metadata, density)
        else:
            files[kind] = _embed_in_pdf(convert("svg_to_pdf", in_points), metadata, get_title(spec))
    return files


def _check_paper(width: float, size: tuple[float, float]) -> None:
    """Check the height of text, and of a drawing of that size, at a width in millimetres."""
    points = width / _MM_PER_INCH * _POINTS_PER_INCH / size[0] * _LABEL_PX
    height = width * size[1] / size[0]
    if points >= _LEAST_POINTS and height <= _MOST_MM:
        return
    is_small = points < _LEAST_POINTS
    remedy = f", or use width={math.ceil(width * _LEAST_POINTS / points)}" if is_small else ""
    problem = f"its text would be {points:.1f} points high" if is_small else f"it would be {height:.0f} mm high"
    raise UsageError(
        f"invalid width={width:g}: {problem}; expected text of at least {_LEAST_POINTS:g} points, and at most "
        f"{_MOST_MM:g} mm. Select fewer trials, such as `batch_size=8`{remedy}."
    )


def get_title(spec: Mapping[str, Any]) -> str:
    """The title of a figure, in one line; ``a chart`` without one."""
    title = spec.get("title") or spec.get("description") or "a chart"
    text = title.get("text", "") if isinstance(title, Mapping) else title
    return text if isinstance(text, str) else " ".join(text)


def measure(svg: str) -> tuple[float, float]:
    """The width and the height of an SVG of vega, in pixels."""
    sizes = (re.search(rf'<svg[^>]*?\s{name}="([\d.]+)"', svg) for name in ("width", "height"))
    width, height = (float(size[1]) if size else math.nan for size in sizes)
    return width, height


def _resize(svg: str, size: tuple[float, float], scale: float, unit: str) -> str:
    """Set the size of an SVG in a unit; its `viewBox` stays the drawing's."""
    for name, length in zip(("width", "height"), size, strict=True):
        text = f'{name}="{length * scale:.3f}{unit}"'
        svg = re.sub(rf'(<svg[^>]*?\s){name}="[\d.]+"', rf"\g<1>{text}", svg, count=1)
    return svg


def _embed_in_svg(svg: str, metadata: str) -> str:
    head, end, rest = svg.partition(">")
    return f"{head}{end}<metadata>{escape(metadata)}</metadata>{rest}" if metadata else svg


def _embed_in_png(png: bytes, metadata: str, dpi: float) -> bytes:
    images, plugin = (import_optional(f"PIL.{name}", "pillow", "notebook") for name in ("Image", "PngImagePlugin"))
    text = plugin.PngInfo()
    if metadata:
        text.add_itxt(KEY, metadata)
    target = BytesIO()
    with images.open(BytesIO(png)) as image:
        white = images.new("RGBA", image.size, "white")
        opaque = images.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    # A chart has few colours: with a palette it takes a third of the bytes and looks the same.
    palette = opaque.quantize(256, method=images.Quantize.MEDIANCUT, dither=images.Dither.NONE)
    palette.save(target, "PNG", pnginfo=text, optimize=True, dpi=(dpi, dpi))
    return target.getvalue()


def _embed_in_pdf(pdf: bytes, metadata: str, title: str) -> bytes:
    library, logger = import_optional("pypdf", "pypdf", "notebook"), logging.getLogger("pypdf")
    # pypdf warns of a count in the trailer that vl-convert writes too low, and corrects it.
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        writer = library.PdfWriter(clone_from=_sort_objects(library.PdfWriter(clone_from=BytesIO(pdf))))
    finally:
        logger.setLevel(level)
    writer.add_metadata({"/Title": title, **({f"/{KEY}": metadata} if metadata else {})})
    writer.compress_identical_objects()
    for page in writer.pages:
        page.compress_content_streams()
    target = BytesIO()
    writer.write(target)
    return target.getvalue()


def _sort_objects(writer: Any) -> BytesIO:
    """Sort the resources of a PDF by name, since vl-convert writes them in random order; a clone numbers them anew."""
    visited: set[int] = set()
    objects = list(writer.pages)
    while objects:
        item = objects.pop().get_object()
        if id(item) not in visited and isinstance(item, (dict, list)):
            visited.add(id(item))
            if isinstance(item, dict):
                entries = sorted(item.items())
                item.clear()
                item.update(entries)
            objects += item.values() if isinstance(item, dict) else item
    target = BytesIO()
    writer.write(target)
    return target
