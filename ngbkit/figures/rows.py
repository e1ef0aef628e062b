"""The rows of a figure: one per trial, with its value, interval and status."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.contention import find_unchecked
from ngbkit.dataset.long_form import list_factors, to_frame
from ngbkit.dataset.selection import LABELS, Select, select_rows
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.records import MEASURED, OPEN
from ngbkit.user_text import format_value
from ngbkit.workloads.paper import find_family

Values = Callable[[xr.Dataset], xr.Dataset]
"""Computes what a figure draws of a node: ``value``, and optionally ``low``, ``high`` and ``conclusive``."""


def wrap_metric(metric: Callable[..., xr.DataArray | xr.Dataset], ci: float | None) -> Values:
    """Draw a metric of `ngbkit.metrics` with its interval; without one if the dataset has no samples."""

    def compute(node: xr.Dataset) -> xr.Dataset:
        has_samples = {"latency", "round"} <= set(node.variables)
        result = metric(node, ci=ci if has_samples else None)
        if isinstance(result, xr.DataArray):
            return xr.Dataset({"value": result})
        columns = {"ci_low": "low", "ci_high": "high", "conclusive": "conclusive"}
        return result.rename({name: columns.get(str(name), "value") for name in result.data_vars})

    return compute


def count_evaluated(values: Values) -> Values:
    """Count the samples that judge a precision, in place of those that were timed."""

    def compute(node: xr.Dataset) -> xr.Dataset:
        return values(node).assign(samples=node["evaluated_samples"])

    return compute


def wrap_variable(name: str) -> Values:
    """Draw a variable of the dataset."""

    def select(node: xr.Dataset) -> xr.Dataset:
        if name not in node or not node[name].notnull().any():
            raise MetricError(f"this figure draws {name!r}, which this dataset lacks. Use a dataset that measured it.")
        return xr.Dataset({"value": node[name]})

    return select


def build_rows(data: Data, values: Values, select: Select, *, axes: Collection[str] = ()) -> pd.DataFrame:
    """The trials to draw, in the order of the dataset; a `MetricError` if no node has the reference of the values.

    The columns are ``network`` (the workload with its factors but those in `axes`, and its device if there are
    several), ``workload``, the factors, ``device``, ``compiler``, ``batch_size``, ``value``, ``low``, ``high``,
    ``conclusive``, ``status``, ``error``, ``samples`` (their number), and ``parameters`` if the dataset has them.
    Labels are selected after the values are computed, so that their reference need not be selected.
    """
    factors = list_factors(data)
    return _name_panels(_collect_trials(data, values, select), [name for name in factors if name not in axes])


def build_line_rows(data: Data, values: Values, select: Select, *, by_batch: bool) -> tuple[pd.DataFrame, str]:
    """The trials of a line figure as of `build_rows`, and the column along its x axis.

    That is the batch size or the factor with the most numbers, and always the batch size if the figure is `by_batch`.
    """
    frame, factors = _collect_trials(data, values, select), list_factors(data)
    x = "batch_size" if by_batch else choose_axis(frame, factors)
    panels = _name_panels(frame, [name for name in factors if name != x])
    return (panels if x == "batch_size" else split_batch_sizes(panels)), x


def choose_axis(frame: pd.DataFrame, factors: Sequence[str]) -> str:
    """Choose the x axis: the batch size, or a factor of every trial that has more values, all of them numbers."""
    numeric = [name for name in factors if frame[name].notna().all() and not has_texts(frame[name])]
    return max(["batch_size", *numeric], key=lambda name: frame[name].nunique())


def split_batch_sizes(frame: pd.DataFrame) -> pd.DataFrame:
    """Give each batch size panels of its own, if there are several."""
    if frame["batch_size"].nunique() < 2:
        return frame
    return frame.assign(network=frame["network"] + ", batch " + frame["batch_size"].astype(int).astype(str))


def _collect_trials(data: Data, values: Values, select: Select) -> pd.DataFrame:
    frames: list[pd.DataFrame] = []
    problem: MetricError | None = None
    for node in nodes(data).values():
        try:
            frames.append(_flatten(node, values(node)))
        except MetricError as error:
            problem = problem or error
    if problem is not None and not frames:
        raise problem
    factors = list_factors(data)
    trials = pd.concat(frames, ignore_index=True)
    requested = trials[trials["status"] != ""]  # a trial that no run requested has no status
    return select_rows(requested, select, ["workload", *factors, *LABELS])


def _name_panels(frame: pd.DataFrame, factors: Sequence[str]) -> pd.DataFrame:
    """Name the network of each row by these factors, and by its device if there are several."""
    names = name_networks(frame, factors, frame["device"].nunique() > 1)
    frame.insert(0, "network", names)
    return frame


def name_networks(frame: pd.DataFrame, factors: Sequence[str], with_device: bool) -> list[str]:
    """The network of each row, by name."""
    labels = ["workload", *(name for name in factors if name in frame), *(["device"] if with_device else [])]
    # A sweep has many trials of few networks.
    numbers = frame.groupby(labels, sort=False, dropna=False).ngroup().to_numpy()
    firsts = frame[labels].iloc[np.unique(numbers, return_index=True)[1]]
    names = [name_network(row, factors, with_device) for row in firsts.to_dict("records")]
    return [names[number] for number in numbers]


def name_network(trial: Mapping[Any, Any], factors: Sequence[str], with_device: bool) -> str:
    """Name the network of a trial from its labels: ``conv, depth 2 on cpu``."""
    values = [f"{name} {format_value(trial[name])}" for name in factors if name in trial and trial[name] == trial[name]]
    return ", ".join([trial["workload"], *values]) + (f" on {trial['device']}" if with_device else "")


def has_texts(values: pd.Series) -> bool:
    """Return whether values of a factor are texts, which have no order."""
    return any(isinstance(value, str) for value in values)


def require_factor(factor: str, values: Values, figure: str, example: str) -> Values:
    """Draw only nodes that vary a factor; `figure` and `example`, values to sweep, are for the error."""

    def compute(node: xr.Dataset) -> xr.Dataset:
        if factor not in factor_dims(node) or node.sizes[factor] < 2:
            varied = ", ".join(factor_dims(node)) or "no factor"
            raise MetricError(
                f"{figure}() is over {factor!r} and needs at least two values of it; the sweep varies {varied}. "
                f"Add --factor {factor}={example}, for a workload that takes it."
            )
        return values(node)

    return compute


def require_batch_sizes(values: Values, figure: str) -> Values:
    """Draw only nodes with two batch sizes: the efficiency of one alone is 1 by definition."""

    def compute(node: xr.Dataset) -> xr.Dataset:
        if node.sizes["batch_size"] < 2:
            raise MetricError(
                f"{figure}() compares batch sizes, and the sweep has only {int(node['batch_size'][0])}. "
                "Add another, such as -b 1,8."
            )
        return values(node)

    return compute


def drop_baseline(frame: pd.DataFrame, baseline: str = BASELINE) -> pd.DataFrame:
    """The rows of the compilers that are compared with the baseline, whose own value is 1 by definition."""
    compared = frame[frame["compiler"] != baseline]
    return frame if compared.empty else compared.reset_index(drop=True)


def drop_failed_compilers(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows of compilers with any result, and a remark that names the others, whose marks would add nothing."""
    by_compiler = frame.groupby("compiler", sort=False)["status"]
    has_result = by_compiler.agg(lambda statuses: bool(statuses.isin([*MEASURED, *OPEN]).any()))
    failed = has_result.index[~has_result].tolist()
    if not failed or not has_result.any():
        return frame, []
    reasons = {name: ", ".join(dict.fromkeys(frame[frame["compiler"] == name]["status"])) for name in failed}
    remark = f"no result in any trial: {', '.join(f'{name} ({reason})' for name, reason in reasons.items())}"
    return frame[~frame["compiler"].isin(failed)].reset_index(drop=True), [remark]


