"""Displays a dataset of ngbkit by its values with their intervals, and xarray's own display folded below them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ngbkit.commands.shell import choose_figures

if TYPE_CHECKING:
    from ngbkit.dataset.storage import Data
    from ngbkit.report import Report

# Every dataset that ngbkit assembles or merges has this attribute, and so have selections from it.
_ATTRIBUTE = "ngbkit_version"
_MOST_ROWS = 40


def to_html(data: Data) -> str:
    """Render a dataset as tables with its values above xarray's own display; of another dataset only the latter."""
    from ngbkit.figures import statements

    inner = _to_xarray_html(data)
    if (report := build_report(data, with_verdict=False)) is None:
        return inner
    arguments = {"figures": choose_figures(data), "most": _MOST_ROWS, "with_verdict": False}
    return (
        statements.mark(report._repr_html_(), "report", data, **arguments)
        + statements.mark(statements.render("origin", data, {}), "origin", data)
        + f"<details><summary>{escape(_summarize(data))}</summary>{inner}</details>"
    )


def to_text(data: Data) -> str:
    """Render a dataset as text: see `to_html`."""
    from ngbkit.figures.captions import describe_provenance

    if (report := build_report(data, with_verdict=False)) is None:
        return repr(data)
    return "\n".join([repr(report), describe_provenance(data), f"{_summarize(data)}; print() shows all of it"])


def _to_xarray_html(data: Data) -> str:
    """Render xarray's own display; the attributes of ngbkit, which are pages of JSON, are folded in it."""
    import xarray as xr

    if _ATTRIBUTE not in data.attrs:
        return data._repr_html_()
    with xr.set_options(display_expand_attrs=False):  # type: ignore[no-untyped-call]
        return data._repr_html_()


def build_report(data: Data, *, with_verdict: bool = True) -> Report | None:
    """Build the report of a dataset; None if it is not ngbkit's, or lacks what the tables need."""
    if _ATTRIBUTE not in data.attrs or not _count_trials(data):
        return None
    from ngbkit.metrics import tables

    try:
        return tables.build_report(data, choose_figures(data), _MOST_ROWS, with_verdict=with_verdict)
    except Exception:  # noqa: BLE001  users select and compute as they like: a display never raises
        return None


def _count_trials(data: Data) -> int:
    from ngbkit.dataset.assembly import nodes

    return sum(node["status"].size for node in nodes(data).values() if "status" in node)


def _summarize(data: Data) -> str:
    """Summarize the shape of a dataset in the words of xarray."""
    name = f"xarray.{type(data).__name__}"
    if not data.sizes:
        return name
    return f"{name} ({', '.join(f'{dim}: {size}' for dim, size in data.sizes.items())})"
