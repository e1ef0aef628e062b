"""The configurations of networks, with their throughput and a quantile of their latency."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit import validation
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.contention import select_samples
from ngbkit.dataset.long_form import expand_labels, list_factors, list_labels, list_trial_dims
from ngbkit.dataset.storage import Data
from ngbkit.device.timing import intervals
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError
from ngbkit.metrics import contracts, quantiles, ratios
from ngbkit.metrics.contracts import Unlike
from ngbkit.metrics.draws import DRAWS
from ngbkit.metrics.scaling import THROUGHPUT
from ngbkit.metrics.unchecked import describe_status
from ngbkit.sweep.column import BASELINE

if TYPE_CHECKING:
    import pandas as pd

_SEED = 0

NUMBERS = ("throughput", "throughput_low", "throughput_high", "latency", "latency_low", "latency_high")


def check_quantile(quantile: float) -> float:
    """Reject what is no quantile, or is below the median."""
    share: float = validation.check("quantile", validation.Quantile, quantile)
    return share


def list_configurations(
    data: Data,
    quantile: float,
    deadline_s: float = math.nan,
    *,
    unlike: Unlike = "mask",
    untuned: bool = False,
) -> pd.DataFrame:
    """Every requested trial of a dataset or tree, one per row, in its order.

    Columns are ``workload, <factors>, device, compiler, batch_size``; ``throughput`` and ``latency``, the quantile of a
    call with the whole batch in seconds, each with ``_low`` and ``_high``; ``probability``, that the quantile is at
    most `deadline_s`; ``samples``, behind the quantile, ``left_out``, the contended ones, and ``samples_needed``, to
    bound it from above; ``calls``, that a sample spans: where these are several, the quantile is an upper bound and the
    probability a lower one; ``conclusive``, ``status`` and
    ``error``; and ``excluded``, the reason why a trial is none to choose, or empty.

    Raises
    ------
    MetricError
        The dataset has no samples in rounds; or contracts differ, and `unlike` is ``"error"``.
    """
    import pandas as pd

    generator = np.random.default_rng(_SEED)
    sampled = [node for node in nodes(data).values() if {"latency", "round"} <= set(node.variables)]
    if not any(bool(node["latency"].notnull().any()) for node in sampled):
        raise MetricError(
            "a quantile of latency needs samples in rounds, which this dataset lacks. Use the dataset of the run."
        )
    parts = []
    for node in sampled:
        rows = _list_trials(expand_labels(node), quantile, deadline_s, unlike, untuned, generator)
        parts.append(pd.DataFrame(rows))
    frame = pd.concat([part for part in parts if len(part)], ignore_index=True)
    labels = ["workload", *list_factors(data), "device", "compiler", "batch_size"]
    table: pd.DataFrame = frame[[*labels, *(name for name in frame if name not in labels)]]
    return table


def _list_trials(
    node: xr.Dataset,
    quantile: float,
    deadline_s: float,
    unlike: Unlike,
    untuned: bool,
    generator: np.random.Generator,
) -> Iterator[dict[str, Any]]:
    dims = list_trial_dims(node)
    samples, prepared = select_samples(node), ratios.prepare(node)
    rates = THROUGHPUT(node, ci=LEVEL)
    assert isinstance(rates, xr.Dataset)
    grid = samples["latency"].isel(repeat=0, drop=True).transpose(*dims)
    variables = {
        "throughput": rates["throughput"],
        "throughput_low": rates["ci_low"],
        "throughput_high": rates["ci_high"],
        "conclusive": prepared["conclusive"],
        "deviation": prepared["process_sd"],
        "stopped": prepared["stopped"],
        "measured": node["latency"].notnull().sum("repeat"),
        "calls": _count_calls(node, grid),
        "untuned": contracts.mask_untuned(node) if "contract" in node and not untuned else xr.DataArray(False),
        "unlike": _mask_unlike(node, unlike),
        **{name: node[name] for name in ("status", "error") if name in node},
    }
    columns = {name: values.broadcast_like(grid).transpose(*dims).values for name, values in variables.items()}
    latency, rounds = (samples[name].transpose(*dims, "repeat").values for name in ("latency", "round"))
    differences = contracts.list_differences(node)
    names = [list_labels(grid, dim) for dim in dims]
    for index in np.ndindex(grid.shape):
        trial = {name: values[index] for name, values in columns.items()}
        if trial.get("status") == "":
            continue
        labels = {dim: values[place] for dim, values, place in zip(dims, names, index, strict=True)}
        present = ~np.isnan(latency[index])
        timed = latency[index][present] * trial["calls"]
        yield {
            **labels,
            **{name: float(trial[name]) for name in NUMBERS[:3]},
            **_estimate_quantile(timed, rounds[index][present], quantile, deadline_s, trial, generator),
            "samples": len(timed),
            "left_out": int(trial["measured"]) - len(timed),
            "calls": int(trial["calls"]),
            "conclusive": bool(trial["conclusive"]),
            "status": str(trial.get("status", "ok")),
            "error": str(trial.get("error", "")),
            "excluded": _explain_exclusion(trial, differences.get(labels["compiler"], "")),
        }


def _estimate_quantile(
    latency: np.ndarray,
    rounds: np.ndarray,
    quantile: float,
    deadline_s: float,
    trial: Mapping[str, Any],
    generator: np.random.Generator,
) -> Mapping[str, float]:
    """The quantile of one trial, its interval, and the probability that it is at most the deadline."""
    if not len(latency):
        return dict.fromkeys((*NUMBERS[3:], "probability", "samples_needed"), math.nan)
    draws = quantiles.draw_quantiles(latency, rounds, quantile, DRAWS, generator)
    draws = draws * np.exp(trial["deviation"] * generator.standard_normal(DRAWS))
    level = intervals.adjust_level(LEVEL, int(trial["stopped"]))
    low, high = intervals.compute_interval(draws[:, None], level, [len(np.unique(rounds))])
    is_known = not (math.isnan(deadline_s) or np.isnan(draws).any())
    effect = quantiles.estimate_design_effect(latency, rounds, quantile)
    return {
        "latency": quantiles.estimate_quantile(latency, quantile),
        "latency_low": float(low[0]),
        "latency_high": float(high[0]),
        "probability": float((draws <= deadline_s).mean()) if is_known else math.nan,
        "samples_needed": quantiles.count_needed_samples(quantile, LEVEL, effect),
    }


def _count_calls(node: xr.Dataset, grid: xr.DataArray) -> xr.DataArray:
    """Count the calls that each sample of a trial spans: the calls of a block, times the calls in flight at once."""
    calls = node["calls_per_sample"].fillna(1) if "calls_per_sample" in node else xr.ones_like(grid)
    return calls * contracts.extract_field(node, "overlap", 1).astype(int) if "contract" in node else calls


def _mask_unlike(node: xr.Dataset, unlike: Unlike) -> xr.DataArray:
    mask = contracts.mask_unlike(node, "choose", unlike, is_ranked=True)
    return xr.DataArray(False) if mask is None else mask


def _explain_exclusion(trial: Mapping[str, Any], difference: str) -> str:
    if trial.get("status", "ok") != "ok":
        return describe_status(str(trial["status"]), str(trial.get("error", "")))
    if not trial["measured"]:
        return "no samples"
    if trial["unlike"]:
        return f"timed under another contract than {BASELINE}: {difference}"
    return "untuned, although its compiler can be tuned" if trial["untuned"] else ""
