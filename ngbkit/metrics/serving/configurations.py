"""The configurations of networks, with their throughput and a quantile of their latency.

A bootstrap never exceeds the slowest sample, and so would be sure of a tail that few samples show. Here each replicate
gives the rounds random weights, and what lies beyond the slowest sample a weight of its own, as if one more sample were
there: of n independent samples below a deadline, that yields the probability 1 - q^n that a share q of all calls keeps
it, which is that of order statistics (Hahn and Meeker, "Statistical Intervals", section 5.3); it needs 299 samples for
0.95 at q = 0.99. Rounds are weighted as wholes, since the samples of one resemble each other: the weights are those of
Rubin's Bayesian bootstrap (1981), with the variance of independent rounds. The weight beyond the slowest sample grows
by the design effect (Kish, 1965): n samples that resemble each other know as little of the tail as n / design effect
independent ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.contention import select_samples
from ngbkit.dataset.long_form import expand_labels, list_factors, list_labels, list_trial_dims
from ngbkit.dataset.storage import Data
from ngbkit.device.timing import correlation, intervals
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError
from ngbkit.metrics import arrays, contracts, ratios
from ngbkit.metrics.contracts import Unlike
from ngbkit.metrics.draws import DRAWS
from ngbkit.metrics.scaling import THROUGHPUT
from ngbkit.metrics.unchecked import describe_status
from ngbkit.sweep.column import BASELINE

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.floating[Any]]

_SEED = 0
# Weights in memory at once: 16 MB.
_WEIGHTS = 1 << 21
_LEAST_SHAPE = 1 / 3
_TAIL = 0.9

NUMBERS = ("throughput", "throughput_low", "throughput_high", "latency", "latency_low", "latency_high")


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
    probability a lower one; ``conclusive``, ``status`` and ``error``; and ``excluded``, the reason why it is none to
    choose, or empty.
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
    mask = contracts.mask_unlike(node, "choose", unlike, is_ranked=True)
    # A sample spans the calls of a block, times the calls in flight at once.
    calls = node["calls_per_sample"].fillna(1) if "calls_per_sample" in node else xr.ones_like(grid)
    if "contract" in node:
        calls = calls * contracts.extract_field(node, "overlap", 1).astype(int)
    variables = {
        "throughput": rates["throughput"],
        "throughput_low": rates["ci_low"],
        "throughput_high": rates["ci_high"],
        "conclusive": prepared["conclusive"],
        "deviation": prepared["process_sd"],
        "stopped": prepared["stopped"],
        "measured": node["latency"].notnull().sum("repeat"),
        "calls": calls,
        "untuned": contracts.mask_untuned(node) if "contract" in node and not untuned else xr.DataArray(False),
        "unlike": xr.DataArray(False) if mask is None else mask,
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
    draws = draw_quantiles(latency, rounds, quantile, DRAWS, generator)
    draws = draws * np.exp(trial["deviation"] * generator.standard_normal(DRAWS))
    level = intervals.adjust_level(LEVEL, int(trial["stopped"]))
    low, high = intervals.compute_interval(draws[:, None], level, [len(np.unique(rounds))])
    is_known = not (math.isnan(deadline_s) or np.isnan(draws).any())
    effect = estimate_design_effect(latency, rounds, quantile)
    return {
        "latency": estimate_quantile(latency, quantile),
        "latency_low": float(low[0]),
        "latency_high": float(high[0]),
        "probability": float((draws <= deadline_s).mean()) if is_known else math.nan,
        "samples_needed": count_needed_samples(quantile, LEVEL, effect),
    }


def _explain_exclusion(trial: Mapping[str, Any], difference: str) -> str:
    if trial.get("status", "ok") != "ok":
        return describe_status(str(trial["status"]), str(trial.get("error", "")))
    if not trial["measured"]:
        return "no samples"
    if trial["unlike"]:
        return f"timed under another contract than {BASELINE}: {difference}"
    return "untuned, although its compiler can be tuned" if trial["untuned"] else ""


def estimate_quantile(latency: Floats, quantile: float) -> float:
    """Estimate a quantile of samples without NaN, by Hazen's rule; at most the slowest of them."""
    return float(np.quantile(latency, quantile, method="hazen")) if len(latency) else math.nan


def draw_quantiles(
    latency: Floats, rounds: NDArray[Any], quantile: float, draws: int, generator: np.random.Generator
) -> Floats:
    """Draw replicates, ``(draws,)``, of a quantile of samples without NaN; infinite beyond the slowest sample.

    NaN with fewer than two rounds. `rounds` numbers the round of each sample.
    """
    _, codes = np.unique(rounds, return_inverse=True)
    count = int(codes.max(initial=-1)) + 1
    if count < 2:
        return np.full(draws, np.nan)
    order = np.argsort(latency, kind="stable")
    ordered, codes_ordered = np.append(latency[order], np.inf), codes[order]
    # The variance of a mean of rounds is that of independent ones: Dirichlet weights of shape 1 have a smaller one.
    shape = max(_LEAST_SHAPE, (count - 2) / count)
    beyond = shape * estimate_design_effect(latency, rounds, quantile)
    places = np.empty(draws, dtype=np.intp)
    step = max(1, _WEIGHTS // len(latency))
    for start in range(0, draws, step):
        size = min(step, draws - start)
        weights = generator.gamma(shape, size=(size, count))[:, codes_ordered]
        reached = np.cumsum(weights, axis=1)
        total = reached[:, -1] + beyond * generator.standard_exponential(size)
        places[start : start + size] = np.count_nonzero(reached < quantile * total[:, None], axis=1)
    replicates: Floats = ordered[places]
    center = estimate_quantile(latency, quantile)
    with np.errstate(divide="ignore", invalid="ignore"):  # as the intervals of all metrics are widened
        factor = float(correlation.estimate_inflation(np.log(arrays.round_medians(latency, codes))))
    return center * (replicates / center) ** factor if factor > 1 and center > 0 else replicates


def estimate_design_effect(latency: Floats, rounds: NDArray[Any], quantile: float) -> float:
    """Estimate how many times the samples are as many as the independent ones that know as much of a tail; at least 1.

    It is 1 + (m - 1) r for m samples a round and an intraclass correlation r of being slow: beyond the quantile, or
    among the slowest tenth, since fewer samples show no correlation.
    """
    _, codes, sizes = np.unique(rounds, return_inverse=True, return_counts=True)
    samples, count = len(latency), len(sizes)
    if count < 2 or samples == count:
        return 1.0
    slow = (latency > np.quantile(latency, min(quantile, _TAIL))).astype(float)
    shares = np.bincount(codes, slow) / sizes
    between = float((sizes * (shares - slow.mean()) ** 2).sum()) / (count - 1)
    within = float(((slow - shares[codes]) ** 2).sum()) / (samples - count)
    width = (samples - float((sizes**2).sum()) / samples) / (count - 1)
    spread = between + (width - 1) * within
    share = (between - within) / spread if spread > 0 else 0.0
    return 1 + (width - 1) * min(max(share, 0.0), 1.0)


def count_needed_samples(quantile: float, level: float, design_effect: float = 1.0) -> int:
    """Count the samples from which on an interval of that level bounds a quantile from above."""
    return math.ceil(design_effect * math.log((1 - level) / 2) / math.log(quantile))
