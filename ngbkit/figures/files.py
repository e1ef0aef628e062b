"""Saves a figure as a page or a picture, without a network."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import cache
from html import escape
from pathlib import Path
from typing import Annotated, Any

import altair as alt

from ngbkit import validation
from ngbkit.dataset.storage import check_target, write_whole
from ngbkit.errors import NgbkitError, UsageError
from ngbkit.figures import latex, pictures, theme
from ngbkit.figures.composition import build_spec
from ngbkit.figures.converter import convert
from ngbkit.validation import number

SUFFIXES = (".html", *pictures.KINDS, ".tex")
_WITH_WIDTH = (*pictures.KINDS, ".tex")

# The widths of a column of a paper with two, and of both.
_COLUMN_MM, _PAGE_MM = 88.0, 180.0
_WIDTH = Annotated[
    float,
    number(
        10,
        2000,
        "millimetres from 10 to 2000, such as 88 for a column of a paper with two, and 180 for both",
    ),
]
_DPI = Annotated[float, number(36, 2400, "pixels an inch from 36 to 2400, such as 300 or 600")]

# Vega's dark theme has the background of the page.
_DRAWING = """\
const spec = {spec};
const system = window.matchMedia("(prefers-color-scheme: dark)");
function draw() {{
  const dark = {{ theme: "dark", tooltip: {{ theme: "dark" }} }};
  const options = {{ renderer: "svg", ...(system.matches && dark) }};
  window.vegaEmbed("#figure", spec, options).catch(console.error);
}}
draw();
system.addEventListener("change", draw);
"""


def save(
    chart: alt.TopLevelMixin,
    path: str | os.PathLike[str],
    *,
    width: float | None = None,
    dpi: float | None = None,
) -> Path:
    """Write a chart in the format of the suffix of `path`, one of `SUFFIXES`; an existing file is replaced.

    A page embeds its scripts, so that it opens without a network. A picture embeds its provenance; that of a
    composition (``alt.hconcat(a, b)``) embeds the provenance of its parts. LaTeX is written with a PDF beside it.

    Parameters
    ----------
    chart
        A figure of ngbkit, a composition, or any other chart of altair.
    path
        The file to write.
    width
        The width of the picture in millimetres, such as 88 for a column of a paper with two, and 180 for both. It is
        the drawing in that size, with its legend below and without its title, which is left to the caption. Default: as
        drawn, at 96 pixels an inch; for LaTeX 88, or 180 if its text would be too small.
    dpi
        The pixels an inch of a PNG. Default: 300 with a `width`, otherwise 192.

    Raises
    ------
    UsageError
        The suffix is invalid, or the file cannot be written; `width` or `dpi` is out of range or does not apply to
        the format; or the figure fits no page at `width`.
    MissingDependencyError
        vl-convert, Pillow or pypdf is not installed.
    """
    target = check_target(path, overwrite=True)
    if target.suffix not in SUFFIXES:
        raise UsageError(f"invalid file name {target.name!r}; expected {', '.join(SUFFIXES)}. Change its suffix.")
    if width is not None and target.suffix not in _WITH_WIDTH:
        raise UsageError(f"a page fills its window: {target.name!r} takes no width. Save a {', '.join(_WITH_WIDTH)}.")
    if dpi is not None and target.suffix != ".png":
        raise UsageError(f"only pixels have a density: {target.name!r} takes no dpi. Save a .png, or leave out dpi.")
    density = None if dpi is None else validation.check("dpi", _DPI, dpi)
    millimetres = None if width is None else validation.check("width", _WIDTH, width)
    spec = build_spec(chart)
    if target.suffix == ".tex":
        try:
            files = render_paper(spec, target.stem, millimetres or _COLUMN_MM)
        except UsageError:
            if millimetres is not None:
                raise
            files = render_paper(spec, target.stem, _PAGE_MM)
        for suffix, content in files.items():
            write_whole(target.with_suffix(suffix), content)
        return target
    prepared = spec if millimetres is None else latex.prepare(spec)
    if target.suffix in pictures.KINDS:
        content = pictures.render(prepared, [target.suffix], width=millimetres, dpi=density)[target.suffix]
    else:
        content = _render_page(spec).encode()
    write_whole(target, content)
    return target


def prepare_page() -> None:
    """Build the scripts of pages, which take longer than a chart, before the first."""
    with suppress(NgbkitError):  # the page itself reports it
        bundle_scripts()


@cache
def bundle_scripts() -> str:
    """Bundle the scripts that draw the chart of a page."""
    return str(convert("javascript_bundle", "window.vegaEmbed = vegaEmbed;"))


def render_paper(spec: dict[str, Any], stem: str, width: float) -> dict[str, bytes]:
    """Render a specification as PDF, in millimetres, and as LaTeX with ``stem.pdf``; UsageError if it fits no page."""
    pdf = pictures.render(latex.prepare(spec), [".pdf"], width=width)
    text = latex.build_figure(latex.build_caption(spec), f"{stem}.pdf", width)
    return {**pdf, ".tex": text.encode()}


def _render_page(spec: dict[str, Any]) -> str:
    """Render a page; in vl-convert's page, a label with ``</script>`` would end the script."""
    text = json.dumps(spec).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(pictures.get_title(spec))}</title>\n"
        "<style>body { margin: 1.5rem; background: white; }\n"
        f"@media (prefers-color-scheme: dark) {{ body {{ background: {theme.DARK}; }} }}\n"
        "#figure, #figure .chart-wrapper { width: 100%; }\n"
        "#figure svg.marks { max-width: 100%; height: auto; }</style>\n</head>\n<body>\n"
        f'<div id="figure"></div>\n<script>{bundle_scripts()}</script>\n'
        f"<script>{_DRAWING.format(spec=text)}</script>\n"
        "</body>\n</html>\n"
    )
