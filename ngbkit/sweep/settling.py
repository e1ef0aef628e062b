"""The choice of conclusive trials: trials with enough rounds that no other work slowed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ngbkit.sweep.records import Measurement, Record
from ngbkit.sweep.trials import Bundle
from ngbkit.sweep.variables import NO_ROUND, WAVE_STRIDE

LEAST_ROUNDS = 6
"""The uncontended rounds of a conclusive trial, if it was contended at all: as many as an interval of 95 % needs."""

LEAST_SHARE = 0.5
"""The least share of its rounds that have an uncontended sample."""


def find_conclusive(rounds: NDArray[np.integer], contended: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Find the conclusive trials from the rounds of samples and their marks, ``(..., samples)``."""
    every, clean = _count_distinct(rounds), _count_distinct(np.where(contended, NO_ROUND, rounds))
    marked = (contended & (rounds >= 0)).any(axis=-1)
    return np.asarray(~marked | ((clean >= LEAST_ROUNDS) & (clean >= LEAST_SHARE * every)))


def count_waves(rounds: Iterable[int]) -> int:
    """Count the waves of a trial by the numbers of its rounds: those of new processes are far from the others."""
    return 1 + int(number_waves(np.unique([*rounds])).max(initial=0))


def number_waves(rounds: NDArray[np.integer]) -> NDArray[np.intp]:
    """Number the wave of each round, of ascending round numbers."""
    return np.cumsum(np.diff(rounds, prepend=rounds[:1]) > WAVE_STRIDE // 2)


def list_inconclusive(bundles: Iterable[Bundle], records: Iterable[Record]) -> set[str]:
    """List the ids of trials and anchors in bundles with a trial that is not conclusive: they are measured together."""
    inconclusive = {
        record.trial_id for record in records if isinstance(record, Measurement) and not is_conclusive(record)
    }
    listed: set[str] = set()
    for bundle in bundles:
        ids = {trial.id for group in bundle.groups for trial in (*group.trials, *group.anchors)}
        listed |= ids if ids & inconclusive else set()
    return listed


def is_conclusive(record: Measurement) -> bool:
    """Return whether a measured trial has enough uncontended rounds."""
    return bool(find_conclusive(np.asarray(record.rounds, dtype=np.intp), _mark_contended(record)))


def select_latency(record: Measurement) -> NDArray[np.float64]:
    """Select the samples that estimates use: uncontended ones of a conclusive trial, and all of another."""
    latency = np.asarray(record.latency_s)
    return latency[~_mark_contended(record)] if is_conclusive(record) else latency


def _mark_contended(record: Measurement) -> NDArray[np.bool_]:
    return np.isin(np.arange(len(record.rounds)), record.contended_samples)


def _count_distinct(numbers: NDArray[np.integer]) -> NDArray[np.intp]:
    """Count the distinct numbers of at least 0 in each row."""
    ordered = np.sort(numbers, axis=-1)
    first = np.diff(ordered, axis=-1, prepend=NO_ROUND) > 0
    return np.asarray(np.count_nonzero(first & (ordered >= 0), axis=-1))
