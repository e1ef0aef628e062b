"""The noise of a machine, estimated from the groups of a self-check.

Identity against its copy has a true speed-up of 1: its deviations are noise, and the share of intervals that cover 1 is
their coverage. The true speed-up of another compiler is unknown and the same in every group, so two things can be told:
how far the groups differ beyond what their rounds explain, and how many of their intervals contain what the other
groups measured. Two copies of one program show neither, since other work slows them alike. The intervals are those of
``ds.ngb.speedup(ci=0.95)``, so the coverage applies to the intervals that users see.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from importlib import resources as package_files
from typing import Annotated, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ngbkit import validation
from ngbkit.dataset.contention import conclusive, select_samples
from ngbkit.dataset.storage import Data
from ngbkit.device.timing import intervals
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import UsageError
from ngbkit.metrics import arrays
from ngbkit.metrics.statistics import Floats, estimate_process_sd, estimate_robust_sd, estimate_share
from ngbkit.runs.selfcheck.report import Noise, Pair
from ngbkit.sweep.column import BASELINE, Column
from ngbkit.sweep.grid import Grid
from ngbkit.workloads import cell

COPY = Column(compiler=BASELINE, options={"copy": 1}).label
NETWORK = "block"
# The share of the groups in which a distinguishable difference is detected.
_DETECTED = 0.9
# Cross-validation: the allowance for processes of a group is estimated from the groups of the other folds.
_FOLDS = 10


def build_sweep(groups: int, *, hog: bool = False, compilers: tuple[str, ...] = (), **settings: Any) -> Grid:
    """Build the sweep of a noise check, with other `settings` of a sweep.

    It has at least two `groups`, of two processes of identity and one of each of the `compilers`; with `hog` every
    other group runs beside a busy process, and an odd number of groups is rounded up.
    """
    count = validation.check("groups", Annotated[int, validation.integer(2)], groups)
    source = (package_files.files("ngbkit.runs.selfcheck") / "block.py").read_text(encoding="utf-8")
    factors: dict[str, Any] = {"replicate": range(-(-count // 2) if hog else count)}
    if hog:
        factors["hog"] = (0, 1)
    workloads = cell.from_source(source, name=NETWORK, filename="ngbkit/selfcheck/block.py")
    others = [name for name in compilers if name != BASELINE]
    return Grid(workloads, compilers=(BASELINE, COPY, *others), factors=factors, **settings)


def _split(data: Data) -> tuple[xr.Dataset, xr.Dataset | None]:
    """Split the dataset of such a sweep into its quiet groups, and those beside a busy process."""
    if not isinstance(data, xr.Dataset) or "replicate" not in data.dims or COPY not in data["compiler"]:
        raise UsageError(
            "this run is not a self-check. `ngbkit selfcheck` starts one, and `ngbkit runs` lists all runs."
        )
    if "hog" not in data.dims:
        return data, None
    return data.sel(hog=0, drop=True), data.sel(hog=1, drop=True)


def estimate(data: Data) -> tuple[Noise, Noise | None]:
    """Estimate the noise from the dataset of such a sweep: of its quiet groups, and of those beside a busy process."""
    quiet, contended = _split(data)
    noise = _estimate_noise(quiet, None)
    return noise, None if contended is None else _estimate_noise(contended, noise.process_sd)


def estimate_pairs(data: Data) -> tuple[Pair, ...]:
    """Estimate each pair of programs from the same dataset: in its quiet groups, then beside a busy process."""
    quiet, contended = _split(data)
    compilers = [str(label) for label in quiet["compiler"].values if label not in (BASELINE, COPY)]
    pairs = [_estimate_pair(quiet, compiler, None) for compiler in compilers]
    if contended is not None:
        pairs += [_estimate_pair(contended, pair.compiler, pair) for pair in pairs]
    return tuple(pairs)


def estimate_group_sd(groups: Sequence[Floats]) -> float:
    """Estimate the standard deviation between groups of a log ratio that is the same in all, about their median."""
    groups = [ratios for ratios in groups if len(ratios) > 1]
    if len(groups) < 2:
        return 0.0
    center = np.median([np.median(ratios) for ratios in groups])
    spread = estimate_process_sd([ratios - center for ratios in groups])
    return spread * math.sqrt(len(groups) / (len(groups) - 1))


def set_process_sd(dataset: xr.Dataset, process_sd: float) -> xr.Dataset:
    """Return the dataset as if a self-check of its devices had estimated `process_sd`, and nothing else were known."""
    labels = np.atleast_1d(dataset["device"].values).tolist()
    environments = {label: {"selfcheck": {"process_sd": process_sd}} for label in labels}
    return dataset.assign_attrs(environments=json.dumps(environments))


def _estimate_noise(dataset: xr.Dataset, allowance: float | None) -> Noise:
    """Estimate the noise of groups; an `allowance` for processes of None is cross-validated over the groups."""
    good = _find_measured(dataset, COPY)
    copies = dataset.sel(compiler=[BASELINE, COPY])
    pending = _flatten((copies["status"] == "pending").any("compiler"))
    if not good.any():
        reason = next((str(text) for text in copies["error"].values.ravel() if text), "nothing was measured yet")
        raise UsageError(f"no group of this self-check was measured: {reason}.")
    measured = copies.isel(replicate=np.flatnonzero(good))
    groups = _compute_log_ratios(measured, COPY)
    low, high = _compute_intervals(measured, COPY, 0.0)
    covered_within = _find_covering(low, high)
    middle = np.array([np.median(ratios) if len(ratios) else np.nan for ratios in groups])
    wide_low, wide_high = _allow_for_processes(measured, COPY, groups, estimate_process_sd, allowance)
    covered = _find_covering(wide_low, wide_high)
    coverage, coverage_low, coverage_high = estimate_share(int(covered.sum()), len(covered), LEVEL)
    samples = _flatten(measured["latency"].sel(compiler=BASELINE).notnull().sum("repeat"))
    latency = np.nanmedian(_compute_round_medians(measured, BASELINE)[0], axis=-1)
    fastest, slowest = np.quantile(latency, [0.1, 0.9])
    contended_share = math.nan
    if "contended" in measured:
        contended_share = float((measured["contended"] > 0).where(measured["latency"].notnull()).mean())
    return Noise(
        groups=len(groups),
        failed=int((~good & ~pending).sum()),
        pending=int(pending.sum()),
        rounds=float(np.median([len(ratios) for ratios in groups])),
        samples=float(np.median(samples)),
        noise_floor=_compute_quantile((np.exp(high - middle) - np.exp(low - middle)) / 2, 0.5),
        smallest_speedup=float(np.exp(_compute_quantile(np.concatenate([-wide_low, wide_high]), _DETECTED))),
        process_sd=estimate_process_sd(groups),
        round_sd=float(np.median([estimate_robust_sd(ratios) for ratios in groups])),
        drift=float(slowest / fastest - 1),
        coverage=coverage,
        coverage_low=coverage_low,
        coverage_high=coverage_high,
        coverage_within=estimate_share(int(covered_within.sum()), len(covered_within))[0],
        contended_share=contended_share,
    )


def _estimate_pair(dataset: xr.Dataset, compiler: str, quiet: Pair | None) -> Pair:
    """Estimate a pair in its quiet groups, or beside a busy process with what was `quiet` as its reference."""
    beside_busy = quiet is not None
    good = _find_measured(dataset, compiler)
    if not good.any():
        problems = (str(text) for text in dataset["error"].sel(compiler=compiler).values.ravel() if text)
        return Pair(compiler=compiler, beside_busy=beside_busy, problem=next(problems, "nothing was measured yet"))
    measured = dataset.isel(replicate=np.flatnonzero(good))
    is_conclusive = _flatten(conclusive(measured.sel(compiler=[BASELINE, compiler])).all("compiler"))
    # Without a conclusive group the others still show how far they are bent.
    judged = measured.isel(replicate=np.flatnonzero(is_conclusive)) if is_conclusive.any() else measured
    groups = _compute_log_ratios(judged, compiler)
    middles = np.array([np.median(ratios) if len(ratios) else np.nan for ratios in groups])
    allowance = quiet.group_sd if quiet is not None and math.isfinite(quiet.group_sd) else None
    low, high = _allow_for_processes(judged, compiler, groups, estimate_group_sd, allowance)
    if quiet is not None:
        centers = np.full(len(middles), math.log(quiet.speedup))
    else:  # the median of the other groups
        others = [np.delete(middles, index) for index in range(len(middles))]
        centers = np.array([np.nanmedian(rest) if np.isfinite(rest).any() else np.nan for rest in others])
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
        half_width=_compute_quantile((np.exp(high - middles) - np.exp(low - middles)) / 2, _DETECTED),
        judged=int(bounded.sum()),
        agreeing=int(((low <= centers) & (centers <= high))[bounded].sum()),
    )


def _find_measured(dataset: xr.Dataset, compiler: str) -> Any:
    """Find the groups, along ``replicate``, in which identity and the compiler were measured."""
    return _flatten((dataset["status"].sel(compiler=[BASELINE, compiler]) == "ok").all("compiler"))


def _compute_round_medians(dataset: xr.Dataset, *compilers: str) -> list[Any]:
    """Compute the median latency of each round, an array of one row a group for each compiler, NaN-padded."""
    medians: xr.DataArray = xr.apply_ufunc(
        arrays.round_medians,
        *(dataset[name].sel(compiler=list(compilers)) for name in ("latency", "round")),
        input_core_dims=[["repeat"], ["repeat"]],
        output_core_dims=[["rounds"]],
    )
    ordered = medians.transpose("compiler", "replicate", ..., "rounds")
    return list(ordered.values.reshape(len(compilers), ordered.sizes["replicate"], -1))


def _compute_log_ratios(dataset: xr.Dataset, compiler: str) -> list[Floats]:
    """Compute the logarithms of the speed-up over identity, one array of rounds a group, of the samples that count."""
    baseline, other = _compute_round_medians(select_samples(dataset), BASELINE, compiler)
    return [row[np.isfinite(row)] for row in np.log(baseline / other)]


def _compute_intervals(dataset: xr.Dataset, compiler: str, process_sd: float) -> tuple[Floats, Floats]:
    """Compute the logarithms of the ends of each group's interval on a machine of that `process_sd`."""
    columns = dataset.sel(compiler=[BASELINE, compiler])
    speedups: Any = set_process_sd(columns, process_sd).ngb.speedup(ci=LEVEL)
    values = speedups.sel(compiler=compiler)
    return np.log(_flatten(values["ci_low"])), np.log(_flatten(values["ci_high"]))


