"""Results as tables: one row per trial, or one column per compiler; as text for a terminal and as HTML for a page."""

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

from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.disturbance import select_samples
from ngbkit.dataset.long_form import expand_labels, list_factors, list_labels, to_frame
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError, UnknownNameError
from ngbkit.metrics import arrays, contracts, labelled
from ngbkit.metrics.conclusions import describe_disturbance
from ngbkit.metrics.estimate import LEVEL, UNBOUNDED, UNSETTLED, Estimate
from ngbkit.sweep.records import STATUSES
from ngbkit.sweep.trials import BASELINE
from ngbkit.sweep.variables import VARIABLES

if TYPE_CHECKING:
    import pandas as pd

# A trial that is unlike its reference stays empty, and a note explains why.
_METRICS: dict[str, Callable[..., Any]] = {
    "throughput": labelled.throughput,
    "speedup": partial(labelled.speedup, unlike="mask"),
    "rtr": partial(labelled.rtr, unlike="mask"),
    "ase": partial(labelled.ase, unlike="mask"),
    "bsr": partial(labelled.bsr, unlike="mask"),
}
# The dims along which each is compared.
_AGAINST = {"speedup": ("compiler",), "rtr": ("batch_size",), "ase": ("batch_size",), "bsr": ("compiler",)}
_ENDS = ("low", "high")
_CERTAINTY = (*_ENDS, "settled")
_VARIABLES = ("compile_time", "first_call_time", "cpu_percent", "peak_memory", "rmse_ratio")

FIGURES = ("latency", *_METRICS, *_VARIABLES)
"""The figures that `compact` can show."""

_GREY = "rgba(128, 128, 128, 0.4)"  # visible on white and on black


def build_trial_table(data: Data) -> pd.DataFrame:
    """One row per requested trial, of all nodes of a tree.

    Columns are ``workload, <factors>, device, compiler, batch_size``; ``latency`` (the median, s), ``throughput``
    (samples/s), ``speedup, rtr, ase, bsr`` (NaN throughout where the dataset lacks their reference), each with the ends
    of its 95 % interval and whether it is settled: ``speedup_low``, ``speedup_high`` (NaN with too few rounds) and
    ``speedup_settled``; ``compile_time`` (s), ``status`` and ``error``. A factor that a workload does not take is NaN.
    ``attrs["notes"]`` lists, one per line, the columns that are not compared, and are NaN, since they were timed under
    another contract.
    """
    import pandas as pd

    frame = pd.concat([_tabulate_node(node) for node in nodes(data).values()], ignore_index=True)
    labels = ["workload", *list_factors(data), "device", "compiler", "batch_size"]
    metrics = [column for name in _METRICS for column in (name, *(f"{name}_{item}" for item in _CERTAINTY))]
    table = frame[[*labels, "latency", *metrics, "compile_time", "status", "error"]]
    table.attrs["notes"] = contracts.list_uncompared(data, ("compiler", "batch_size"))
    return table


def compact(data: Data, figure: str = "throughput") -> pd.DataFrame:
    """One row per workload, its factors and batch size; one column per compiler.

    A cell is a number, the status of a trial without one, or empty where no trial was requested. A metric of a dataset
    with rounds is an `Estimate`, a number with its 95 % interval. With several devices, the rows are per device too.
    ``attrs["title"]`` names the numbers and their unit; ``attrs["notes"]`` says, one per line, what disturbed the run,
    what the marks of numbers mean, what they are tied to, and which columns are not compared since they were timed
    under another contract.

    Parameters
    ----------
    data
        The dataset or tree of a run.
    figure
        One of `FIGURES`.

    Raises
    ------
    UnknownNameError
        There is no such figure.
    MetricError
        The dataset lacks the reference of the figure.
    """
    import pandas as pd

    if figure not in FIGURES:
        raise UnknownNameError("figure", figure, FIGURES)
    factors = list_factors(data)
    devices = {label for node in nodes(data).values() for label in list_labels(node, "device")}
    keys = ["workload", *factors, *(["device"] if len(devices) > 1 else []), "batch_size"]
    frame = pd.concat([_compact_node(node, figure) for node in nodes(data).values()], ignore_index=True)
    table = frame.reindex(columns=[*keys, *(name for name in frame.columns if name not in {*keys, "device"})])
    for name in factors:
        table[name] = table[name].where(table[name].notna(), "")  # for a network that does not take it
    table = table.set_index(keys)
    table.attrs["title"] = _build_title(figure)
    table.attrs["notes"] = [
        *filter(None, [describe_disturbance(data)]),
        *_explain_marks(table),
        *_explain_ties(data, figure),
        *contracts.list_uncompared(data, _AGAINST.get(figure, ())),
    ]
    return table


