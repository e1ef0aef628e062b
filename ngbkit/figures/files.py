"""Saves a figure as a page or a picture, without a network."""

from __future__ import annotations

import json
import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.dataset.storage import check_target, write_whole
from ngbkit.errors import UsageError
from ngbkit.figures import pictures
from ngbkit.figures.composition import build_spec

if TYPE_CHECKING:
    import altair as alt

SUFFIXES = (".html", *pictures.KINDS)


def save(chart: alt.TopLevelMixin, path: str | os.PathLike[str]) -> Path:
    """Write a chart in the format of the suffix of `path`, one of `SUFFIXES`; an existing file is replaced.

    A page embeds its scripts, so that it opens without a network. A picture embeds its provenance.

    Raises
    ------
    UsageError
        The suffix is invalid, or the file cannot be written.
    MissingDependencyError
        vl-convert, Pillow or pypdf is not installed.
    """
    target = check_target(path, overwrite=True)
    if target.suffix not in SUFFIXES:
        raise UsageError(f"invalid file name {target.name!r}; expected {', '.join(SUFFIXES)}. Change its suffix.")
    write_whole(target, _render(build_spec(chart), target.suffix))
    return target


def _render(spec: dict[str, Any], suffix: str) -> bytes:
    if suffix in pictures.KINDS:
        return pictures.render(spec, [suffix])[suffix]
    return _render_page(spec, pictures.load_converter().javascript_bundle("window.vegaEmbed = vegaEmbed;")).encode()


def _render_page(spec: dict[str, Any], scripts: str) -> str:
    """Render a page; that of vl-convert would let a label with ``</script>`` end its script."""
    text = json.dumps(spec).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(pictures.get_title(spec))}</title>\n"
        "<style>body { margin: 1.5rem; background: white; }\n"
        "#figure, #figure .chart-wrapper { width: 100%; }\n"
        "#figure svg.marks { max-width: 100%; height: auto; }</style>\n</head>\n<body>\n"
        f'<div id="figure"></div>\n<script>{scripts}</script>\n'
        f'<script>window.vegaEmbed("#figure", {text}, {{renderer: "svg"}}).catch(console.error);</script>\n'
        "</body>\n</html>\n"
    )
