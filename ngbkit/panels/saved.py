"""A finished run as static HTML, for a saved notebook that is opened without a kernel."""

from __future__ import annotations

from htpy import Node, code, div, p, small
from markupsafe import Markup

from ngbkit.dataset.storage import Data
from ngbkit.errors import NgbkitError
from ngbkit.notebook import objects

_MOST_PICTURE_BYTES = 150_000
# The picture is drawn for a light page.
_PAPER = "background: #fff; color: #1a1a1a; color-scheme: light; padding: 8px; overflow-x: auto; width: fit-content;"


def render_saved(data: Data, run_id: str, line: str) -> str:
    """Render a finished run: its line, its tables, the verdict, a picture, and how to open it again.

    The HTML has no script, request or style sheet, and is legible on light and on dark pages.
    """
    page = div[
        p[code[line]],
        _render_results(data),
        p[small[f"Run {run_id}. ", code[f"%ngruns --open {run_id} -o ds"], " opens it in this notebook."]],
    ]
    # A plain text: markup would escape what a caller joins to it.
    return str(Markup(page))


def render_fallback(data: Data | None) -> str:
    """Render what a page without a kernel or widgets shows: the remedy, and the results of a dataset, if any."""
    remedy = p[
        "The panel needs a kernel and widgets. Run this cell; if no panel appears, ",
        code["pip install jupyterlab_widgets anywidget"],
        " in the environment of the server, such as JupyterLab's, and reload the page. ",
        code["%ngbench?"],
        " lists what a line can do without.",
    ]
    return str(Markup(div[remedy, _render_results(data) if data is not None else None]))


def _render_results(data: Data) -> Node:
    """Render the report and the picture; a large run has none of them, since they take minutes."""
    report = objects.build_report(data)
    if report is None:
        return p["It has too many trials, or too few labels, for a table."]
    picture = _draw(data)
    return [Markup(report._repr_html_()), div(style=_PAPER)[Markup(picture)] if picture else None]


def _draw(data: Data) -> str:
    """Draw the overview as a picture; empty if it is too large, or if there is nothing to draw."""
    from ngbkit import figures
    from ngbkit.figures import renderer

    try:
        picture = renderer.to_html(figures.overview(data).to_dict())
    except NgbkitError:
        return ""
    return picture if len(picture.encode()) <= _MOST_PICTURE_BYTES else ""