def to_text(frame: pd.DataFrame, width: int | None = None) -> str:
    """Render a frame for a terminal, without escape codes if the output is not a terminal.

    Parameters
    ----------
    frame
        The result of `compact` or `build_trial_table`, or any other frame.
    width
        Characters per line. Default: the width of the terminal; without one, the width of the table.
    """
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    title, notes = frame.attrs.get("title"), frame.attrs.get("notes", [])
    table = Table(title=Text(title) if title else None, title_justify="left", title_style="bold")
    terminal = sys.stdout.isatty()
    header, rows = _format_cells(frame)
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
    """Render a frame as one HTML element without scripts or requests, readable on light and dark pages."""
    header, rows = _format_cells(frame)
    line = f"padding: 0.25em 0.8em; border-bottom: 1px solid {_GREY};"
    styles = [f"text-align: {'right' if numeric else 'left'}; {line}" for _, numeric in header]
    head = "".join(f'<th style="{style}">{escape(name)}</th>' for (name, _), style in zip(header, styles, strict=True))
    body = "".join(
        "<tr>" + "".join(_render_cell(cell, style) for cell, style in zip(row, styles, strict=True)) + "</tr>"
        for row in rows
    )
    title = frame.attrs.get("title")
    caption = f'<caption style="text-align: left; font-weight: bold;">{escape(title)}</caption>' if title else ""
    notes = "".join(
        f'<tr><td colspan="{len(header)}" style="text-align: left; {line}">{escape(note)}</td></tr>'
        for note in frame.attrs.get("notes", [])
    )
    foot = f"<tfoot>{notes}</tfoot>" if notes else ""
    return (
        '<table style="border-collapse: collapse; font-variant-numeric: tabular-nums; color: inherit;">'
        f"{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody>{foot}</table>"
    )


def format_number(value: float) -> str:
    """Format a number with four significant digits, and NaN as ``–``."""
    if math.isnan(value):
        return "–"
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    if not 1e-3 <= abs(value) < 1e7:
        return f"{value:.3e}"
    digits = 3 - math.floor(math.log10(abs(float(f"{value:.3e}"))))
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def _tabulate_node(node: xr.Dataset) -> pd.DataFrame:
    """The trials of a node, one per row, with every metric whose reference it has."""
    variables = {
        "latency": _compute_latency(node),
        **{name: node[name] for name in ("compile_time", "status", "error")},
    }
    with_rounds = {"latency", "round"} <= set(node.variables)
    for name, metric in _METRICS.items():
        try:
            result = metric(node, ci=LEVEL) if with_rounds else metric(node)
        except MetricError:
            result = xr.full_like(node["throughput"], np.nan)
        certainty = result if isinstance(result, xr.Dataset) else {}
        value = result[name] if isinstance(result, xr.Dataset) else result
        is_itself = _compare_with_itself(value, name)
        missing = xr.full_like(value, np.nan)
        variables |= {name: value, **{f"{name}_{end}": certainty.get(f"ci_{end}", missing) for end in _ENDS}}
        variables[f"{name}_settled"] = certainty.get("settled", xr.ones_like(value, dtype=bool)) | is_itself
    frame = to_frame(xr.Dataset(variables)[list(variables)])  # whose rows are in the order of its first variable
    return frame[frame["status"] != ""]  # the grid of several runs has cells that no run requested


def _compact_node(node: xr.Dataset, figure: str) -> pd.DataFrame:
    """A figure of a node, one column per compiler."""
    import pandas as pd

    keys = ["workload", *factor_dims(node), "device", "batch_size"]
    cells = _compute_figure(node, figure).where(node["status"] == "ok", node["status"])
    grid = expand_labels(cells.to_dataset(name="cell"))["cell"].transpose(*keys, "compiler")
    rows = pd.MultiIndex.from_product([grid[key].values for key in keys], names=keys).to_frame(index=False)
    rows = rows.astype(dict.fromkeys(factor_dims(node), object))  # integers stay integers beside nodes without them
    columns = grid["compiler"].values.tolist()
    table = pd.DataFrame(grid.values.reshape(-1, len(columns)), columns=columns)
    requested = (table != "").any(axis="columns")
    return rows.join(table)[requested]