def order_by_family(frame: pd.DataFrame) -> tuple[list[str], int]:
    """The networks in the order of their panels, and the number of columns.

    If all families have the same number of networks, each row has one size, the smallest first, and each column one
    family, as in the paper's figure 5; otherwise networks are in the order of the frame.
    """
    networks = frame.drop_duplicates("network")
    families: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for number, row in enumerate(networks.to_dict("records")):
        size = row.get("parameters", np.nan)
        member = (float(size) if np.isfinite(size) else float(number), str(row["network"]))
        families.setdefault((row["device"], find_family(row["workload"])), []).append(member)
    heights = {len(members) for members in families.values()}
    if len(heights) == 1 and heights != {1} and 1 < len(families) <= _MOST_COLUMNS:
        lines = zip(*(sorted(members) for members in families.values()), strict=True)
        return [name for line in lines for _, name in line], len(families)
    names = networks["network"].tolist()
    return names, count_columns(len(names))


def find_front(members: pd.DataFrame, sign: int = 1) -> pd.DataFrame:
    """Find the rows that no other equals or exceeds in value in less time; with -1, lower values are better."""
    ordered = members.sort_values(["ms", "value"], ascending=[True, sign < 0])
    goodness = sign * ordered["value"]
    front: pd.DataFrame = ordered[goodness > goodness.cummax().shift(fill_value=-np.inf)]
    return front.assign(kind="front", conclusive=True)


def count_columns(panels: int) -> int:
    """The number of columns that fills all rows of panels about equally."""
    lines = -(-panels // _USUAL_COLUMNS)
    return -(-panels // lines)


_MOST_COLUMNS, _USUAL_COLUMNS = 6, 5


def _flatten(node: xr.Dataset, values: xr.Dataset) -> pd.DataFrame:
    missing = xr.full_like(values["value"], np.nan, dtype=float)
    trials = values.assign({name: missing for name in ("low", "high") if name not in values})
    is_conclusive = trials.get("conclusive", xr.ones_like(missing, dtype=bool))
    trials = trials.assign(conclusive=is_conclusive & ~find_unchecked(node))
    counted = trials.get("samples", None)
    samples = _count_samples(node) if counted is None else counted
    trials = trials.assign(status=node["status"], error=node["error"], samples=samples)
    return to_frame(trials.reset_coords("parameters") if "parameters" in trials.coords else trials)


def _count_samples(node: xr.Dataset) -> xr.DataArray:
    """The number of samples of each trial; NaN without samples, as for published values."""
    if "latency" not in node:
        return xr.full_like(node["status"], np.nan, dtype=float)
    return node["latency"].notnull().sum("repeat")
