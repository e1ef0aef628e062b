"""Trials as rows of numbers, by which a surrogate compares them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ngbkit.sweep.grid import Grid
from ngbkit.sweep.trials import Trial
from ngbkit.workloads import building, counts
from ngbkit.workloads.base import FactorValue, Workload

Floats = NDArray[np.float64]
Facts = Mapping[str, float | None]
Factors = tuple[tuple[str, FactorValue], ...]
FactsOf = Callable[[Trial], Facts]
"""Returns the facts of the network of a trial: its MACs, parameters and others."""

# The facts of a network that are relevant to its latency.
_FACTS = ("macs", "mult_adds", "weight_bytes", "input_bytes", "output_bytes")
# The facts that grow with the batch.
_BY_SAMPLE = frozenset({"macs", "mult_adds", "input_bytes", "output_bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTable:
    """Trials, a row each.

    `numbers` are standardised logarithms of the sizes of the network and the batch and of the factors, of shape
    ``(trials, numbers)``; `network`, `compiler` and `device` are equal codes for equal labels, of shape ``(trials,)``.
    """

    trials: tuple[Trial, ...]
    numbers: Floats
    network: NDArray[np.intp]
    compiler: NDArray[np.intp]
    device: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.trials)

    @classmethod
    def build(cls, trials: Sequence[Trial], facts_of: FactsOf) -> TrialTable:
        """Build the table of trials, in their order."""
        factors = _list_columns(trials)
        facts = {key: facts_of(trial) for trial in trials for key in [(trial.workload_id, trial.factors)]}
        rows = [_build_row(trial, facts[trial.workload_id, trial.factors], factors) for trial in trials]
        return cls(
            trials=tuple(trials),
            numbers=_standardise(np.array(rows, dtype=float).reshape(len(rows), -1)),
            network=_encode_labels([trial.workload_id for trial in trials]),
            compiler=_encode_labels([trial.compiler for trial in trials]),
            device=_encode_labels([trial.device for trial in trials]),
        )


def count_facts(sweep: Grid) -> FactsOf:
    """Return a function that counts the facts of a trial's network, none of a network that cannot be built here."""
    workloads = {workload.id: workload for workload in sweep.workloads}

    @cache
    def facts(workload_id: str, factors: Factors) -> Facts:
        return _count_network(workloads[workload_id], dict(factors))

    return lambda trial: facts(trial.workload_id, trial.factors)


def _count_network(workload: Workload, factors: Mapping[str, FactorValue]) -> Facts:
    try:
        network_counts = counts.count(building.build(workload, factors))
    except Exception:  # noqa: BLE001  a user's code may raise anything, and the sweep will report it
        return {}
    return {name: getattr(network_counts, name) for name in _FACTS}


def _list_columns(trials: Sequence[Trial]) -> list[tuple[str, str]]:
    """List the columns of factors by name: one for a factor with numbers, and one for each text of another."""
    values = {item for trial in trials for item in trial.factors}
    return sorted({(name, value if isinstance(value, str) else "") for name, value in values})


def _code_factor(trial: Trial, name: str, text: str) -> float:
    """The logarithm of a number; for a column of a text, whether the factor has it."""
    value = dict(trial.factors).get(name, math.nan)
    if isinstance(value, str) or text:
        return float(value == text)
    return _compute_log(value)


def _build_row(trial: Trial, facts: Facts, factors: Sequence[tuple[str, str]]) -> list[float]:
    sizes = [
        _compute_log((facts.get(name) or math.nan) * (trial.batch_size if name in _BY_SAMPLE else 1)) for name in _FACTS
    ]
    return [math.log(trial.batch_size), *sizes, *(_code_factor(trial, name, text) for name, text in factors)]


def _compute_log(value: float) -> float:
    # A factor of 0 or below has no logarithm and stays as it is.
    return math.log(value) if value > 0 else float(value)


def _standardise(values: Floats) -> Floats:
    """Scale each column to the mean 0 and the deviation 1; unknown values become the mean."""
    finite = np.isfinite(values)
    count = np.maximum(finite.sum(axis=0), 1)
    mean = np.where(finite, values, 0).sum(axis=0) / count
    centred = np.where(finite, values - mean, 0)
    deviation = np.sqrt((centred**2).sum(axis=0) / count)
    return np.asarray(centred / np.where(deviation > 1e-9, deviation, 1.0))


def _encode_labels(labels: Sequence[str]) -> NDArray[np.intp]:
    codes = {label: code for code, label in enumerate(dict.fromkeys(labels))}
    return np.array([codes[label] for label in labels], dtype=np.intp)
