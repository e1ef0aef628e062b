"""Seeded records that no network was run for: for tests, and for pages about plots. They say so in their facts.

The shape is that of real ones: a call costs something whatever its batch, compilers differ in both parts of that cost,
the compilers of a group drift together from round to round, and now and then a sample is slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args
from zlib import crc32

import numpy as np
import xarray as xr

from ngbkit.dataset import assembly as datasets
from ngbkit.dataset.storage import Data
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.records import Contract, Failure, FailureStatus, Measurement, Record
from ngbkit.sweep.trials import BASELINE, Group, Trial

ROUNDS = 10
"""Interleaving rounds that the samples of a trial are spread over."""

SAMPLES = 30
"""Samples of a trial of a sweep that asks for a precision: as if the rule had stopped at its first look."""

_MARK = {"synthetic": True}
_ERRORS: dict[FailureStatus, str] = {
    "failed": "RuntimeError: the fusion pass found a cycle (synthetic)",
    "timeout": "TimeoutError: compiling took longer than 600 s (synthetic)",
    "crashed": "the child was killed by signal 11 (synthetic)",
    "out-of-memory": "MemoryError: 6.1 GB were asked for (synthetic)",
    "not-equivalent": "the outputs differ: RMSE is 41 times the baseline's own (synthetic)",
    "unsupported": "UnsupportedError: operator GridSample (synthetic)",
}


def records(sweep: Sweep, seed: int = 0, failures: float = 0.0) -> list[Record]:
    """A record for every trial of a sweep, without running anything.

    Parameters
    ----------
    sweep
        What would have been measured.
    seed
        The same seed gives the same records; each group has its own stream, whatever else is in the sweep.
    failures
        The share of trials that fail, from 0 to 1, in every way there is.

    Returns
    -------
    list of Record
        In the order of ``sweep.trials()``; each has ``facts["synthetic"]``.
    """
    return [record for group in sweep.groups() for record in _group(group, sweep, seed, failures)]


def dataset(sweep: Sweep, seed: int = 0, failures: float = 0.0, run_id: str = "synthetic") -> Data:
    """The dataset of `records`; it and each of its nodes has the attribute ``synthetic``."""
    found = datasets.assemble(sweep, records(sweep, seed, failures), run_id=run_id)
    for node in found.subtree if isinstance(found, xr.DataTree) else [found]:
        node.attrs["synthetic"] = 1
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """Seconds: of any call, and of each sample in it; and of compiling."""

    call: float
    sample: float
    compiling: float


def _group(group: Group, sweep: Sweep, seed: int, failures: float) -> list[Record]:
    first = group.trials[0]
    name = f"{first.workload}\0{first.factors}\0{first.device}\0{first.batch_size}"
    generator = np.random.default_rng([seed, crc32(name.encode())])
    samples = sweep.repeats or SAMPLES
    rounds = np.arange(samples) * ROUNDS // samples
    drift = np.exp(generator.normal(0, 0.02, ROUNDS).cumsum())[rounds]
    return [
        _failure(trial, generator)
        if generator.random() < failures
        else _measurement(trial, sweep, drift, rounds, generator)
        for trial in group.trials
    ]


def _measurement(
    trial: Trial, sweep: Sweep, drift: np.ndarray, rounds: np.ndarray, generator: np.random.Generator
) -> Measurement:
    cost = _cost(trial)
    noise = np.exp(generator.normal(0, 0.01, len(drift))) + (generator.random(len(drift)) < 0.01) * 0.5
    latency = (cost.call + cost.sample * trial.batch_size) * drift * noise
    precise = 1 if trial.compiler == BASELINE else 1 + generator.random()
    return Measurement(
        trial_id=trial.id,
        latency_s=tuple(latency.tolist()),
        rounds=tuple(rounds.tolist()),
        compile_time_s=cost.compiling,
        first_call_time_s=float(latency[0] * 3),
        contract=Contract(runtime=trial.compiler, threads=sweep.threads or 1, notes="synthetic"),
        rmse=2e-7 * precise,
        baseline_rmse=2e-7,
        max_abs_error=1e-6 * precise,
        looks=0 if sweep.repeats else 1,
        cpu_percent=float(generator.uniform(85, 100)),
        peak_memory_bytes=int(2e8 + 1e7 * trial.batch_size),
        facts=_MARK,
    )


def _failure(trial: Trial, generator: np.random.Generator) -> Failure:
    status: FailureStatus = get_args(FailureStatus)[generator.integers(len(_ERRORS))]
    return Failure(trial_id=trial.id, status=status, stage="compile", error=_ERRORS[status], facts=_MARK)


def _cost(trial: Trial) -> _Cost:
    """The cost of a trial: of its network, scaled by what its compiler makes of the network."""
    factors = dict(trial.factors)
    size = factors.get("depth", 1) * (factors.get("width", 64) / 64) ** 2
    sample = 0.002 * 10 ** _share("sample", trial.workload, trial.device) * size
    gain = 1 if trial.compiler == BASELINE else 0.35 + 0.6 * _share("gain", trial.workload, trial.compiler)
    call = 0.003 * (0.3 + factors.get("depth", 8) / 8) * (0.4 if trial.compiler != BASELINE else 1)
    compiling = 0.0 if trial.compiler == BASELINE else 0.5 + 20 * _share("compile", trial.compiler) * size**0.5
    return _Cost(call=call, sample=sample * gain, compiling=compiling)


def _share(*names: str) -> float:
    """A number from 0 to 1 that depends on the names alone."""
    return crc32("\0".join(names).encode()) / 2**32
