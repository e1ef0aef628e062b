"""Metrics over a factor of the networks: the speed-up over the depth, and scaling over the width."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import describe, factor_dims
from ngbkit.dataset.long_form import list_labels
from ngbkit.errors import MetricError
from ngbkit.metrics import arrays, ratios
from ngbkit.metrics.draws import Sampler
from ngbkit.metrics.metric import Metric
from ngbkit.metrics.scaling import compute_ase
from ngbkit.user_text import format_value


def _compute_curve(metric: str, data: xr.Dataset, sampler: Sampler | None, dim: str = "depth") -> xr.DataArray:
    """The slope of the speed-up over a factor, or its retention: that at the largest value over that at the least."""
    depths = _require_values(data, metric, dim)
    speedups = ratios.speedup(metric, data, sampler)
    deepest, shallowest = (speedups.isel({dim: int(i)}, drop=True) for i in (depths.argmax(), depths.argmin()))
    retentions = ratios.ratio(deepest, shallowest)
    if sampler is not None and metric == "retention":
        return retentions
    if sampler is not None:
        return _fit_slope(speedups, dim, depths, ratios.speedup(metric, data, None))
    slopes = _fit_slope(speedups, dim, depths)
    contradictory = xr.apply_ufunc(arrays.contradict, slopes, retentions)
    contradictory.attrs = describe("1", f"whether slope and retention over {dim} disagree, by their point estimates")
    return (retentions if metric == "retention" else slopes).assign_coords(contradictory=contradictory)


def _compute_friction(data: xr.Dataset, sampler: Sampler | None, dim: str = "width") -> xr.DataArray:
    widths = _require_values(data, "friction", dim, "the fall of ASE with the batch")
    if widths.min() <= 0:
        raise MetricError(
            f"friction() is over the logarithm of {dim}: got {widths.min():g}; expected values above 0. "
            f"Exclude it by .sel({dim}=…)."
        )
    ratios.select_reference(data["throughput"], "friction", "batch_size", 1)
    sizes = np.atleast_1d(data["batch_size"].values)
    if len(sizes) < 2 or "batch_size" not in data["throughput"].dims:
        raise MetricError(
            "friction() measures the fall of ASE with the batch and needs batch size 1 and another; "
            f"the sweep has only {sizes[0]}. Add batch_sizes=[1, 4, …] or -b 1,4,…"
        )
    point = None if sampler is None else -_log2(compute_ase("friction", data, None))
    falls = _fit_slope(-_log2(compute_ase("friction", data, sampler)), "batch_size", np.log2(sizes), point)
    point = None if point is None else _fit_slope(point, "batch_size", np.log2(sizes))
    return _fit_slope(falls, dim, np.log2(widths), point)


def _fit_slope(values: xr.DataArray, dim: str, x: np.ndarray, point: xr.DataArray | None = None) -> xr.DataArray:
    """Fit the least-squares slope along a dim, ignoring missing points; `point` has the estimates of replicates."""
    slopes: xr.DataArray = xr.apply_ufunc(arrays.slope, values, kwargs={"x": x}, input_core_dims=[[dim]])
    if point is None:
        return slopes
    # Without the replicates of a point, a slope is that of another line.
    return slopes.where(~(point.notnull() & values.isnull().any("draw")).any(dim))


def _log2(values: xr.DataArray) -> xr.DataArray:
    logarithms: xr.DataArray = xr.apply_ufunc(np.log2, values.where(values > 0))
    return logarithms


def _require_values(data: xr.Dataset, metric: str, dim: str, quantity: str = "speed-ups") -> np.ndarray:
    """The values of a factor; a `MetricError` with fewer than two."""
    rates = data["throughput"]
    depths = list_labels(rates, dim)
    if not all(isinstance(depth, (int, float)) for depth in depths):
        raise MetricError(
            f"{metric}() needs a factor with numbers, and those of {dim} are {', '.join(map(format_value, depths))}. "
            "Name another factor, or compare the networks by ranking()."
        )
    if dim in rates.dims and len(depths) > 1:
        return np.array(depths)
    others = [name for name in factor_dims(rates.to_dataset()) if name != dim]
    if others and not depths:
        problem = f"it varies {', '.join(others)}"
    else:
        problem = f"the sweep has only {dim} {depths[0]:g}" if depths else f"the sweep has no factor {dim!r}"
    start = f"{depths[0]:g}" if depths else "1"
    raise MetricError(
        f"{metric}() compares {quantity} over {dim} and needs at least two values of it; {problem}. "
        f"Add factors={{{dim!r}: [{start}, …]}} or --factor {dim}={start},…, for a workload that takes it."
    )


_CONTRADICTORY = (
    "The coordinate ``contradictory`` is true where the slope and the retention disagree: then the curve is not\n"
    "monotone, and neither number describes it."
)
DEPTH_SLOPE = Metric(
    name="depth_slope",
    long_name="least-squares slope of the speed-up over {dim}",
    meaning="above 0, a larger value gains more",
    formula=r"\frac{\sum_d (d - \bar{d})(S_c(d) - \bar{S}_c)}{\sum_d (d - \bar{d})^2}",
    notes=_CONTRADICTORY,
    relative_to=("compiler",),
    compute=partial(_compute_curve, "depth_slope"),
    over="depth",
    in_frames=False,
    neutral=0.0,
    place=7,
)
RETENTION = Metric(
    name="retention",
    long_name="speed-up at the largest {dim} over that at the smallest",
    meaning="below 1, a larger value loses a part of the gain",
    formula=r"\frac{S_c(d_{\max})}{S_c(d_{\min})}",
    notes=_CONTRADICTORY,
    relative_to=("compiler",),
    compute=partial(_compute_curve, "retention"),
    over="depth",
    in_frames=False,
    place=8,
)
FRICTION = Metric(
    name="friction",
    long_name="growth of the fall of ASE with log2 of the batch, per doubling of {dim}",
    meaning="how much faster ASE falls with the batch as the factor grows (the paper's figure 10, as a number)",
    formula=r"-\frac{\partial^2 \log_2 \mathrm{ASE}_c}{\partial \log_2 b\,\partial \log_2 w}",
    notes="The fall at one width is the least-squares slope of -log2 ASE over log2 of the batch size: 0 for perfect\n"
    "scaling, 1 where a larger batch gains nothing. Friction is the slope of the falls over log2 of the width.",
    relative_to=("batch_size",),
    compute=_compute_friction,
    over="width",
    in_frames=False,
    neutral=0.0,
    place=9,
)
