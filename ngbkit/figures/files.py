"""A figure in a file, made on this machine alone."""

from __future__ import annotations

import json
import os
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.errors import MissingDependencyError, UsageError
from ngbkit.storage import write_whole

if TYPE_CHECKING:
    import altair as alt

SUFFIXES = (".html", ".svg", ".png")


def save(chart: alt.TopLevelMixin, path: str | os.PathLike[str]) -> Path:
    """Write a chart as the suffix of `path` says: ``.html``, ``.svg`` or ``.png``; a file of that name is replaced.

    The page holds the scripts that it needs: it opens without a network.

    Raises
    ------
    UsageError
        The suffix is another, or the file cannot be written.
    MissingDependencyError
        vl-convert is not installed.
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


def converter() -> Any:
    """What makes pictures of specifications.

    Raises
    ------
    MissingDependencyError
        vl-convert is not installed.
    """
    try:
        return import_module("vl_convert")
    except ImportError as error:
        raise MissingDependencyError("vl-convert-python", "notebook") from error


def _content(spec: dict[str, Any], suffix: str) -> bytes:
    convert = converter()
    if suffix == ".png":
        return bytes(convert.vegalite_to_png(spec, scale=2))
    if suffix == ".svg":
        return str(convert.vegalite_to_svg(spec)).encode()
    return _page(spec, convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")).encode()


def _page(spec: dict[str, Any], scripts: str) -> str:
    """A page of our own: vl-convert's would let a label that holds ``</script>`` end its script."""
    title = spec.get("title") or ""
    written = json.dumps(spec).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title if isinstance(title, str) else title['text'])}</title>\n"
        "<style>body { margin: 1.5rem; background: white; }</style>\n</head>\n<body>\n"
        f'<div id="figure"></div>\n<script>{scripts}</script>\n'
        f'<script>window.vegaEmbed("#figure", {written}, {{renderer: "svg"}}).catch(console.error);</script>\n'
        "</body>\n</html>\n"
    )
