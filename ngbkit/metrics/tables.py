"""Results as tables with one column per compiler, as text for a terminal and as HTML for a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.contention import find_unchecked, select_samples
from ngbkit.dataset.long_form import expand_labels, list_factors, list_labels, to_frame
from ngbkit.dataset.selection import Select, list_selected, match_labels, select_rows
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError, UnknownNameError
from ngbkit.metrics import arrays, contracts, means
from ngbkit.metrics.conclusions import conclude
from ngbkit.metrics.disturbances import describe_contention
from ngbkit.metrics.draws import split
from ngbkit.metrics.drift import describe_drift
from ngbkit.metrics.estimate import INCONCLUSIVE, UNBOUNDED, Estimate, Uncertain
from ngbkit.metrics.means import Groups
from ngbkit.metrics.metric import Metric, find_metric, load_frame_metrics, load_metrics
from ngbkit.metrics.originals import PRECISION_GAIN, find_originals
from ngbkit.metrics.rendering import to_texts
from ngbkit.metrics.unchecked import describe_unchecked, explain_inconclusive
from ngbkit.report import Report, Reported
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.records import MEASURED
from ngbkit.sweep.variables import VARIABLES
from ngbkit.user_text import join_names

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Table", "compact", "estimate", "list_figures"]

_ENDS = ("low", "high")
_VARIABLES = ("compile_time", "first_call_time", "cpu_percent", "peak_memory", "rmse_ratio")


def list_figures() -> list[str]:
    """List the figures that `compact` can show: the latency, every metric, and some variables."""
    return ["latency", *_load_figures(), *_VARIABLES]


def compact(
    data: Data,
    figure: str = "throughput",
    *,
    by: Groups | None = None,
    select: Select | None = None,
    most: int | None = None,
) -> pd.DataFrame:
    """One row per workload, its factors and batch size; one column per compiler.

    A cell is a number, the status of a trial without one, or empty where no trial was requested. A metric of a dataset
    with rounds is an `Estimate`, a number with its 95 % interval. With several devices, the rows are per device too.
    ``attrs["title"]`` names the numbers and their unit; ``attrs["left_out"]`` counts the rows beyond `most`;
    ``attrs["notes"]`` says, one per line, what disturbed the run, what the marks of numbers mean, which trials were not
    checked and why, what they are normalised to or how far groups differ by their times, and which columns are not
    compared since they were timed under another contract.

    Parameters
    ----------
    data
        The dataset or tree of a run. Nodes of a tree that lack the reference of the figure are left out.
    figure
        One of `list_figures`.
    by
        The group of each network, as for `ngbkit.metrics.means.mean`: rows are then groups, with their geometric means.
    select
        By dim, the label or the labels to show. Their reference need not be among them.
    most
        The number of rows; a note has the number of those left out, whose intervals are not computed. Default: all.

    Raises
    ------
    UnknownNameError
        There is no such figure, dim or label.
    MetricError
        The dataset lacks the reference of the figure.
    UsageError
        Nothing is selected, or the figure has no mean.
    """
    import pandas as pd

    if figure not in (names := list_figures()):
        raise UnknownNameError("figure", figure, names)
    metric, _ = _load_figures().get(figure, (None, {}))
    datasets = list(nodes(data).values())
    if select and "compiler" in select:
        columns = [label for node in datasets for label in list_labels(node, "compiler")]
        select = {**select, "compiler": match_labels("compiler", select["compiler"], columns)}
    is_whole = most is None or by is not None or bool(select) or (metric is not None and metric.over)
    parts: list[tuple[xr.Dataset, xr.DataArray]] = []
    problems: list[MetricError] = []
    for node in datasets if is_whole else _take_first(datasets, most or 0):
        try:
            parts.append((node, _compute_figure(node, figure, by)))
        except MetricError as error:
            problems.append(error)
    if not parts:
        raise problems[0]
    trials = pd.concat([_compact_node(node, cells) for node, cells in parts], ignore_index=True)
    labels = [name for name in ("workload", *list_factors(data), "device", "batch_size") if name in trials]
    trials, compilers = _select(trials, labels, select or {})
    devices = {label for node in nodes(data).values() for label in list_labels(node, "device")}
    keys = [name for name in labels if name != "device" or len(devices) > 1]
    table = trials.reindex(columns=[*keys, *compilers])
    for name in {*list_factors(data)} & {*keys}:
        table[name] = table[name].where(table[name].notna(), "")  # for a network that does not take it
    table = table.set_index(keys).head(len(table) if most is None else most)
    table.attrs["left_out"] = (len(trials) if is_whole else sum(map(_count_rows, datasets))) - len(table)
    table.attrs["title"] = _build_title(figure, parts[0][1])
    table.attrs["marked"] = contracts.list_compared(data, metric.against) if metric and metric.relative_to else []
    table.attrs["notes"] = [
        *([f"… and {table.attrs['left_out']:,} more rows"] if table.attrs["left_out"] else []),
        *filter(None, [describe_contention(data)]),
        *_explain_marks(data, table),
        *describe_unchecked(data, select),
        *_explain_times(data, figure, metric, len(table)),
        *_list_contradictions(parts, select or {}),
        *contracts.list_uncompared(data, metric.against if metric else ()),
    ]
    return table


def build_report(
    data: Data,
    figures: Sequence[str],
    most: int | None = None,
    *,
    remarks: Sequence[str] = (),
    with_verdict: bool = True,
) -> Report:
    """Build the report of a run: its verdict, the table of the first figure, and the rest behind `more`."""
    verdict = conclude(data) if with_verdict else Report()
    labels = [str(label) for node in nodes(data).values() for label in list_labels(node, "compiler")]
    if figures[:1] == ["speedup"] and find_originals(labels):
        figures = ["speedup", PRECISION_GAIN.name, *figures[1:]]
    frames = [to_texts(compact(data, figure, most=most)) for figure in figures]
    notes = verdict.more.notes if verdict.more else ()
    first = 1 + (PRECISION_GAIN.name in figures[:2])
    return replace(verdict, frames=frames[:first], more=Report(frames=frames[first:], notes=[*notes, *remarks]))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Table(Reported):
    """A table that a notebook displays: ``ds.ngb.table("speedup")``.

    Parameters
    ----------
    frame
        The table in pandas, to compute with: the result of `compact`.
    mark
        Adds the provenance to its HTML.
    """

    frame: pd.DataFrame
    mark: Callable[[str], str] = str

    def to_report(self) -> Report:
        """Build the report of the table alone."""
        return Report(frames=[to_texts(self.frame)])

    def _repr_html_(self) -> str:
        return self.mark(to_texts(self.frame).to_html())


def _take_first(datasets: Sequence[xr.Dataset], most: int) -> list[xr.Dataset]:
    """The first nodes with that many rows; of a large one the networks whose replicates are drawn first."""
    parts: list[xr.Dataset] = []
    for node in datasets:
        sizes = node["status"].sizes
        spans = next(split(sizes, ("compiler", "batch_size")))
        count = spans.get("workload", slice(0, 1)).stop
        is_cut = 1 <= count < sizes.get("workload", 1)
        if is_cut and all(span.stop == sizes[dim] for dim, span in spans.items() if dim != "workload"):
            return [*parts, node.isel(workload=slice(count))]
        parts.append(node)
        if sum(map(_count_rows, parts)) >= most:
            break
    return parts


def _count_rows(node: xr.Dataset) -> int:
    is_requested = node["status"] != ""
    return int((is_requested.any("compiler") if "compiler" in is_requested.dims else is_requested).sum())


def _compact_node(node: xr.Dataset, cells: xr.DataArray) -> pd.DataFrame:
    """The cells of a node, one column per compiler; each with the status of its trial, where it is of one."""
    import pandas as pd

    status = node["status"]
    if "networks" in cells.coords:  # means of several
        cells = cells.where(cells.notnull(), "")
    elif set(status.dims) <= set(cells.dims):
        cells = cells.where(status.isin(MEASURED), status)
    else:
        cells = cells.where((status != "").any([dim for dim in status.dims if dim not in cells.dims]), "")
    trials = cells.to_dataset(name="cell")
    grid = expand_labels(trials)["cell"]
    names = factor_dims(trials)
    keys = [key for key in ("workload", *names, "device", "batch_size") if key in grid.dims]
    grid = grid.transpose(*keys, "compiler")
    rows = pd.MultiIndex.from_product([grid[key].values for key in keys], names=keys).to_frame(index=False)
    rows = rows.astype(dict.fromkeys(names, object))  # integers stay integers beside nodes without them
    columns = grid["compiler"].values.tolist()
    table = pd.DataFrame(grid.values.reshape(-1, len(columns)), columns=columns)
    requested = (table != "").any(axis="columns")
    return rows.join(table)[requested]


def _select(trials: pd.DataFrame, labels: list[str], select: Select) -> tuple[pd.DataFrame, list[str]]:
    """The selected rows, and the compilers whose columns are selected; `labels` are the columns with labels."""
    compilers = [name for name in trials.columns if name not in labels]
    for label in (selected := list_selected(select.get("compiler", compilers))):
        if label not in compilers:
            raise UnknownNameError("compiler", str(label), compilers)
    rows = {dim: selection for dim, selection in select.items() if dim != "compiler"}
    return select_rows(trials, rows, labels), selected


def _compute_figure(node: xr.Dataset, figure: str, by: Groups | None) -> xr.DataArray:
    """The numbers of a figure as objects: estimates, if it is a metric and the dataset has rounds."""
    if by is not None:
        metric = find_metric(figure, load_frame_metrics())
        return _compute_estimates(node, metric, partial(means.mean, metric=figure, by=by, unlike="mask"))
    if figure in (figures := _load_figures()):
        metric, options = figures[figure]
        return estimate(node, metric, **options)
    if figure == "latency":
        return _mark_unchecked(node, compute_latency(node))
    if figure not in node:
        raise MetricError(f"this dataset has no {figure!r}. Measure again with this ngbkit.")
    return _mark_unchecked(node, node[figure])


def estimate(node: xr.Dataset, metric: Metric, **options: Any) -> xr.DataArray:
    """Estimate a metric of a node as objects: estimates, where it has rounds; NaN where contracts differ."""
    return _compute_estimates(node, metric, partial(metric.compute_masked, **options))


def _compute_estimates(node: xr.Dataset, metric: Metric, compute: Callable[..., Any]) -> xr.DataArray:
    if not {"latency", "round"} <= set(node.variables):
        numbers: xr.DataArray = compute(node).astype(object)
        return numbers
    result = compute(node, ci=LEVEL)
    numbers = result[next(iter(result.data_vars))]
    is_itself = compare_with_itself(numbers, metric)
    ends = (np.where(is_itself.values, numbers.values, result[f"ci_{end}"].values) for end in _ENDS)
    unchecked, groups = find_unchecked(node), ("workload",) if "networks" in numbers.coords else ()
    unchecked = unchecked.any([dim for dim in unchecked.dims if dim not in numbers.dims or dim in groups])
    is_conclusive = result["conclusive"] | (is_itself & ~unchecked)
    columns = [column.ravel() for column in (numbers.values, *ends, is_conclusive.transpose(*numbers.dims).values)]
    cells = np.empty(numbers.size, dtype=object)
    cells[:] = [Estimate(*column) for column in zip(*columns, strict=True)]
    estimates: xr.DataArray = numbers.copy(data=cells.reshape(numbers.shape))
    return estimates


def compare_with_itself(values: Any, metric: Metric) -> Any:
    """Find the values in which a metric compares a trial with itself: no measured ratio is 1 to the last bit."""
    is_neutral = values == metric.neutral
    return is_neutral if metric.neutral == 1 else is_neutral & (values["compiler"] == BASELINE)


def _mark_unchecked(node: xr.Dataset, numbers: xr.DataArray) -> xr.DataArray:
    """The numbers of trials as objects, with a mark where the trial was not checked."""
    unchecked = find_unchecked(node).broadcast_like(numbers).transpose(*numbers.dims).values.ravel()
    cells = np.empty(numbers.size, dtype=object)
    pairs = zip(numbers.values.ravel().tolist(), unchecked.tolist(), strict=True)
    cells[:] = [Uncertain(number) if is_unchecked else number for number, is_unchecked in pairs]
    return numbers.copy(data=cells.reshape(numbers.shape))


def _explain_marks(data: Data, table: pd.DataFrame) -> list[str]:
    estimates = [cell for cell in table.values.ravel() if isinstance(cell, Estimate) and math.isfinite(cell)]
    notes = []
    if any(not cell.conclusive for cell in estimates):
        notes.append(f"{INCONCLUSIVE} not conclusive: {explain_inconclusive(data)}")
    if any(not cell.bounded for cell in estimates):
        notes.append(f"{UNBOUNDED} without an interval: too few rounds; measure more repeats (-r)")
    return notes


def _list_contradictions(parts: list[tuple[xr.Dataset, xr.DataArray]], select: Select) -> list[str]:
    """The curves that neither their slope nor their retention describes, since they are not monotone."""
    names = []
    for _, cells in parts:
        if "contradictory" not in cells.coords:
            continue
        frame = to_frame(cells["contradictory"].reset_coords(drop=True).to_dataset(name="contradictory"))
        for dim, selection in select.items():
            frame = frame[frame[dim].isin(list_selected(selection))]
        labels = [name for name in frame if name not in ("workload", "device", "compiler", "contradictory")]
        names += [
            f"{row['compiler']} on {row['workload']} {' '.join(f'{name} {row[name]}' for name in labels)}"
            for row in frame[frame["contradictory"]].to_dict("records")
        ]
    if not names:
        return []
    return [f"slope and retention contradict each other, so neither describes: {join_names(names, '; ')}"]


def _explain_times(data: Data, figure: str, metric: Metric | None, rows: int) -> list[str]:
    """Explain how numbers of different rows compare: how far their times differ, or the norm of a metric."""
    if figure == "latency" or (metric and metric.is_absolute):
        return [drift] if rows > 1 and (drift := describe_drift(data)) else []
    if metric and metric.relative_to == ("compiler", "batch_size"):
        return [f"{figure}: a ratio of speed-ups, each measured in rounds with {BASELINE}"]
    if not metric or not metric.is_scaled:
        return []
    if any("anchor_latency" in node for node in nodes(data).values()):
        return [f"{figure}: normalised to {BASELINE} at batch size 1, measured in the same rounds as each batch size"]
    return [f"{figure}: of throughputs minutes apart; {drift}"] if (drift := describe_drift(data)) else []


def compute_latency(node: xr.Dataset) -> xr.DataArray:
    """Compute the median latency of each trial, of the samples that estimates use."""
    samples = select_samples(node)["latency"]
    medians: xr.DataArray = xr.apply_ufunc(arrays.median, samples, input_core_dims=[["repeat"]])
    return medians


def _build_title(figure: str, cells: xr.DataArray) -> str:
    if figure in (metrics := _load_figures()):
        return f"{cells.attrs['long_name']}{metrics[figure][0].unit_suffix}"
    symbol = VARIABLES[figure].unit_symbol
    long_name = "median latency" if figure == "latency" else VARIABLES[figure].long_name
    return f"{long_name} ({symbol})" if symbol else long_name


def _load_figures() -> dict[str, tuple[Metric, Mapping[str, Any]]]:
    """Load the metric of each figure, with its options."""
    figures: dict[str, tuple[Metric, Mapping[str, Any]]] = {}
    for name, metric in load_metrics().items():
        if metric.is_tabulated:
            tables = {name: {}, **metric.variants}
            figures |= {figure: (metric, options) for figure, options in tables.items()}
    return figures
