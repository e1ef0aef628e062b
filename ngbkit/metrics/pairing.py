"""Pairs two runs of one sweep, on two machines or two days, and compares their trials."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.contention import find_unchecked
from ngbkit.dataset.dataset_hash import ALTERED
from ngbkit.dataset.long_form import list_labels, to_frame
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError, UsageError
from ngbkit.hardware import environment
from ngbkit.metrics.beside import identify_trial, list_turns, split_sides
from ngbkit.metrics.compared_runs import list_differences, pair_runs
from ngbkit.metrics.comparison import Comparison
from ngbkit.metrics.contracts import describe_differences
from ngbkit.metrics.drift import estimate_apart_sd
from ngbkit.metrics.gates.gate import judge_lost
from ngbkit.metrics.metric import Metric, find_metric, load_frame_metrics
from ngbkit.metrics.statistics import bound_ratio, estimate_deviation
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.records import MEASURED, OPEN
from ngbkit.user_text import format_value

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ("device", "compiler", "batch_size")
VALUES = ("value", "low", "high", "conclusive", "rounds", "reason", "unchecked", "contract")
_MOST_LABELS = 4


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
    has_baseline = all(BASELINE in list_labels(data, "compiler") for data in (first, second))
    usual = "speedup" if has_baseline and not runs.is_changed else "throughput"
    record = find_metric(metric or usual, load_frame_metrics())
    origins, outcomes = (compute_values(data, record) for data in (first, second))
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
        columns_of = [frame[name] for frame in (earlier, later) for name in ("workload", "device")]
        names_of = [", ".join(column.unique()[:4]) for column in columns_of]
        raise UsageError(
            f"no trial in common: the first dataset has {names_of[0]} on {names_of[1]}, the second {names_of[2]} on "
            f"{names_of[3]}. Compare two runs of one sweep."
        )
    columns = ["workload", *dict.fromkeys([*factors, *others]), *_KEYS]
    drift_sd = 0.0 if record.relative_to else math.hypot(*map(estimate_apart_sd, (first, second)))
    turns = {} if record.relative_to else list_turns(first, second, runs.renamed)
    labels_of_trials = joined[columns].to_dict("records") if turns else []
    paired = [turns.get(identify_trial(each), (math.nan, math.nan)) for each in labels_of_trials]
    if paired and not any(math.isnan(ratio) for ratio, _ in paired):
        drift_sd = 0.0
    counts: Counter[str] = Counter()
    for (before, after), pairs in joined.groupby(["contract_first", "contract_second"]):
        if before and after and (lines := describe_differences(json.loads(str(after)), json.loads(str(before)))):
            counts[", ".join(lines)] += len(pairs)
    incomparable = list_differences(first, second, environment.find_hardware_differences)
    incomparable += [f"{count} trials were timed with {lines}" for lines, count in counts.items()]
    unlike = list_differences(first, second, environment.find_differences)
    altered = [name for name, data in (("first", first), ("second", second)) if data.attrs.get(ALTERED)]
    unlike += [f"the file of the {name} run was altered" for name in altered]
    return Comparison(
        metric=record.name,
        runs=runs,
        trials=_compute_changes(joined, columns, drift_sd, paired),
        unlike=tuple(dict.fromkeys([*incomparable, *unlike])),
        incomparable=tuple(incomparable),
        missing=sum(int((~_find_matched(frame, joined, keys)).sum()) for frame in (earlier, later)),
        keys=columns,
        lost=_list_lost(origins, outcomes, joined, keys),
        drift_sd=drift_sd,
        left_out=tuple(_describe_left_out(earlier, later, keys, runs.names)),
    )


def compare_sides(data: Data, label: str, name: str = "this run", metric: str | None = None) -> Comparison:
    """Compare the networks of an earlier run, which have that label, with those measured beside them."""
    return compare(*split_sides(data, label), metric or "throughput", names=(label, name))


def compute_values(data: Data, metric: Metric) -> pd.DataFrame:
    """The metric of every trial that has one, with its interval; and those that failed, with their reason."""
    import pandas as pd

    frames, problem = [], None
    for node in nodes(data).values():
        try:
            result = metric.compute_masked(node, ci=LEVEL)
        except MetricError as error:
            problem = error
            continue
        blank = xr.full_like(result[metric.name].reset_coords(drop=True), "", dtype=object)
        node = node.assign({name: blank for name in ("status", "error") if name not in node})
        columns = {"value": metric.name, "low": "ci_low", "high": "ci_high", "conclusive": "conclusive"}
        variables = {column: result[name] for column, name in columns.items()}
        variables["rounds"] = xr.apply_ufunc(_count_rounds, node["round"], input_core_dims=[["repeat"]])
        reasons = node["status"].astype(str) + ": " + node["error"].astype(str)
        variables["reason"] = reasons.where(~node["status"].isin(["", *MEASURED, *OPEN]), "")
        variables["unchecked"] = node["error"].where(find_unchecked(node), "")
        variables["contract"] = node.get("contract", xr.full_like(node["error"], ""))
        frame = to_frame(xr.Dataset(variables))
        frames.append(frame[np.isfinite(frame["value"]) | (frame["reason"] != "")])
    if not frames:
        raise problem or UsageError("this dataset has no trial. Use the dataset of a run.")
    values: pd.DataFrame = pd.concat(frames, ignore_index=True)
    return values


def _compute_changes(
    joined: pd.DataFrame, keys: list[str], drift_sd: float, paired: Sequence[tuple[float, float]] = ()
) -> pd.DataFrame:
    """Compute the change of each trial with its interval, which allows for drift unless its rounds are `paired`."""
    change = joined["value_second"] / joined["value_first"]
    deviations = [estimate_deviation(joined[f"low_{run}"], joined[f"high_{run}"]) for run in ("first", "second")]
    deviation = np.sqrt(sum(each**2 for each in deviations) + drift_sd**2)
    if paired:
        ratios, of_turns = np.array(paired).T
        change = change.where(np.isnan(ratios), ratios)
        deviation = np.where(np.isnan(ratios), deviation, of_turns)
    _, low, high = bound_ratio(np.log(change), deviation)
    verdicts = np.where(low > 1, "higher", np.where(high < 1, "lower", "same"))
    names = {f"{end}_{run}": f"{run}_{end}" for run in ("first", "second") for end in ("low", "high")}
    trials = joined.rename(columns={"value_first": "first", "value_second": "second", **names})
    conclusive = joined["conclusive_first"].astype(bool) & joined["conclusive_second"].astype(bool)
    rounds = joined[["rounds_first", "rounds_second"]].min(axis=1)
    columns = {"change": change, "change_low": low, "change_high": high, "conclusive": conclusive, "rounds": rounds}
    trials = trials.assign(**columns, **{"is": verdicts}, unchecked=_list_unchecked(joined))
    numbers = [f"{column}{end}" for column in ("first", "second", "change") for end in ("", "_low", "_high")]
    changes: pd.DataFrame = trials[[*keys, *numbers, "rounds", "conclusive", "is", "unchecked"]]
    return changes


def _list_unchecked(joined: pd.DataFrame) -> list[str]:
    """List why trials were not checked in either run; empty where they were."""
    texts = []
    for first, second in zip(joined["unchecked_first"], joined["unchecked_second"], strict=True):
        runs = [run for run, reason in (("the first run", first), ("the second run", second)) if reason]
        texts.append(f"not checked in {' and '.join(runs)}: {first or second}" if runs else "")
    return texts


def _count_rounds(rounds: np.ndarray) -> np.ndarray:
    """Count the distinct numbers of each row that are not negative."""
    ordered = np.sort(np.nan_to_num(np.asarray(rounds, float), nan=-1), axis=-1)
    return np.asarray(np.count_nonzero(np.diff(ordered, axis=-1, prepend=-1) > 0, axis=-1))


def _find_matched(frame: pd.DataFrame, joined: pd.DataFrame, keys: list[str]) -> np.ndarray:
    """Find which trials of a run are matched by a trial of the other one."""
    merged = frame.merge(joined[keys].drop_duplicates(), on=keys, how="left", indicator=True)
    return np.asarray(merged["_merge"] == "both")


def _list_lost(origins: pd.DataFrame, outcomes: pd.DataFrame, joined: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """List the trials of the first run that no value of the second matches, each with a gate's verdict and reason."""
    lost = origins[(origins["reason"] != "") | ~_find_matched(origins, joined, keys)].drop(columns=[*VALUES[:5]])
    after = outcomes[[*keys, "reason"]].drop_duplicates(keys)
    both = lost.merge(after, on=keys, how="left", suffixes=("", "_after"))
    pairs = zip(both["reason"], both["reason_after"].fillna(""), strict=True)
    verdicts = [judge_lost(*pair) for pair in pairs]
    columns = {name: [verdict[name] for verdict in verdicts] for name in ("verdict", "reason")}
    return both.drop(columns=["unchecked", "contract", "reason_after"]).assign(**columns)


def _describe_left_out(
    earlier: pd.DataFrame, later: pd.DataFrame, keys: list[str], names: tuple[str, str]
) -> Iterator[str]:
    """Describe the labels that only one run has, and the factors that only one varies."""
    for frame, other, name in ((earlier, later, names[0]), (later, earlier, names[1])):
        for column in map(str, frame):
            if column in keys:
                others = set(other[column])
                labels = [label for label in frame[column].unique() if label not in others and label == label]
                if labels:
                    texts = [*map(format_value, labels[:_MOST_LABELS]), *["…"][: len(labels) > _MOST_LABELS]]
                    yield f"only {name} has {column.replace('_', ' ')} {', '.join(texts)}"
            elif column not in VALUES:
                yield f"only {name} varies {column}: each value is compared with the same trial of the other run"
