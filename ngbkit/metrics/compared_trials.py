"""The trials of two runs that are compared: the values of each, and why some are none to judge."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.contention import find_unchecked
from ngbkit.dataset.long_form import to_frame
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL, find_quantile
from ngbkit.errors import MetricError, UsageError
from ngbkit.metrics.contracts import describe_differences
from ngbkit.metrics.gates.gate import describe_lost
from ngbkit.metrics.metric import Metric
from ngbkit.sweep.records import MEASURED, OPEN
from ngbkit.user_text import format_value

if TYPE_CHECKING:
    import pandas as pd

VALUES = ("value", "low", "high", "conclusive", "rounds", "reason", "unchecked", "contract")
_MOST_LABELS = 4


def compute_values(data: Data, metric: Metric, level: float) -> pd.DataFrame:
    """The metric of every trial that has one, with its interval; and those that failed, with their reason."""
    import pandas as pd

    frames, problem = [], None
    for node in nodes(data).values():
        try:
            result = metric.compute_masked(node, ci=level)
        except MetricError as error:
            problem = error
            continue
        columns = {"value": metric.name, "low": "ci_low", "high": "ci_high", "conclusive": "conclusive"}
        variables = {column: result[name] for column, name in columns.items()}
        variables |= {"rounds": _count_rounds(node), "reason": _describe_failures(node)}
        variables["unchecked"] = node["error"].where(find_unchecked(node), "")
        variables["contract"] = node.get("contract", xr.full_like(node["error"], ""))
        frame = to_frame(xr.Dataset(variables))
        frames.append(frame[np.isfinite(frame["value"]) | (frame["reason"] != "")])
    if not frames:
        raise problem or UsageError("this dataset has no trial. Use the dataset of a run.")
    values: pd.DataFrame = pd.concat(frames, ignore_index=True)
    return values


def compute_changes(
    joined: pd.DataFrame, keys: list[str], drift_sd: float, paired: Sequence[tuple[float, float]] = ()
) -> pd.DataFrame:
    """Compute the change of each trial with its interval, which allows for drift unless its rounds are `paired`."""
    change = joined["value_second"] / joined["value_first"]
    widths = [np.log(joined[f"high_{run}"] / joined[f"low_{run}"]) / 2 for run in ("first", "second")]
    quantile = find_quantile(LEVEL)
    width = np.sqrt(sum(half**2 for half in widths) + (quantile * drift_sd) ** 2)
    if paired:
        ratios, deviations = np.array(paired).T
        change = change.where(np.isnan(ratios), ratios)
        width = np.where(np.isnan(ratios), width, quantile * deviations)
    low, high = change * np.exp(-width), change * np.exp(width)
    verdicts = np.where(low > 1, "higher", np.where(high < 1, "lower", "same"))
    names = {f"{end}_{run}": f"{run}_{end}" for run in ("first", "second") for end in ("low", "high")}
    trials = joined.rename(columns={"value_first": "first", "value_second": "second", **names})
    conclusive = joined["conclusive_first"].astype(bool) & joined["conclusive_second"].astype(bool)
    rounds = joined[["rounds_first", "rounds_second"]].min(axis=1)
    columns = {"change": change, "change_low": low, "change_high": high, "conclusive": conclusive, "rounds": rounds}
    trials = trials.assign(**columns, **{"is": verdicts})
    numbers = [f"{column}{end}" for column in ("first", "second", "change") for end in ("", "_low", "_high")]
    changes: pd.DataFrame = trials[[*keys, *numbers, "rounds", "conclusive", "is"]]
    return changes


def find_winners(trials: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Find the fastest compiler of each group in both runs, and whether the first one surely lost its lead."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for labels, group in trials.groupby(keys, sort=False, dropna=False):
        first, second = (group.iloc[int(group[run].to_numpy().argmax())] for run in ("first", "second"))
        led, lost = first["first_low"] > second["first_high"], second["second_low"] > first["second_high"]
        names = str(first["compiler"]), str(second["compiler"])
        row = dict(zip(keys, labels if isinstance(labels, tuple) else (labels,), strict=True))
        rows.append(
            {**row, "first": names[0], "second": names[1], "another": bool(names[0] != names[1] and led and lost)}
        )
    return pd.DataFrame(rows, columns=[*keys, "first", "second", "another"])


def _count_rounds(node: xr.Dataset) -> xr.DataArray:
    """Count the rounds of every trial."""
    counts: xr.DataArray = xr.apply_ufunc(_count_distinct, node["round"], input_core_dims=[["repeat"]])
    return counts


def _count_distinct(rounds: np.ndarray) -> np.ndarray:
    """Count the distinct numbers of each row that are not negative."""
    ordered = np.sort(np.nan_to_num(np.asarray(rounds, float), nan=-1), axis=-1)
    return np.asarray(np.count_nonzero(np.diff(ordered, axis=-1, prepend=-1) > 0, axis=-1))


def _describe_failures(node: xr.Dataset) -> xr.DataArray:
    """Describe why each trial failed; empty where it did not, or has not been measured."""
    reasons = node["status"].astype(str) + ": " + node["error"].astype(str)
    return reasons.where(~node["status"].isin(["", *MEASURED, *OPEN]), "")


def list_unchecked(joined: pd.DataFrame) -> dict[int, str]:
    """List why trials were not checked in either run, by index."""
    reasons: dict[int, str] = {}
    for index, first, second in zip(joined.index, joined["unchecked_first"], joined["unchecked_second"], strict=True):
        runs = [run for run, reason in (("the first run", first), ("the second run", second)) if reason]
        if runs:
            reasons[index] = f"not checked in {' and '.join(runs)}: {first or second}"
    return reasons


def list_unlike(joined: pd.DataFrame) -> list[str]:
    """List how trials of the second run were timed under another contract than those of the first."""
    counts: Counter[str] = Counter()
    for (first, second), pairs in joined.groupby(["contract_first", "contract_second"]):
        if first and second and (differences := describe_differences(json.loads(str(second)), json.loads(str(first)))):
            counts[", ".join(differences)] += len(pairs)
    return [f"{count} trials were timed with {differences}" for differences, count in counts.items()]


def list_unjudged(origins: pd.DataFrame, outcomes: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """List the trials that failed in the first run, with what became of them in the second."""
    failed = origins[origins["reason"] != ""][[*keys, "reason"]]
    both = failed.merge(outcomes[[*keys, "reason"]], on=keys, how="left", suffixes=("", "_second"))
    pairs = zip(both["reason"], both["reason_second"].fillna(""), strict=True)
    reasons = [describe_lost(first, second) for first, second in pairs]
    unjudged: pd.DataFrame = both[keys].assign(reason=reasons)
    return unjudged


def list_unmatched(frame: pd.DataFrame, joined: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """List the trials of a run that no trial of the other one matches."""
    merged = frame.merge(joined[keys].drop_duplicates(), on=keys, how="left", indicator=True)
    return merged[merged.pop("_merge") == "left_only"]


def describe_left_out(
    earlier: pd.DataFrame, later: pd.DataFrame, keys: list[str], names: tuple[str, str]
) -> Iterator[str]:
    """Describe the labels that only one run has, and the factors that only one varies."""
    for frame, other, name in ((earlier, later, names[0]), (later, earlier, names[1])):
        for column in map(str, frame):
            if column in keys:
                others = set(other[column])
                labels = [label for label in frame[column].unique() if label not in others and label == label]
                if labels:
                    texts = [format_value(label) for label in labels[:_MOST_LABELS]] + ["…"] * (
                        len(labels) > _MOST_LABELS
                    )
                    yield f"only {name} has {column.replace('_', ' ')} {', '.join(texts)}"
            elif column not in VALUES:
                yield f"only {name} varies {column}: each value is compared with the same trial of the other run"
