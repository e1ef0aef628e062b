"""Seeded synthetic records, marked as such in their facts, for tests and for documentation of plots.

They resemble measurements: a call has a fixed cost and one per sample, compilers differ in both, the compilers of a
group drift together from round to round, and a few samples are slow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import get_args
from zlib import crc32

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import assemble
from ngbkit.dataset.storage import Data
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.records import Contract, Failure, FailureStatus, Measurement, Record
from ngbkit.sweep.trials import Group, Trial

ROUNDS = 10
"""Interleaving rounds of a trial."""

SAMPLES = 30
"""Samples of a trial of a sweep with a precision: as if the stopping rule had stopped at its first look."""

_REASON = "two runs of the reference differ: the network draws random numbers (synthetic)"
_MARK = {"synthetic": True}
_ERRORS: dict[FailureStatus, str] = {
    "failed": "RuntimeError: the fusion pass found a cycle (synthetic)",
    "timeout": "TimeoutError: compiling took longer than 600 s (synthetic)",
    "crashed": "the child was killed by signal 11 (synthetic)",
    "out-of-memory": "MemoryError: 6.1 GB were asked for (synthetic)",
    "not-equivalent": "the outputs differ: RMSE is 41 times the baseline's own (synthetic)",
    "unsupported": "UnsupportedError: operator GridSample (synthetic)",
}


def make_records(sweep: Grid, seed: int = 0, failures: float = 0.0, unchecked: float = 0.0) -> list[Record]:
    """A record for every trial of a sweep, in its order, without running anything; each has ``facts["synthetic"]``.

    `failures` is the share of trials that fail, and `unchecked` the share of the others whose outputs could not be
    compared, both from 0 to 1. The seed determines the records of a group, regardless of the rest of the sweep.
    """
    records = [record for group in sweep.groups() for record in _make_group(group, sweep, seed, failures)]
    return [_forget_check(record, seed, unchecked) for record in records]


def make_dataset(
    sweep: Grid, seed: int = 0, failures: float = 0.0, run_id: str = "synthetic", unchecked: float = 0.0
) -> Data:
    """The dataset of `make_records`; it and each of its nodes has the attribute ``synthetic``."""
    data = assemble(sweep, make_records(sweep, seed, failures, unchecked), run_id=run_id)
    for node in data.subtree if isinstance(data, xr.DataTree) else [data]:
        node.attrs["synthetic"] = 1
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """Seconds per call, per sample in a call, and to compile."""

    call: float
    sample: float
    compiling: float


def _make_group(group: Group, sweep: Grid, seed: int, failures: float) -> list[Record]:
    first = group.trials[0]
    name = f"{first.workload}\0{first.factors}\0{first.device}\0{first.batch_size}"
    generator = np.random.default_rng([seed, crc32(name.encode())])
    samples = sweep.repeats or SAMPLES
    rounds = np.arange(samples) * ROUNDS // samples
    drift = np.exp(generator.normal(0, 0.02, ROUNDS).cumsum())[rounds]
    return [
        _make_failure(trial, generator)
        if generator.random() < failures
        else _make_measurement(trial, sweep, drift, rounds, generator)
        for trial in group.trials
    ]


def _make_measurement(
    trial: Trial, sweep: Grid, drift: np.ndarray, rounds: np.ndarray, generator: np.random.Generator
) -> Measurement:
    cost = _estimate_cost(trial)
    noise = np.exp(generator.normal(0, 0.01, len(drift))) + (generator.random(len(drift)) < 0.01) * 0.5
    latency = (cost.call + cost.sample * trial.batch_size) * drift * noise
    error = 1 if trial.compiler == BASELINE else 1 + generator.random()
    return Measurement(
        trial_id=trial.id,
        latency_s=tuple(latency.tolist()),
        rounds=tuple(rounds.tolist()),
        compile_time_s=cost.compiling,
        first_call_time_s=float(latency[0] * 3),
        contract=Contract(runtime=trial.compiler, threads=sweep.threads or 1, inputs="fresh", notes="synthetic"),
        rmse=2e-7 * error,
        baseline_rmse=2e-7,
        max_abs_error=1e-6 * error,
        looks=0 if sweep.repeats else 1,
        cpu_percent=float(generator.uniform(85, 100)),
        peak_memory_bytes=int(2e8 + 1e7 * trial.batch_size),
        facts=_MARK,
    )


def _make_failure(trial: Trial, generator: np.random.Generator) -> Failure:
    status: FailureStatus = get_args(FailureStatus)[generator.integers(len(_ERRORS))]
    return Failure(trial_id=trial.id, status=status, stage="compile", error=_ERRORS[status], facts=_MARK)


def _forget_check(record: Record, seed: int, share: float) -> Record:
    """Make that share of the measurements unchecked, drawn beside the numbers of the records, which stay the same."""
    if isinstance(record, Failure) or np.random.default_rng([seed, crc32(record.trial_id.encode())]).random() >= share:
        return record
    return replace(record, unchecked=_REASON, rmse=math.nan, max_abs_error=math.nan)


def _estimate_cost(trial: Trial) -> _Cost:
    """The cost of a trial: its network's cost, scaled by its compiler."""
    factors = {name: value for name, value in trial.factors if not isinstance(value, str)}
    texts = [f"{name}={value}" for name, value in trial.factors if isinstance(value, str)]
    size = factors.get("depth", 1) * (factors.get("width", 64) / 64) ** 2
    size *= 1 + _hash_to_unit("text", *texts) if texts else 1
    sample = 0.002 * 10 ** _hash_to_unit("sample", trial.workload, trial.device) * size
    gain = 1 if trial.compiler == BASELINE else 0.35 + 0.6 * _hash_to_unit("gain", trial.workload, trial.compiler)
    call = 0.003 * (0.3 + factors.get("depth", 8) / 8) * (0.4 if trial.compiler != BASELINE else 1)
    compiling = 0.0 if trial.compiler == BASELINE else 0.5 + 20 * _hash_to_unit("compile", trial.compiler) * size**0.5
    return _Cost(call=call, sample=sample * gain, compiling=compiling)


def _hash_to_unit(*names: str) -> float:
    """A number from 0 to 1 that depends on the names alone."""
    return crc32("\0".join(names).encode()) / 2**32
