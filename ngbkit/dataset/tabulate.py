"""Records become flat columns, one value a trial, which `assembly` folds into a grid."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ngbkit.dataset.contention import compute_medians
from ngbkit.errors import JournalError, UsageError
from ngbkit.sweep.journal import Entry
from ngbkit.sweep.records import Measurement, Record
from ngbkit.sweep.settling import find_conclusive
from ngbkit.sweep.variables import COSTS, FACTS, FIELDS, LOWERED, NO_ROUND

# The digits of a trial's id whose number a float holds exactly.
_DIGITS = 10


def from_record(record: Record) -> Entry:
    """The record with its samples beside it."""
    return (record, record.latency_s, record.rounds) if isinstance(record, Measurement) else (record, (), ())


def to_columns(entries: Iterable[Entry], positions: Mapping[str, int], repeats: int) -> dict[str, np.ndarray]:
    """Every variable as a column over all trials, each trial at its position; of two records the later counts.

    `latency`, `round` and `contended` have shape ``(trials, samples)`` with at least `repeats` samples, all others
    ``(trials,)``; `median` is the median latency in seconds, of uncontended samples where there are enough of them.
    """
    records, samples, rounds = _unzip(entries)
    strays = [record.trial_id for record in records if record.trial_id not in positions]
    if strays:
        raise UsageError(
            f"invalid records: got {len(strays)} of {len(records)} that belong to no trial of this sweep (the first: "
            f"{strays[0]}). Pass the sweep that they were measured for."
        )
    indices = np.array([positions[record.trial_id] for record in records], dtype=np.intp)
    latency, numbers = _pad(records, samples, rounds, repeats)
    contended = _find_contended(records, numbers)
    # As every metric does: without the contended samples of conclusive trials.
    dropped = (contended > 0) & find_conclusive(numbers, contended > 0)[:, None]

    def scatter(values: np.ndarray, fill: Any) -> np.ndarray:
        return _scatter(values, indices, len(positions), fill)

    columns = {
        "latency": scatter(latency, np.nan),
        "round": scatter(numbers, NO_ROUND),
        "contended": scatter(contended, 0),
        "median": scatter(compute_medians(np.where(dropped, np.nan, latency)), np.nan),
    }
    for variable in FIELDS:
        columns[variable.name] = scatter(_read_field(records, variable.fills), np.nan)
    for variable in FACTS:
        columns[variable.name] = scatter(_read_fact(records, variable.fills), np.nan)
    for variable in (*COSTS, *LOWERED):
        values = _read_fact(records, variable.fills)
        if not np.isnan(values).all():
            columns[variable.name] = scatter(values, np.nan)
    rmse, baseline = (scatter(_read_field(records, name), np.nan) for name in ("rmse", "baseline_rmse"))
    columns["rmse_ratio"] = _divide_rmse(rmse, baseline)
    for name, texts in _read_texts(records).items():
        columns[name] = scatter(texts, "pending" if name == "status" else "")
    return columns


def to_anchor_columns(
    entries: Iterable[Entry], positions: Mapping[str, int], shape: tuple[int, int], prefix: str = "anchor"
) -> dict[str, np.ndarray]:
    """The samples of anchors, of that shape, each anchor at its position; the variables begin with `prefix`."""
    records, samples, rounds = _unzip(entry for entry in entries if entry[0].trial_id in positions)
    width = shape[1]
    latency, numbers = _pad(records, [line[:width] for line in samples], [line[:width] for line in rounds], width)
    indices = np.array([positions[record.trial_id] for record in records], dtype=np.intp)
    return {
        f"{prefix}_latency": _scatter(latency, indices, shape[0], np.nan),
        f"{prefix}_round": _scatter(numbers, indices, shape[0], NO_ROUND),
        f"{prefix}_contended": _scatter(_find_contended(records, numbers), indices, shape[0], 0),
    }


def to_tie_columns(
    entries: Sequence[Entry], positions: Mapping[str, tuple[int, str]], shape: tuple[int, int]
) -> dict[str, np.ndarray]:
    """As `to_anchor_columns` of ties, whose positions have the trial that each repeats."""
    ties = [entry for entry in entries if isinstance(entry[0], Measurement) and entry[0].trial_id in positions]
    indices = np.array([positions[record.trial_id][0] for record, _, _ in ties], dtype=np.intp)
    repeated = np.array([int(positions[record.trial_id][1][:_DIGITS], 16) for record, _, _ in ties], dtype=float)
    return {
        **to_anchor_columns(ties, {name: index for name, (index, _) in positions.items()}, shape, "tie"),
        "tie_bundle": _scatter(_read_field([record for record, _, _ in ties], "bundle"), indices, shape[0], np.nan),
        "tie": _scatter(repeated, indices, shape[0], np.nan),
    }


def _unzip(entries: Iterable[Entry]) -> tuple[list[Record], list[Any], list[Any]]:
    listed = list(entries)
    records = [record for record, _, _ in listed]
    return records, [samples for _, samples, _ in listed], [rounds for _, _, rounds in listed]


def _scatter(values: np.ndarray, indices: np.ndarray, length: int, fill: Any) -> np.ndarray:
    column = np.full((length, *values.shape[1:]), fill, dtype=values.dtype)
    column[indices] = values
    return column


def _pad(
    records: Sequence[Record], samples: Sequence[Any], rounds: Sequence[Any], least: int
) -> tuple[np.ndarray, np.ndarray]:
    """Samples and their rounds, one line a record, as wide as the longest and at least as `least`."""
    lengths = np.array([len(line) for line in samples], dtype=np.intp)
    unequal = np.flatnonzero(lengths != np.array([len(line) for line in rounds], dtype=np.intp))
    if len(unequal):
        first = unequal[0]
        raise JournalError(
            f"invalid record of trial {records[first].trial_id}: got {lengths[first]} samples and "
            f"{len(rounds[first])} rounds; expected one round a sample. Measure that trial again."
        )
    filled = np.arange(max(least, int(lengths.max(initial=0)))) < lengths[:, None]
    latency, numbers = np.full(filled.shape, np.nan), np.full(filled.shape, NO_ROUND, dtype=np.int32)
    if filled.any():
        latency[filled] = np.concatenate(samples)
        numbers[filled] = np.concatenate([line for line in rounds if len(line)])
    return latency, numbers


def _read_field(records: Sequence[Record], field: str) -> np.ndarray:
    """A field of measurements; a failure may have learnt it before it failed, as a fact."""
    return _to_floats(
        getattr(record, field) if isinstance(record, Measurement) else record.facts.get(field) for record in records
    )


def _read_fact(records: Sequence[Record], name: str) -> np.ndarray:
    return _to_floats(record.facts.get(name) for record in records)


def _to_floats(values: Iterable[Any]) -> np.ndarray:
    return np.array([value if isinstance(value, (int, float)) else None for value in values], dtype=float)


def _find_contended(records: Sequence[Record], rounds: np.ndarray) -> np.ndarray:
    """1 where a sample was contended, of the shape of `rounds`."""
    contended = np.zeros(rounds.shape, dtype=np.int8)
    for index, record in enumerate(records):
        if isinstance(record, Measurement):
            samples = [sample for sample in record.contended_samples if sample < rounds.shape[1]]
            contended[index, samples] = 1
    return contended


def _divide_rmse(rmse: np.ndarray, baseline: np.ndarray) -> np.ndarray:
    ratio: np.ndarray = rmse / np.where(baseline == 0, 2.0**-24, baseline)
    ratio[(rmse == 0) & (baseline == 0)] = 1.0
    return ratio


def _read_texts(records: Sequence[Record]) -> dict[str, np.ndarray]:
    contracts: dict[Any, str] = {None: ""}
    for record in records:
        if isinstance(record, Measurement) and record.contract not in contracts:
            contracts[record.contract] = json.dumps(asdict(record.contract))
    texts = {
        "contract": [contracts[getattr(record, "contract", None)] for record in records],
        "status": [record.status for record in records],
        "error": [record.error for record in records],
        "facts": [json.dumps(dict(record.facts)) if record.facts else "" for record in records],
    }
    profiles = [getattr(record, "profile", None) for record in records]
    if any(profiles):
        texts["profile"] = [json.dumps(profile, separators=(",", ":")) if profile else "" for profile in profiles]
    if any(record.origin for record in records):
        texts["origin"] = [record.origin for record in records]
    # dtype object: neither netCDF nor zarr changes the values, and one long message does not widen every other.
    return {name: np.array(values, dtype=object) for name, values in texts.items()}
