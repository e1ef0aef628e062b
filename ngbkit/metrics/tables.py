"""The results as tables: one row a trial, or one column a compiler; as text for a terminal and as HTML for a page."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import VARIABLES, factor_dims, nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError, UnknownNameError
from ngbkit.metrics import arrays, contracts, labelled
from ngbkit.sweep.records import STATUSES

if TYPE_CHECKING:
    import pandas as pd

# What is unlike the column that it would be compared with is left empty, and a note says so.
_METRICS: dict[str, Callable[[xr.Dataset], Any]] = {
    "throughput": labelled.throughput,
    "speedup": partial(labelled.speedup, unlike="mask"),
    "rtr": partial(labelled.rtr, unlike="mask"),
    "ase": partial(labelled.ase, unlike="mask"),
    "bsr": partial(labelled.bsr, unlike="mask"),
}
# With what each is compared.
_AGAINST = {"speedup": ("compiler",), "rtr": ("batch_size",), "ase": ("batch_size",), "bsr": ("compiler",)}
_VARIABLES = ("compile_time", "first_call_time", "cpu_percent", "peak_memory", "rmse_ratio")

FIGURES = ("latency", *_METRICS, *_VARIABLES)
"""What `compact` can show."""

_GREY = "rgba(128, 128, 128, 0.4)"  # visible on white and on black


def trial_table(data: Data) -> pd.DataFrame:
    """One row a trial that was asked for.

    Columns are ``workload, <factors>, device, compiler, batch_size``; ``latency`` (the median, s), ``throughput``
    (samples/s), ``speedup, rtr, ase, bsr`` (NaN throughout where the dataset lacks what they are relative to),
    ``compile_time`` (s), ``status`` and ``error``. A tree gives the rows of all its nodes; a factor that a workload
    does not take is NaN. ``attrs["notes"]`` says, a line each, which columns are not compared since they were timed
    under another contract; they are NaN too.
    """
    import pandas as pd

    found = nodes(data).values()
    factors = list(dict.fromkeys(name for node in found for name in factor_dims(node)))
    frame = pd.concat([_rows(node) for node in found], ignore_index=True)
    first = ["workload", *factors, "device", "compiler", "batch_size"]
    table = frame[[*first, "latency", *_METRICS, "compile_time", "status", "error"]]
    table.attrs["notes"] = contracts.remarks(data, ("compiler", "batch_size"))
    return table


def compact(data: Data, figure: str = "throughput") -> pd.DataFrame:
    """One row a workload, its factors and a batch size; one column a compiler.

    A cell is a number, or the status of a trial that gave none; empty where none was asked for. The device is in the
    rows where there is more than one. ``attrs["title"]`` says what the numbers are, with their unit, and
    ``attrs["notes"]``, a line each, which columns are not compared since they were timed under another contract.

    Parameters
    ----------
    data
        What `ngbkit.dataset.assembly.assemble` gave.
    figure
        One of `FIGURES`.

    Raises
    ------
    UnknownNameError
        There is no such figure.
    MetricError
        The dataset lacks what the figure is relative to.
    """
    import pandas as pd

    if figure not in FIGURES:
        raise UnknownNameError("figure", figure, FIGURES)
    found = list(nodes(data).values())
    factors = list(dict.fromkeys(name for node in found for name in factor_dims(node)))
    devices = {label for node in found for label in np.atleast_1d(node["device"].values).tolist()}
    keys = ["workload", *factors, *(["device"] if len(devices) > 1 else []), "batch_size"]
    frame = pd.concat([_cells(node, figure) for node in found], ignore_index=True)
    table = frame.reindex(columns=[*keys, *(name for name in frame.columns if name not in {*keys, "device"})])
    for name in factors:
        table[name] = table[name].where(table[name].notna(), "")  # a network that does not take it
    table = table.set_index(keys)
    table.attrs["title"] = _title(figure)
    table.attrs["notes"] = contracts.remarks(data, _AGAINST.get(figure, ()))
    return table


def to_text(frame: pd.DataFrame, width: int | None = None) -> str:
    """A table for a terminal; plain where the output is not one.

    Parameters
    ----------
    frame
        What `compact` or `trial_table` gave, or any other frame.
    width
        Characters a line. Default: the terminal's; as many as the table needs where there is none.
    """
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    title, notes = frame.attrs.get("title"), frame.attrs.get("notes", [])
    table = Table(title=Text(title) if title else None, title_justify="left", title_style="bold")
    terminal = sys.stdout.isatty()
    header, rows = _written(frame)
    for name, numeric in header:
        table.add_column(Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style="red" if cell in STATUSES and cell != "ok" else "") for cell in row))
    console = Console(file=StringIO(), force_terminal=terminal, force_jupyter=False, width=width)
    if width is None and not terminal:
        needed = Measurement.get(console, console.options.update(max_width=100_000), table).maximum
        console.width = max([needed, *map(len, notes)])
    with console.capture() as captured:
        console.print(table)
        for note in notes:
            console.print(Text(note))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def to_html(frame: pd.DataFrame) -> str:
    """A table for a page: one element without script or request, readable on light and on dark."""
    header, rows = _written(frame)
    line = f"padding: 0.25em 0.8em; border-bottom: 1px solid {_GREY};"
    styles = [f"text-align: {'right' if numeric else 'left'}; {line}" for _, numeric in header]
    head = "".join(f'<th style="{style}">{escape(name)}</th>' for (name, _), style in zip(header, styles, strict=True))
    body = "".join(
        "<tr>" + "".join(_html_cell(cell, style) for cell, style in zip(row, styles, strict=True)) + "</tr>"
        for row in rows
    )
    title = frame.attrs.get("title")
    caption = f'<caption style="text-align: left; font-weight: bold;">{escape(title)}</caption>' if title else ""
    notes = "".join(
        f'<tr><td colspan="{len(header)}" style="{line}">{escape(note)}</td></tr>'
        for note in frame.attrs.get("notes", [])
    )
    foot = f"<tfoot>{notes}</tfoot>" if notes else ""
    return (
        '<table style="border-collapse: collapse; font-variant-numeric: tabular-nums; color: inherit;">'
        f"{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>{foot}</table>"
    )


def format_number(value: float) -> str:
    """A number with four significant digits, or ``–`` where there is none."""
    if math.isnan(value):
        return "–"
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    if not 1e-3 <= abs(value) < 1e7:
        return f"{value:.3e}"
    digits = 3 - math.floor(math.log10(abs(float(f"{value:.3e}"))))
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def _rows(node: xr.Dataset) -> pd.DataFrame:
    """A node's trials, a row each, with every metric that it has a baseline for."""
    found = {"latency": _median_latency(node), **{name: node[name] for name in ("compile_time", "status", "error")}}
    for name, metric in _METRICS.items():
        try:
            found[name] = metric(node)
        except MetricError:
            found[name] = xr.full_like(node["throughput"], np.nan)
    labels = ["device", "workload", *factor_dims(node), "compiler", "batch_size"]
    # A label that the user selected is left as a scalar: it becomes a dim again, of one.
    trials = xr.Dataset(found).expand_dims([name for name in labels if name not in node.dims])
    frame = trials.reset_coords(drop=True)[list(found)].to_dataframe().reset_index()
    return frame[frame["status"] != ""]  # which a grid has where several runs leave holes in it


