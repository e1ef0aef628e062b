"""Where records become flat columns, one value a trial, before `dataset` folds them into a grid."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ngbkit.errors import JournalError, UsageError
from ngbkit.sweep import records as formats
from ngbkit.sweep.journal import Row
from ngbkit.sweep.records import Measurement, Record

Entry = tuple[Record, "Sequence[float] | np.ndarray", "Sequence[int] | np.ndarray"]
"""A record, its latencies and its rounds; those two are in the record itself only where it did not come from a row."""

NO_ROUND = -1
"""Stands in `round` where there is no sample: an integer survives a file unchanged, and NaN would make it a float."""

# What a compiler says of its work, under the names that mean the same of each.
_WHY = ("nodes_before", "nodes_after", "nodes_fused", "fallbacks", "graph_breaks")
# column: the field of a measurement, or the fact of a failure, that it holds
_FIELDS = {
    "compile_time": "compile_time_s",
    "compile_time_warm": "compile_time_warm_s",
    "first_call_time": "first_call_time_s",
    "calls_per_sample": "calls_per_sample",
    "interleaved": "interleaved",
    "looks": "looks",
    "cpu_percent": "cpu_percent",
    "process_cpu_percent": "process_cpu_percent",
    "peak_memory": "peak_memory_bytes",
    "gpu_percent": "gpu_percent",
    "gpu_memory": "gpu_memory_bytes",
    "energy": "energy_j",
    "max_abs_error": "max_abs_error",
    "rmse": "rmse",
    "baseline_rmse": "baseline_rmse",
}


def from_row(row: Row) -> Entry:
    """The record of a journal's row, its samples left as arrays beside it.

    Raises
    ------
    JournalError
        The row was cut short, or is no record.
    """
    trial_id, text, latency, rounds = row
    try:
        data = json.loads(text)
        samples, numbers = np.frombuffer(latency or b"", "<f8"), np.frombuffer(rounds or b"", "<i4")
    except ValueError as error:
        raise JournalError(
            f"the record of trial {trial_id} does not read: {error}. Measure that trial again."
        ) from error
    if data.get("kind") == "measurement":
        data["latency_s"] = data["rounds"] = ()
    return formats.from_json(data), samples, numbers


def from_record(record: Record) -> Entry:
    """The record with its samples beside it."""
    return (record, record.latency_s, record.rounds) if isinstance(record, Measurement) else (record, (), ())


def spread(entries: Iterable[Entry], places: Mapping[str, int], repeats: int) -> dict[str, np.ndarray]:
    """Every variable as a column over all trials; of two records of one trial the later counts.

    Parameters
    ----------
    entries
        What was recorded, in any order.
    places
        Where each trial, by its id, is in a column.
    repeats
        How many samples a trial was meant to have, at least.

    Returns
    -------
    dict
        By variable: `latency` and `round` of shape ``(trials, samples)``, everything else of shape ``(trials,)``;
        `median` is the median latency in seconds. `disturbed` has the shape of `round`.

    Raises
    ------
    UsageError
        A record is of a trial that has no place.
    JournalError
        A trial has not as many rounds as samples.
    """
    found, samples, rounds = _unzip(entries)
    strays = [record.trial_id for record in found if record.trial_id not in places]
    if strays:
        raise UsageError(
            f"{len(strays)} of {len(found)} records are of no trial of this sweep (the first: {strays[0]}). "
            "Pass the sweep that they were measured for."
        )
    at = np.array([places[record.trial_id] for record in found], dtype=np.intp)
    latency, numbers = _padded(found, samples, rounds, repeats)
    columns = {
        "latency": _put(latency, at, len(places), np.nan),
        "round": _put(numbers, at, len(places), NO_ROUND),
        "disturbed": _put(_disturbed(found, numbers), at, len(places), 0),
        "median": _put(_medians(latency), at, len(places), np.nan),
    }
    for column, field in _FIELDS.items():
        columns[column] = _put(_numbers(found, field), at, len(places), np.nan)
    for fact in _WHY:
        columns[fact] = _put(_fact(found, fact), at, len(places), np.nan)
    columns["rmse_ratio"] = _rmse_ratio(columns.pop("rmse"), columns.pop("baseline_rmse"))
    for column, texts in _texts(found).items():
        columns[column] = _put(texts, at, len(places), "pending" if column == "status" else "")
    return columns


def spread_anchors(
    entries: Iterable[Entry], places: Mapping[str, int], shape: tuple[int, int]
) -> dict[str, np.ndarray]:
    """The samples of anchors: `anchor_latency` and `anchor_round`, columns of that shape, each anchor at its place."""
    found, samples, rounds = _unzip(entry for entry in entries if entry[0].trial_id in places)
    latency, numbers = _padded(
        found, [each[: shape[1]] for each in samples], [each[: shape[1]] for each in rounds], shape[1]
    )
    at = np.array([places[record.trial_id] for record in found], dtype=np.intp)
    return {
        "anchor_latency": _put(latency, at, shape[0], np.nan),
        "anchor_round": _put(numbers, at, shape[0], NO_ROUND),
    }


def _unzip(entries: Iterable[Entry]) -> tuple[list[Record], list[Any], list[Any]]:
    found: list[Record] = []
    samples: list[Any] = []
    rounds: list[Any] = []
    for record, latency, numbers in entries:
        found.append(record)
        samples.append(latency)
        rounds.append(numbers)
    return found, samples, rounds


def _put(values: np.ndarray, at: np.ndarray, length: int, fill: Any) -> np.ndarray:
    column = np.full((length, *values.shape[1:]), fill, dtype=values.dtype)
    column[at] = values
    return column


def _padded(
    found: Sequence[Record], samples: Sequence[Any], rounds: Sequence[Any], least: int
) -> tuple[np.ndarray, np.ndarray]:
    """Samples and their rounds, one line a record, as wide as the longest and at least as `least`."""
    lengths = np.array([len(each) for each in samples], dtype=np.intp)
    unlike = np.flatnonzero(lengths != np.array([len(each) for each in rounds], dtype=np.intp))
    if len(unlike):
        first = unlike[0]
        raise JournalError(
            f"trial {found[first].trial_id} has {lengths[first]} samples and {len(rounds[first])} rounds; "
            "there must be one round a sample. Measure that trial again."
        )
    filled = np.arange(max(least, lengths.max(initial=0))) < lengths[:, None]
    latency, numbers = np.full(filled.shape, np.nan), np.full(filled.shape, NO_ROUND, dtype=np.int32)
    if filled.any():
        latency[filled] = np.concatenate(samples)
        numbers[filled] = np.concatenate([each for each in rounds if len(each)])
    return latency, numbers


def _medians(latency: np.ndarray) -> np.ndarray:
    medians = np.full(len(latency), np.nan)
    measured = np.isfinite(latency).any(axis=1)
    medians[measured] = np.nanmedian(latency[measured], axis=1)
    return medians


def _numbers(found: Sequence[Record], field: str) -> np.ndarray:
    values = [
        getattr(record, field) if isinstance(record, Measurement) else record.facts.get(field) for record in found
    ]
    return np.array([value if isinstance(value, (int, float)) else None for value in values], dtype=float)


def _fact(found: Sequence[Record], name: str) -> np.ndarray:
    values = [record.facts.get(name) for record in found]
    return np.array([value if isinstance(value, (int, float)) else None for value in values], dtype=float)


def _disturbed(found: Sequence[Record], rounds: np.ndarray) -> np.ndarray:
    """1 where a sample is of a round that is marked as disturbed, of the shape of `rounds`."""
    marked = np.zeros(rounds.shape, dtype=np.int8)
    for at, record in enumerate(found):
        if isinstance(record, Measurement) and record.disturbed_rounds:
            marked[at] = np.isin(rounds[at], record.disturbed_rounds)
    return marked


def _rmse_ratio(rmse: np.ndarray, baseline: np.ndarray) -> np.ndarray:
    ratio: np.ndarray = rmse / np.where(baseline == 0, 2.0**-24, baseline)
    ratio[(rmse == 0) & (baseline == 0)] = 1.0
    return ratio


def _texts(found: Sequence[Record]) -> dict[str, np.ndarray]:
    contracts: dict[Any, str] = {None: ""}
    for record in found:
        if isinstance(record, Measurement) and record.contract not in contracts:
            contracts[record.contract] = json.dumps(asdict(record.contract))
    texts = {
        "contract": [contracts[getattr(record, "contract", None)] for record in found],
        "status": [record.status for record in found],
        "error": [record.error for record in found],
        "facts": [json.dumps(dict(record.facts)) if record.facts else "" for record in found],
    }
    # dtype object: neither netCDF nor zarr changes the values, and one long message does not widen every other.
    return {name: np.array(values, dtype=object) for name, values in texts.items()}
