"""Metrics over a factor of the networks: the speed-up over the depth, and scaling over the width."""

from __future__ import annotations

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import describe, factor_dims
from ngbkit.dataset.long_form import list_labels
from ngbkit.errors import MetricError
from ngbkit.metrics import arrays, ratios
from ngbkit.metrics.contracts import Unlike
from ngbkit.metrics.draws import Metric, Sampler, estimate
from ngbkit.metrics.labelled import Result, compute_ase, prepare_compared, prepare_scaled
from ngbkit.user_text import format_value


def depth_slope(
    dataset: xr.Dataset, dim: str = "depth", *, ci: float | None = None, unlike: Unlike = "error"
) -> Result:
    """The least-squares slope of the speed-up over the measured values of the factor `dim`.

    The coordinate ``contradictory`` is true where this slope and `retention` disagree: then the curve is not monotone,
    and neither number describes it.

    Parameters
    ----------
    dataset
        With at least two values of `dim`.
    dim
        The factor.
    ci, unlike
        As for `speedup`.

    Raises
    ------
    MetricError
        `dim` has fewer than two values; or as for `speedup`.
    UsageError
        As for `speedup`.
    """
    depths = _require_values(dataset, "depth_slope", dim)
    data = prepare_compared(dataset, "depth_slope", unlike)
    description = (f"{dim}_slope", "1", f"least-squares slope of the speed-up over {dim}")
    slopes = estimate(_make_slope("depth_slope", dim, depths), data, ci, description, along=dim)
    return _flag_contradictions(slopes, data, dim, depths)


def retention(dataset: xr.Dataset, dim: str = "depth", *, ci: float | None = None, unlike: Unlike = "error") -> Result:
    """The speed-up at the largest value of the factor `dim` over that at the smallest.

    It has the coordinate ``contradictory``, as `depth_slope` has.

    Parameters
    ----------
    dataset, dim, ci, unlike
        As for `depth_slope`.

    Raises
    ------
    MetricError, UsageError
        As for `depth_slope`.
    """
    depths = _require_values(dataset, "retention", dim)
    data = prepare_compared(dataset, "retention", unlike)
    description = ("retention", "1", f"speed-up at {dim} {depths.max():g} over that at {depths.min():g}")
    retentions = estimate(_make_retention("retention", dim, depths), data, ci, description, along=dim)
    return _flag_contradictions(retentions, data, dim, depths)


def friction(
    dataset: xr.Dataset, dim: str = "width", *, tied: bool = True, ci: float | None = None, unlike: Unlike = "error"
) -> Result:
    """How much faster ASE falls with the batch size as the factor `dim` grows (the paper's figure 10, as a number).

    The fall at one width is the least-squares slope of -log2 ASE over log2 of the batch size: 0 for perfect scaling, 1
    where a larger batch gains nothing. Friction is the slope of the falls over log2 of the width: the increase per
    doubling.

    Parameters
    ----------
    dataset
        With batch size 1 and another, and at least two values of `dim`, all above 0.
    dim
        The factor.
    tied, ci, unlike
        As for `ase`.

    Raises
    ------
    MetricError
        There are fewer than two batch sizes, or fewer than two values of `dim` above 0; or as for `ase`.
    UsageError
        As for `ase`.
    """
    widths = _require_values(dataset, "friction", dim, "the fall of ASE with the batch")
    if widths.min() <= 0:
        raise MetricError(
            f"friction() is over the logarithm of {dim}: got {widths.min():g}; expected values above 0. "
            f"Exclude it by .sel({dim}=…)."
        )
    data = prepare_scaled(dataset, "friction", tied, unlike)
    ratios.select_reference(data["throughput"], "friction", "batch_size", 1)
    sizes = np.atleast_1d(data["batch_size"].values)
    if len(sizes) < 2 or "batch_size" not in data["throughput"].dims:
        raise MetricError(
            "friction() measures the fall of ASE with the batch and needs batch size 1 and another; "
            f"the sweep has only {sizes[0]}. Add batch_sizes=[1, 4, …] or -b 1,4,…"
        )

    def compute(part: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        point = None if sampler is None else -_log2(compute_ase(part, "friction", None))
        falls = _fit_slope(-_log2(compute_ase(part, "friction", sampler)), "batch_size", np.log2(sizes), point)
        point = None if point is None else _fit_slope(point, "batch_size", np.log2(sizes))
        return _fit_slope(falls, dim, np.log2(widths), point)

    description = ("friction", "1", f"growth of the fall of ASE with log2 of the batch, per doubling of {dim}")
    return estimate(compute, data, ci, description, along=dim)


def _fit_slope(values: xr.DataArray, dim: str, x: np.ndarray, point: xr.DataArray | None = None) -> xr.DataArray:
    """The least-squares slope along a dim, ignoring missing points.

    `point` gives the point estimates of replicates: where one of those has no replicates, because it has too few
    rounds, the slope has none either, since a slope of the other points belongs to another line.
    """
    slopes: xr.DataArray = xr.apply_ufunc(arrays.slope, values, kwargs={"x": x}, input_core_dims=[[dim]])
    if point is None:
        return slopes
    return slopes.where(~(point.notnull() & values.isnull().any("draw")).any(dim))


def _log2(values: xr.DataArray) -> xr.DataArray:
    logarithms: xr.DataArray = xr.apply_ufunc(np.log2, values.where(values > 0))
    return logarithms


def _make_slope(metric: str, dim: str, depths: np.ndarray) -> Metric:
    def compute(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        point = None if sampler is None else ratios.speedup(data, metric, None)
        return _fit_slope(ratios.speedup(data, metric, sampler), dim, depths, point)

    return compute


def _make_retention(metric: str, dim: str, depths: np.ndarray) -> Metric:
    def compute(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        speedups = ratios.speedup(data, metric, sampler)
        deepest, shallowest = (speedups.isel({dim: int(i)}, drop=True) for i in (depths.argmax(), depths.argmin()))
        return ratios.ratio(deepest, shallowest)

    return compute


def _flag_contradictions(result: Result, data: xr.Dataset, dim: str, depths: np.ndarray) -> Result:
    slopes, retentions = (make("depth_slope", dim, depths)(data, None) for make in (_make_slope, _make_retention))
    contradictory = xr.apply_ufunc(arrays.contradict, slopes, retentions)
    contradictory.attrs = describe("1", f"whether slope and retention over {dim} disagree, by their point estimates")
    return result.assign_coords(contradictory=contradictory)


def _require_values(dataset: xr.Dataset, metric: str, dim: str, quantity: str = "speed-ups") -> np.ndarray:
    """The values of a factor; a `MetricError` with fewer than two."""
    depths = list_labels(dataset, dim)
    if not all(isinstance(depth, (int, float)) for depth in depths):
        raise MetricError(
            f"{metric}() needs a factor with numbers, and those of {dim} are {', '.join(map(format_value, depths))}. "
            "Name another factor, or compare the networks by ranking()."
        )
    if dim in dataset.dims and len(depths) > 1:
        return np.array(depths)
    others = [name for name in factor_dims(dataset) if name != dim]
    if others and not depths:
        problem = f"it varies {', '.join(others)}"
    else:
        problem = f"the sweep has only {dim} {depths[0]:g}" if depths else f"the sweep has no factor {dim!r}"
    start = f"{depths[0]:g}" if depths else "1"
    raise MetricError(
        f"{metric}() compares {quantity} over {dim} and needs at least two values of it; {problem}. "
        f"Add factors={{{dim!r}: [{start}, …]}} or --factor {dim}={start},…, for a workload that takes it."
    )
