"""How metrics change with a factor of the networks: with the depth the speed-up, with the width the scaling."""

from __future__ import annotations

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import describe, factor_dims
from ngbkit.errors import MetricError
from ngbkit.metrics import arrays, ratios
from ngbkit.metrics.contracts import Unlike
from ngbkit.metrics.draws import Metric, Sampler, estimate
from ngbkit.metrics.labelled import Result, compared, efficiency, scaled


def depth_slope(
    dataset: xr.Dataset, dim: str = "depth", *, ci: float | None = None, unlike: Unlike = "error"
) -> Result:
    """The least-squares slope of the speed-up over the factor `dim`, of the depths that were measured.

    The coordinate ``contradictory`` is true where this slope and `retention` say opposite things: then the curve is not
    monotone, and neither number stands for it.

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
        There are not two values of `dim`; or as for `speedup`.
    UsageError
        As for `speedup`.
    """
    depths = _values(dataset, "depth_slope", dim)
    data = compared(dataset, "depth_slope", unlike)
    about = (f"{dim}_slope", "1", f"least-squares slope of the speed-up over {dim}")
    found = estimate(_slope("depth_slope", dim, depths), data, ci, about, along=dim)
    return _flagged(found, data, dim, depths)


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
    depths = _values(dataset, "retention", dim)
    data = compared(dataset, "retention", unlike)
    about = ("retention", "1", f"speed-up at {dim} {depths.max():g} over that at {depths.min():g}")
    return _flagged(estimate(_retention("retention", dim, depths), data, ci, about, along=dim), data, dim, depths)


def friction(
    dataset: xr.Dataset, dim: str = "width", *, tied: bool = True, ci: float | None = None, unlike: Unlike = "error"
) -> Result:
    """How much faster ASE falls with the batch as the factor `dim` grows (the paper's figure 10, as a number).

    The fall at one width is the least-squares slope of -log2 ASE over log2 of the batch size: 0 where scaling is
    perfect, 1 where a larger batch brings nothing. Friction is the slope of the falls over log2 of the width: what each
    doubling adds.

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
        There are not two batch sizes, or not two values of `dim` above 0; or as for `ase`.
    UsageError
        As for `ase`.
    """
    widths = _values(dataset, "friction", dim, "the fall of ASE with the batch")
    if widths.min() <= 0:
        raise MetricError(
            f"friction() is over the logarithm of {dim}, which must be above 0; it has {widths.min():g}. "
            f"Leave it out by .sel({dim}=…)."
        )
    data = scaled(dataset, "friction", tied, unlike)
    ratios.at(data["throughput"], "friction", "batch_size", 1)
    sizes = np.atleast_1d(data["batch_size"].values)
    if len(sizes) < 2 or "batch_size" not in data["throughput"].dims:
        raise MetricError(
            "friction() is about how ASE falls with the batch and needs batch size 1 and another; "
            f"the sweep has only {sizes[0]}. Add batch_sizes=[1, 4, …] or -b 1,4,…"
        )
    of_ase = efficiency("friction")

    def found(part: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        point = None if sampler is None else -_log2(of_ase(part, None))
        falls = slope_over(-_log2(of_ase(part, sampler)), "batch_size", np.log2(sizes), point)
        point = None if point is None else slope_over(point, "batch_size", np.log2(sizes))
        return slope_over(falls, dim, np.log2(widths), point)

    about = ("friction", "1", f"growth of the fall of ASE with log2 of the batch, a doubling of {dim}")
    return estimate(found, data, ci, about, along=dim)


def slope_over(values: xr.DataArray, dim: str, places: np.ndarray, point: xr.DataArray | None = None) -> xr.DataArray:
    """The least-squares slope along a dim, of the points that there are.

    Replicates come with the `point` estimates: where one of those has no replicates, for it has too few rounds, neither
    has the slope, since that of the rest is of another line.
    """
    found: xr.DataArray = xr.apply_ufunc(arrays.slope, values, kwargs={"x": places}, input_core_dims=[[dim]])
    if point is None:
        return found
    return found.where(~(point.notnull() & values.isnull().any("draw")).any(dim))


def _log2(values: xr.DataArray) -> xr.DataArray:
    found: xr.DataArray = xr.apply_ufunc(np.log2, values.where(values > 0))
    return found


def _slope(metric: str, dim: str, depths: np.ndarray) -> Metric:
    def found(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        point = None if sampler is None else ratios.speedup(data, metric, None)
        return slope_over(ratios.speedup(data, metric, sampler), dim, depths, point)

    return found


def _retention(metric: str, dim: str, depths: np.ndarray) -> Metric:
    def found(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        gains = ratios.speedup(data, metric, sampler)
        ends = (gains.isel({dim: place}, drop=True) for place in (int(depths.argmax()), int(depths.argmin())))
        return ratios.ratio(*ends)

    return found


def _flagged(found: Result, data: xr.Dataset, dim: str, depths: np.ndarray) -> Result:
    slopes, kept = (make("depth_slope", dim, depths)(data, None) for make in (_slope, _retention))
    both = xr.apply_ufunc(arrays.contradict, slopes, kept)
    both.attrs = describe("1", f"slope and retention over {dim} say opposite things, by their point estimates")
    return found.assign_coords(contradictory=both)


def _values(dataset: xr.Dataset, metric: str, dim: str, what: str = "speed-ups") -> np.ndarray:
    """The values of a factor, of which a metric needs two."""
    depths = np.atleast_1d(dataset[dim].values) if dim in dataset.coords else np.array([])
    if dim in dataset.dims and len(depths) > 1:
        return depths
    has = f"only {dim} {depths[0]:g}" if len(depths) else f"no factor {dim!r}"
    others = [name for name in factor_dims(dataset) if name != dim]
    hint = f"it varies {', '.join(others)}" if others and not len(depths) else f"the sweep has {has}"
    start = f"{depths[0]:g}" if len(depths) else "1"
    raise MetricError(
        f"{metric}() compares {what} over {dim} and needs at least two values of it; {hint}. "
        f"Add factors={{{dim!r}: [{start}, …]}} or --factor {dim}={start},…, for a workload that takes it."
    )
