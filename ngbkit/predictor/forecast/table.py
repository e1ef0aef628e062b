"""Trials as numbers: what a surrogate tells them apart by."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ngbkit import registry
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.trials import Trial
from ngbkit.workloads import counts
from ngbkit.workloads.base import Source, Workload

Floats = NDArray[np.float64]
Facts = Mapping[str, float | None]
Factors = tuple[tuple[str, float], ...]
FactsOf = Callable[[Trial], Facts]
"""What is known of the network of a trial: its macs, parameters and others."""

# Of a network what is likely to matter: its work and its weights, and what goes in and out.
_FACTS = ("macs", "mult_adds", "weight_bytes", "input_bytes", "output_bytes")
# Of these, what grows with the batch.
_BY_SAMPLE = frozenset({"macs", "mult_adds", "input_bytes", "output_bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Trials, a row each.

    Parameters
    ----------
    trials
        In the order of the rows.
    numbers
        Size of the network and of the batch, and the factors: standardised logarithms, of shape ``(trials, numbers)``.
    network, compiler, device
        Which rows are of the same, as numbers of shape ``(trials,)``.
    """

    trials: tuple[Trial, ...]
    numbers: Floats
    network: NDArray[np.intp]
    compiler: NDArray[np.intp]
    device: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.trials)

    @classmethod
    def of(cls, trials: Sequence[Trial], facts_of: FactsOf) -> Table:
        """The table of trials, in their order."""
        factors = sorted({name for trial in trials for name, _ in trial.factors})
        found = {key: facts_of(trial) for trial in trials for key in [(trial.workload_id, trial.factors)]}
        rows = [_row(trial, found[trial.workload_id, trial.factors], factors) for trial in trials]
        return cls(
            trials=tuple(trials),
            numbers=_standardised(np.array(rows, dtype=float).reshape(len(rows), -1)),
            network=_codes([trial.workload_id for trial in trials]),
            compiler=_codes([trial.compiler for trial in trials]),
            device=_codes([trial.device for trial in trials]),
        )


def counted(sweep: Sweep) -> FactsOf:
    """What counting tells of the networks of a sweep; nothing of one that cannot be built here."""
    workloads = {workload.id: workload for workload in sweep.workloads}

    @cache
    def facts(workload_id: str, factors: Factors) -> Facts:
        return _counted(workloads[workload_id], dict(factors))

    return lambda trial: facts(trial.workload_id, trial.factors)


def _counted(workload: Workload, factors: Mapping[str, float]) -> Facts:
    try:
        source: Source = registry.load(registry.WORKLOADS, workload.source)
        found = counts.count(source.build(workload, factors))
    except Exception:  # noqa: BLE001  a user's own code may raise anything, and the sweep will say what
        return {}
    return {name: getattr(found, name) for name in _FACTS}


def _row(trial: Trial, facts: Facts, factors: Sequence[str]) -> list[float]:
    own = dict(trial.factors)
    sizes = [_log((facts.get(name) or math.nan) * (trial.batch_size if name in _BY_SAMPLE else 1)) for name in _FACTS]
    return [math.log(trial.batch_size), *sizes, *(_log(own.get(name, math.nan)) for name in factors)]


def _log(value: float) -> float:
    # A factor may be 0 or below: such a one stays as it is.
    return math.log(value) if value > 0 else float(value)


def _standardised(values: Floats) -> Floats:
    """Each column with the mean 0 and the deviation 1; what is not known is in the middle."""
    known = np.isfinite(values)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, values, 0).sum(axis=0) / count
    centred = np.where(known, values - mean, 0)
    deviation = np.sqrt((centred**2).sum(axis=0) / count)
    return np.asarray(centred / np.where(deviation > 1e-9, deviation, 1.0))


def _codes(labels: Sequence[str]) -> NDArray[np.intp]:
    known = {label: at for at, label in enumerate(dict.fromkeys(labels))}
    return np.array([known[label] for label in labels], dtype=np.intp)