def _compute_figure(node: xr.Dataset, figure: str) -> xr.DataArray:
    """The numbers of a figure as objects: estimates, if it is a metric and the dataset has rounds."""
    if figure == "latency":
        return _compute_latency(node).astype(object)
    if figure not in _METRICS:
        return node[figure].astype(object)
    if not {"latency", "round"} <= set(node.variables):
        numbers: xr.DataArray = _METRICS[figure](node).astype(object)
        return numbers
    result = _METRICS[figure](node, ci=LEVEL)
    values = result[figure].values
    is_itself = _compare_with_itself(values, figure)
    ends = (np.where(is_itself, 1.0, result[f"ci_{end}"].values) for end in _ENDS)
    columns = [column.ravel() for column in (values, *ends, result["settled"].values | is_itself)]
    cells = np.empty(values.size, dtype=object)
    cells[:] = [Estimate(*column) for column in zip(*columns, strict=True)]
    estimates: xr.DataArray = result[figure].copy(data=cells.reshape(values.shape))
    return estimates


def _compare_with_itself(values: Any, figure: str) -> Any:
    """Where a ratio compares a trial with itself: no measured ratio is 1 to the last bit."""
    return (values == 1) & (figure != "throughput")


def _explain_marks(table: pd.DataFrame) -> list[str]:
    estimates = [cell for cell in table.values.ravel() if isinstance(cell, Estimate) and math.isfinite(cell)]
    notes = []
    if any(not cell.settled for cell in estimates):
        notes.append(f"{UNSETTLED} not settled: too few of its rounds were undisturbed")
    if any(not cell.bounded for cell in estimates):
        notes.append(f"{UNBOUNDED} without an interval: too few rounds; measure more repeats (-r)")
    return notes


def _explain_ties(data: Data, figure: str) -> list[str]:
    """What a scaling metric is tied to, and so why it is not the quotient of the throughputs of two rows."""
    if figure == "bsr":
        return [f"{figure}: a ratio of speed-ups, each measured in rounds with {BASELINE}"]
    if figure in ("rtr", "ase") and any("anchor_latency" in node for node in nodes(data).values()):
        return [f"{figure}: tied to {BASELINE} at batch size 1, measured in the same rounds as each batch size"]
    return []


def _compute_latency(node: xr.Dataset) -> xr.DataArray:
    samples = select_samples(node)["latency"]
    medians: xr.DataArray = xr.apply_ufunc(arrays.median, samples, input_core_dims=[["repeat"]])
    return medians


def _build_title(figure: str) -> str:
    variable = VARIABLES.get(figure)
    _, long_name = labelled.METRICS.get(figure) or ("", VARIABLES[figure].long_name)
    long_name = "median latency" if figure == "latency" else long_name
    symbol = variable.unit_symbol if variable else ""
    return f"{long_name} ({symbol})" if symbol else long_name


def _format_cells(frame: pd.DataFrame) -> tuple[list[tuple[str, bool]], Iterator[list[str]]]:
    """Each column's name and whether it is numeric, and the rows as texts; a label that repeats is omitted."""
    labels = [name for name in frame.index.names if name is not None]
    flat = frame.reset_index() if labels else frame
    columns = [flat[name].tolist() for name in flat.columns]
    header = [(str(name), any(map(_is_number, column))) for name, column in zip(flat.columns, columns, strict=True)]
    return header, _omit_repeated(zip(*map(_format_column, columns), strict=True), max(len(labels) - 1, 0))


def _format_column(values: list[Any]) -> list[str]:
    """The texts of a column: its numbers are all integers, or all have decimals; an estimate knows its own."""
    numbers = [value for value in values if _is_number(value) and not isinstance(value, Estimate)]
    integers = all(value == int(value) for value in numbers if math.isfinite(value))
    write = _format_integer if integers else format_number
    return [write(value) if _is_number(value) and not isinstance(value, Estimate) else str(value) for value in values]


def _format_integer(value: float) -> str:
    return f"{value:.0f}" if math.isfinite(value) else format_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _omit_repeated(rows: Iterator[tuple[str, ...]], labels: int) -> Iterator[list[str]]:
    previous: tuple[str, ...] = ()
    for row in rows:
        same = next((i for i in range(labels) if row[: i + 1] != previous[: i + 1]), labels)
        yield [*[""] * same, *row[same:]]
        previous = row


def _render_cell(cell: str, style: str) -> str:
    failed = cell in STATUSES and cell != "ok"
    return f'<td style="{style}{" color: #d1495b;" if failed else ""}">{escape(cell)}</td>'