def _allow_for_processes(
    dataset: xr.Dataset,
    compiler: str,
    groups: Sequence[Floats],
    estimate_sd: Callable[[Sequence[Floats]], float],
    allowance: float | None,
) -> tuple[Floats, Floats]:
    """Compute intervals with an allowance; one of None is estimated for each group from those of the other folds."""
    if allowance is not None:
        return _compute_intervals(dataset, compiler, allowance)
    low, high = np.full(len(groups), np.nan), np.full(len(groups), np.nan)
    for first in range(min(_FOLDS, len(groups))):
        fold = np.arange(first, len(groups), _FOLDS)
        others = [ratios for index, ratios in enumerate(groups) if index % _FOLDS != first]
        low[fold], high[fold] = _compute_intervals(dataset.isel(replicate=fold), compiler, estimate_sd(others))
    return low, high


def _flatten(values: xr.DataArray) -> Any:
    """Flatten values to one a group, in order."""
    return values.transpose("replicate", ...).values.reshape(values.sizes["replicate"])


def _compute_quantile(values: Floats, share: float) -> float:
    """Compute a quantile of the finite values; NaN where there is none, for want of rounds."""
    finite = values[np.isfinite(values)]
    return float(np.quantile(finite, share)) if len(finite) else math.nan


def _find_covering(low: Floats, high: Floats) -> NDArray[np.bool_]:
    """Find which intervals of log ratios cover 0; those without ends, for want of rounds, are dropped."""
    finite = np.isfinite(low) & np.isfinite(high)
    return (low[finite] <= 0) & (high[finite] >= 0)
