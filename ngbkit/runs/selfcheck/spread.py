"""The spread of a device: how far speed-ups of one sweep differ from run to run, beyond what their rounds explain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import to_frame
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL, find_quantile
from ngbkit.errors import MetricError
from ngbkit.metrics.scaling import SPEEDUP
from ngbkit.metrics.statistics import widen_for_freedom
from ngbkit.runs.selfcheck.groups import set_process_sd
from ngbkit.sweep.column import BASELINE

if TYPE_CHECKING:
    import pandas as pd

LEAST_RUNS, LEAST_HOURS = 3, 1.0
"""The runs that a spread needs, and the time between the first and the last."""

# What was assumed before counts as many degrees of freedom: three runs that agree by chance do not outweigh it.
_PRIOR = 2


def estimate_deviations(runs: Sequence[Data], device: str, prior: float) -> dict[str, float]:
    """Estimate the standard deviation, between runs, of the logarithm of each compiler's speed-up over identity.

    All networks and batch sizes of a sweep are pooled, with the `prior` deviation that was assumed before. An interval
    of the normal distribution with the result is as wide as one of Student's t with the deviation of so few runs.
    """
    import pandas as pd

    values = [_compute_speedups(data, device).assign(run=number) for number, data in enumerate(runs)]
    frame = pd.concat(values, ignore_index=True)
    keys = [name for name in frame if name not in ("log", "variance", "run")]
    variances: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    for labels, cell in frame.groupby(keys, dropna=False, sort=False):
        if len(cell) >= LEAST_RUNS:
            compiler = str(dict(zip(keys, labels, strict=True))["compiler"])
            between = float(cell["log"].var(ddof=1) - cell["variance"].mean())
            variances.setdefault(compiler, []).append(between)
            counts[compiler] = min(counts.get(compiler, len(cell)), len(cell))
    return {
        compiler: _pool(max(0.0, float(np.mean(parts))), counts[compiler] - 1, prior)
        for compiler, parts in variances.items()
    }


def merge_deviations(sweeps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Merge the deviations of several sweeps: the largest of each compiler."""
    merged: dict[str, float] = {}
    for deviations in sweeps:
        for compiler, deviation in deviations.items():
            merged[compiler] = max(merged.get(compiler, 0.0), deviation)
    return merged


def _compute_speedups(data: Data, device: str) -> pd.DataFrame:
    """The logarithm of each conclusive speed-up on a device, and its variance by its own rounds."""
    import pandas as pd

    frames = []
    for node in nodes(data).values():
        try:
            result = SPEEDUP(set_process_sd(node, 0.0), ci=LEVEL, unlike="mask")
        except MetricError:
            continue
        assert isinstance(result, xr.Dataset)
        frame = to_frame(result)
        usable = (frame["device"] == device) & (frame["compiler"] != BASELINE) & frame["conclusive"].astype(bool)
        frame = frame[usable & (frame["ci_low"] > 0) & np.isfinite(frame["speedup"])]
        half = np.log(frame["ci_high"] / frame["ci_low"]) / 2 / find_quantile(LEVEL)
        columns = frame.drop(columns=["speedup", "ci_low", "ci_high", "conclusive"])
        frames.append(columns.assign(log=np.log(frame["speedup"]), variance=half**2))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["compiler", "log", "variance"])


def _pool(variance: float, freedom: int, prior: float) -> float:
    """Pool a variance of so many degrees of freedom with the prior one, and widen its root as few runs need."""
    pooled = (_PRIOR * prior**2 + freedom * variance) / (_PRIOR + freedom)
    return widen_for_freedom(math.sqrt(pooled), _PRIOR + freedom)
