"""Pairs two runs of one sweep, on two machines or two days, and compares them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_labels
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import UsageError
from ngbkit.hardware import environment
from ngbkit.metrics.beside import identify_trial, list_turns, split_sides
from ngbkit.metrics.compared_runs import ComparedRuns, compare_environments, list_altered, list_differences, pair_runs
from ngbkit.metrics.compared_trials import (
    VALUES,
    compute_changes,
    compute_values,
    describe_left_out,
    find_winners,
    list_unchecked,
    list_unjudged,
    list_unlike,
    list_unmatched,
)
from ngbkit.metrics.comparison import Comparison
from ngbkit.metrics.drift import estimate_apart_sd
from ngbkit.metrics.metric import find_metric, load_frame_metrics
from ngbkit.sweep.column import BASELINE

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ("device", "compiler", "batch_size")


def compare(
    first: Data, second: Data, metric: str | None = None, *, names: Sequence[str] = (), beside: str = ""
) -> Comparison:
    """Compare two runs of the same sweep, and find the changes beyond uncertainty.

    Parameters
    ----------
    first, second
        The datasets of two runs. Networks are matched by their names, and those without a namesake by their place if
        there are as many in each run. Devices are matched by their labels; if each run has one device, these are
        matched whatever their labels.
    metric
        A metric of each trial. Default: the speed-up, since machines differ in throughput and a result reproduces if
        its speed-ups do; the throughput where a network changed, and its baseline with it, or without a baseline.
    names
        The names of the two runs, for titles.
    beside
        The word by which ``--beside`` names the first run. Default: its id.

    Raises
    ------
    UnknownNameError
        There is no such metric.
    UsageError
        The two have no trial in common.
    MetricError
        A dataset lacks the reference of the metric.

    Notes
    -----
    A change is a ratio of two independent estimates; on a logarithmic scale the half widths of their intervals add in
    quadrature. One in twenty trials changes by chance alone. That of a throughput allows for the drift of the machine
    between both runs (`ngbkit.metrics.drift`), unless the trials took turns in one run: then the ratio is taken round
    by round.
    """
    runs = pair_runs(first, second, names, beside)
    record = find_metric(metric or _choose_metric(first, second, runs), load_frame_metrics())
    origins, outcomes = (compute_values(data, record, LEVEL) for data in (first, second))
    outcomes = outcomes.assign(workload=outcomes["workload"].replace({b: a for a, b in runs.renamed.items()}))
    labels = [frame["device"].unique().tolist() for frame in (origins, outcomes)]
    if all(len(devices) == 1 for devices in labels):
        outcomes = outcomes.assign(device=labels[0][0])
    earlier, later = (frame[np.isfinite(frame["value"])] for frame in (origins, outcomes))
    factors, others = (
        [name for name in map(str, frame) if name not in ("workload", *_KEYS, *VALUES)] for frame in (earlier, later)
    )
    # A factor that one run lacks has no value there: each trial of the other one is matched.
    keys = ["workload", *(name for name in factors if name in others), *_KEYS]
    joined = earlier.merge(later, on=keys, suffixes=("_first", "_second"))
    if joined.empty:
        raise UsageError(
            f"no trial in common: the first dataset has {_name_few(earlier['workload'])} on "
            f"{_name_few(earlier['device'])}, the second {_name_few(later['workload'])} on "
            f"{_name_few(later['device'])}. Compare two runs of one sweep."
        )
    columns = ["workload", *dict.fromkeys([*factors, *others]), *_KEYS]
    drift_sd = 0.0 if record.relative_to else math.hypot(*map(estimate_apart_sd, (first, second)))
    turns = {} if record.relative_to else list_turns(first, second, runs.renamed)
    labels_of_trials = joined[columns].to_dict("records") if turns else []
    paired = [turns.get(identify_trial(each), (math.nan, math.nan)) for each in labels_of_trials]
    if paired and not any(math.isnan(ratio) for ratio, _ in paired):
        drift_sd = 0.0
    trials, unchecked = compute_changes(joined, columns, drift_sd, paired), list_unchecked(joined)
    incomparable = [*list_differences(first, second, environment.find_hardware_differences), *list_unlike(joined)]
    unlike = [*list_differences(first, second, environment.find_differences), *list_altered(first, second)]
    lost, excess = (list_unmatched(frame, joined, keys) for frame in (earlier, later))
    reasons = outcomes[[*keys, "reason"]].drop_duplicates(keys)
    absent = lost[[name for name in columns if name in lost]].merge(reasons, on=keys, how="left")
    has_failed = (absent["reason"].fillna("") != "").to_numpy()
    return Comparison(
        metric=record.name,
        runs=runs,
        trials=trials,
        winners=find_winners(trials[~trials.index.isin(unchecked)], [name for name in columns if name != "compiler"]),
        environments=compare_environments(first, second),
        unlike=tuple(dict.fromkeys([*incomparable, *unlike])),
        incomparable=tuple(incomparable),
        missing=len(lost) + len(excess),
        keys=columns,
        failed=absent[has_failed],
        absent=absent[~has_failed].drop(columns="reason"),
        unjudged=list_unjudged(origins, outcomes, keys),
        unchecked=unchecked,
        drift_sd=drift_sd,
        left_out=tuple(describe_left_out(earlier, later, keys, runs.names)),
    )


def compare_sides(data: Data, label: str, name: str = "this run", metric: str | None = None) -> Comparison:
    """Compare the networks of an earlier run, which have that label, with those measured beside them."""
    return compare(*split_sides(data, label), metric or "throughput", names=(label, name))


def _choose_metric(first: Data, second: Data, runs: ComparedRuns) -> str:
    """Choose the throughput where speed-ups are over other networks, or over none."""
    has_baseline = all(
        any(BASELINE in list_labels(node, "compiler") for node in nodes(data).values()) for data in (first, second)
    )
    return "speedup" if has_baseline and not runs.is_changed else "throughput"


def _name_few(labels: pd.Series[str]) -> str:
    return ", ".join(labels.unique()[:4])
