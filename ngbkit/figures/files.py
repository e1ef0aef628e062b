"""A figure in a file, made on this machine alone."""

from __future__ import annotations

import json
import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.dataset.storage import write_whole
from ngbkit.errors import UsageError
from ngbkit.figures import pictures

if TYPE_CHECKING:
    import altair as alt

SUFFIXES = (".html", *pictures.KINDS)


def save(chart: alt.TopLevelMixin, path: str | os.PathLike[str]) -> Path:
    """Write a chart as the suffix of `path` says, one of `SUFFIXES`; a file of that name is replaced.

    A page holds the scripts that it needs: it opens without a network. A picture holds where it comes from.

    Raises
    ------
    UsageError
        The suffix is another, or the file cannot be written.
    MissingDependencyError
        vl-convert is not installed; or what the picture is written by.
    """
    target = Path(path)
    if target.suffix not in SUFFIXES:
        raise UsageError(f"a figure is saved as {', '.join(SUFFIXES)}; {target.name!r} came. Change its suffix.")
    content = _content(chart.to_dict(), target.suffix)
    try:
        write_whole(target, content)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror or error}. Save to another place.") from error
    return target


def _content(spec: dict[str, Any], suffix: str) -> bytes:
    if suffix in pictures.KINDS:
        return pictures.pictures(spec, [suffix])[suffix]
    return _page(spec, pictures.converter().javascript_bundle("window.vegaEmbed = vegaEmbed;")).encode()


def _page(spec: dict[str, Any], scripts: str) -> str:
    """A page of our own: vl-convert's would let a label that holds ``</script>`` end its script."""
    written = json.dumps(spec).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(pictures.title(spec))}</title>\n"
        "<style>body { margin: 1.5rem; background: white; }</style>\n</head>\n<body>\n"
        f'<div id="figure"></div>\n<script>{scripts}</script>\n'
        f'<script>window.vegaEmbed("#figure", {written}, {{renderer: "svg"}}).catch(console.error);</script>\n'
        "</body>\n</html>\n"
    )