def _cells(node: xr.Dataset, figure: str) -> pd.DataFrame:
    """A node's figure, a row each batch size, a column each compiler."""
    import pandas as pd

    keys = ["workload", *factor_dims(node), "device", "batch_size"]
    values = _figure(node, figure)
    cells = values.astype(object).where(node["status"] == "ok", node["status"])
    cells = cells.expand_dims([name for name in (*keys, "compiler") if name not in cells.dims])
    grid = cells.transpose(*keys, "compiler")
    rows = pd.MultiIndex.from_product([grid[key].values for key in keys], names=keys).to_frame(index=False)
    rows = rows.astype(dict.fromkeys(factor_dims(node), object))  # beside nodes without it a whole number stays one
    columns = grid["compiler"].values.tolist()
    table = pd.DataFrame(grid.values.reshape(-1, len(columns)), columns=columns)
    asked = (table != "").any(axis="columns")
    return rows.join(table)[asked]


def _figure(node: xr.Dataset, figure: str) -> xr.DataArray:
    if figure == "latency":
        return _median_latency(node)
    return _METRICS[figure](node) if figure in _METRICS else node[figure]


def _median_latency(node: xr.Dataset) -> xr.DataArray:
    found: xr.DataArray = xr.apply_ufunc(arrays.median, node["latency"], input_core_dims=[["repeat"]])
    return found


def _title(figure: str) -> str:
    units, long_name = {**{name: about[:2] for name, about in VARIABLES.items()}, **labelled.METRICS}[figure]
    long_name = "median latency" if figure == "latency" else long_name
    return long_name if units in ("", "1") else f"{long_name} ({units})"


def _written(frame: pd.DataFrame) -> tuple[list[tuple[str, bool]], Iterator[list[str]]]:
    """Each column's name and whether it holds numbers, and the rows as written; a label that repeats is left out."""
    labels = [name for name in frame.index.names if name is not None]
    flat = frame.reset_index() if labels else frame
    columns = [flat[name].tolist() for name in flat.columns]
    header = [(str(name), any(map(_is_number, column))) for name, column in zip(flat.columns, columns, strict=True)]
    return header, _thinned(zip(*map(_column, columns), strict=True), max(len(labels) - 1, 0))


def _column(values: list[Any]) -> list[str]:
    """A column as written: numbers alike, all whole or all with their digits."""
    whole = all(value == int(value) for value in values if _is_number(value) and math.isfinite(value))
    write = _whole if whole else format_number
    return [write(value) if _is_number(value) else str(value) for value in values]


def _whole(value: float) -> str:
    return f"{value:.0f}" if math.isfinite(value) else format_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _thinned(rows: Iterator[tuple[str, ...]], labels: int) -> Iterator[list[str]]:
    before: tuple[str, ...] = ()
    for row in rows:
        same = next((at for at in range(labels) if row[: at + 1] != before[: at + 1]), labels)
        yield [*[""] * same, *row[same:]]
        before = row


def _html_cell(cell: str, style: str) -> str:
    failed = cell in STATUSES and cell != "ok"
    return f'<td style="{style}{" color: #d1495b;" if failed else ""}">{escape(cell)}</td>'
