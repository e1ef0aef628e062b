"""Pairs of different programs: identity against other compilers, whose true speed-up nobody knows.

It is the same in every group, so two things can be told: how far the groups differ beyond what their rounds explain,
and how many of their intervals contain what the other groups measured. Two copies of one program show neither, since
other work slows them alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import xarray as xr

from ngbkit.dataset.contention import conclusive
from ngbkit.dataset.storage import Data
from ngbkit.device.timing import intervals
from ngbkit.device.timing.normal import LEVEL
from ngbkit.metrics.statistics import Floats, estimate_process_sd
from ngbkit.runs.selfcheck.groups import (
    DETECTED,
    compute_intervals,
    compute_log_ratios,
    cross_validate_intervals,
    find_measured,
    flatten,
)
from ngbkit.runs.selfcheck.noise import COPY, compute_quantile, split
from ngbkit.runs.selfcheck.record import Pair
from ngbkit.sweep.column import BASELINE


def estimate(data: Data) -> tuple[Pair, ...]:
    """Estimate each pair from the dataset of a noise check: in its quiet groups, then beside a busy process."""
    quiet, contended = split(data)
    compilers = [str(label) for label in quiet["compiler"].values if label not in (BASELINE, COPY)]
    pairs = [_estimate(quiet, compiler, None) for compiler in compilers]
    if contended is not None:
        pairs += [_estimate(contended, pair.compiler, pair) for pair in pairs]
    return tuple(pairs)


def estimate_group_sd(groups: Sequence[Floats]) -> float:
    """Estimate the standard deviation between groups of a log ratio that is the same in all, about their median."""
    groups = [ratios for ratios in groups if len(ratios) > 1]
    if len(groups) < 2:
        return 0.0
    center = np.median([np.median(ratios) for ratios in groups])
    spread = estimate_process_sd([ratios - center for ratios in groups])
    return spread * math.sqrt(len(groups) / (len(groups) - 1))


def _estimate(dataset: xr.Dataset, compiler: str, quiet: Pair | None) -> Pair:
    """Estimate a pair in its quiet groups, or beside a busy process with what was `quiet` as its reference."""
    beside_busy = quiet is not None
    good = find_measured(dataset, compiler)
    if not good.any():
        problems = (str(text) for text in dataset["error"].sel(compiler=compiler).values.ravel() if text)
        return Pair(compiler=compiler, beside_busy=beside_busy, problem=next(problems, "nothing was measured yet"))
    measured = dataset.isel(replicate=np.flatnonzero(good))
    is_conclusive = flatten(conclusive(measured.sel(compiler=[BASELINE, compiler])).all("compiler"))
    # Without a conclusive group the others still show how far they are bent.
    judged = measured.isel(replicate=np.flatnonzero(is_conclusive)) if is_conclusive.any() else measured
    groups = compute_log_ratios(judged, compiler)
    middles = np.array([np.median(ratios) if len(ratios) else np.nan for ratios in groups])
    low, high = (
        cross_validate_intervals(judged, compiler, groups, estimate_group_sd)
        if quiet is None or not math.isfinite(quiet.group_sd)
        else compute_intervals(judged, compiler, quiet.group_sd)
    )
    centers = _find_centers(middles) if quiet is None else np.full(len(middles), math.log(quiet.speedup))
    bounded = np.isfinite(low) & np.isfinite(high) & np.isfinite(centers)
    ends = intervals.compute_median_interval(middles[np.isfinite(middles)], LEVEL)
    return Pair(
        compiler=compiler,
        beside_busy=beside_busy,
        groups=len(is_conclusive),
        inconclusive=int((~is_conclusive).sum()),
        speedup=float(np.exp(np.nanmedian(middles))),
        low=float(np.exp(ends[0])),
        high=float(np.exp(ends[1])),
        group_sd=estimate_group_sd(groups),
        half_width=compute_quantile((np.exp(high - middles) - np.exp(low - middles)) / 2, DETECTED),
        judged=int(bounded.sum()),
        agreeing=int(((low <= centers) & (centers <= high))[bounded].sum()),
    )


def _find_centers(middles: Floats) -> Floats:
    """Find what the other groups measured, for each group: their median."""
    others = (np.delete(middles, index) for index in range(len(middles)))
    return np.array([np.nanmedian(rest) if np.isfinite(rest).any() else np.nan for rest in others])
