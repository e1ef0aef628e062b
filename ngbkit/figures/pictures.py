"""A figure as a picture, made on this machine alone, that holds where it comes from: SVG, PNG or PDF."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from html import escape
from importlib import import_module
from io import BytesIO
from typing import Any

from ngbkit.errors import MissingDependencyError
from ngbkit.figures.provenance import KEY

KINDS = (".svg", ".png", ".pdf")
"""What a figure can be drawn as."""


def pictures(spec: dict[str, Any], kinds: Iterable[str] = KINDS) -> dict[str, bytes]:
    """A figure as the content of a file of each kind.

    What the figure says of its origin (`ngbkit.figures.provenance`) is in the file, as JSON: the element ``metadata``
    of an SVG, the text ``ngbkit`` of a PNG, the entry ``/ngbkit`` of what a PDF tells about itself.

    Raises
    ------
    MissingDependencyError
        vl-convert, Pillow or pypdf is not installed.
    """
    convert = converter()
    drawn = str(convert.vegalite_to_svg(spec))
    known = spec.get("usermeta", {}).get(KEY)
    told = json.dumps(known) if known else ""
    found = {}
    for kind in kinds:
        if kind == ".svg":
            found[kind] = _svg(drawn, told).encode()
        elif kind == ".png":
            found[kind] = _png(bytes(convert.svg_to_png(drawn, scale=2)), told)
        else:
            found[kind] = _pdf(bytes(convert.svg_to_pdf(drawn)), told, title(spec))
    return found


def title(spec: Mapping[str, Any]) -> str:
    """What stands above a figure, in a line."""
    found = spec.get("title") or ""
    return found if isinstance(found, str) else str(found.get("text", ""))


def converter() -> Any:
    """What makes pictures of specifications.

    Raises
    ------
    MissingDependencyError
        vl-convert is not installed.
    """
    return _library("vl_convert", "vl-convert-python")


def _library(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(package, "notebook") from error


def _svg(drawn: str, told: str) -> str:
    head, end, rest = drawn.partition(">")
    return f"{head}{end}<metadata>{escape(told)}</metadata>{rest}" if told else drawn


def _png(drawn: bytes, told: str) -> bytes:
    images, text = _library("PIL.Image", "pillow"), _library("PIL.PngImagePlugin", "pillow").PngInfo()
    if told:
        text.add_itxt(KEY, told)
    target = BytesIO()
    with images.open(BytesIO(drawn)) as image:
        white = images.new("RGBA", image.size, "white")
        whole = images.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    # A chart has few colours: by a palette it takes a third of the bytes, and looks the same.
    palette = whole.quantize(256, method=images.Quantize.MEDIANCUT, dither=images.Dither.NONE)
    palette.save(target, "PNG", pnginfo=text, optimize=True)
    return target.getvalue()


def _pdf(drawn: bytes, told: str, name: str) -> bytes:
    if not told:
        return drawn
    library, logger = _library("pypdf", "pypdf"), logging.getLogger("pypdf")
    # It warns of a count in the trailer that vl-convert writes too low, and corrects it.
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        writer = library.PdfWriter(clone_from=BytesIO(drawn))
    finally:
        logger.setLevel(level)
    writer.add_metadata({"/Title": name, f"/{KEY}": told})
    writer.compress_identical_objects()
    for page in writer.pages:
        page.compress_content_streams()
    target = BytesIO()
    writer.write(target)
    return target.getvalue()
