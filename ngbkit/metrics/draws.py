"""The uncertainty of a metric: bootstrap replicates of its medians over rounds, and intervals from them.

Every metric is one function of prepared data and a `Sampler`. Without a sampler it computes medians and returns the
metric; with one it draws replicates of the medians and returns replicates of the metric, along the dim ``draw``.

An interval of one median has its nominal coverage (see `ngbkit.device.timing.intervals`). An interval of a metric made
of several medians, such as BSR and RTR, is slightly too wide: with 20 rounds, 97 to 99 % coverage for a nominal 95 %.

Rounds are not all there is to know. They resemble those before them, so replicates spread by a factor more; and the
few seconds of a group do not show how the ratio of two processes differs from other seconds and from other hours, so
each ratio has an allowance: what the history and the self-check of the device measured, and where there is none
`UNCHECKED_SD`, or on a virtual machine `PROBED_SD` or `HOSTED_SD`.
``tests/bench/truth.py`` counts how often reported speed-ups are wrong beside planted interference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from ngbkit import validation
from ngbkit.dataset.assembly import describe
from ngbkit.device.timing import correlation, intervals
from ngbkit.errors import MetricError
from ngbkit.metrics import arrays
from ngbkit.metrics.statistics import draw_scores, resample_medians

DRAWS = 1000
"""Bootstrap replicates of a metric."""

UNCHECKED_SD = 0.005
"""The standard deviation, between two processes, of the logarithm of their ratio on a device without a self-check."""

HOSTED_SD = 0.05
"""The same of two different programs on a virtual machine without a history: what its host does, no counter shows.

Neighbours of the host use its memory and caches for hours, which slows a program that moves more data by more: on a
virtual machine with two cores, speed-ups of one sweep differed by 3 to 7 % (standard deviation) from hour to hour.
"""

PROBED_SD = 0.025
"""The same where probes tell the states of the host, and rounds of others than the usual one are left out.

By ``tests/bench/demos.py`` on two virtual machines with two cores: 0.025 beyond what rounds explain over 12 demos in 20
minutes, and nothing over 17 in 80 minutes.
"""

PROBABILITY_LEVEL = 0.5
"""The level of replicates that tell a probability: its interval needs the fewest rounds that show a spread."""

SEED = 0
"""The seed of replicates: the same data yields the same numbers."""

# Trials whose replicates are in memory at once: 12 MB per array of a thousand replicates.
_TRIALS = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """A seeded source of replicates: the same data yields the same replicates."""

    level: float  # of the interval to compute: a trial with too few rounds for it has no replicates
    generator: np.random.Generator

    def draw_medians(self, values: xr.DataArray, pool: xr.DataArray, deviation: xr.DataArray | float) -> xr.DataArray:
        """Replicates of the median over ``rounds``, whose logarithms have the `deviation` beyond what rounds show."""
        replicates: xr.DataArray = xr.apply_ufunc(
            self.resample,
            values,
            pool,
            deviation,
            input_core_dims=[["rounds"], ["correlation"], []],
            output_core_dims=[["draw"]],
        )
        return replicates

    def resample(
        self, values: np.ndarray, pool: np.ndarray, deviation: ArrayLike, scores: np.ndarray | None = None
    ) -> np.ndarray:
        """Resample the medians of ``(..., rounds)``, NaN-padded, into replicates, ``(..., draws)``.

        Rows draw their scores: the same rounds and `deviation` have the same replicates, in another order. Those of
        correlated `scores` have correlated medians, without noise.
        """
        counts = np.count_nonzero(~np.isnan(values), axis=-1)
        usable = np.where(intervals.has_enough_rounds(counts, self.level)[..., None], values, np.nan)
        noise: ArrayLike = 0.0
        if scores is None:
            scores, noise = self.draw_scores(*counts.shape)
        draws = resample_medians(usable, scores)
        with np.errstate(divide="ignore", invalid="ignore"):
            factors = correlation.estimate_inflation(np.log(usable), pool)[..., None]
        if (factors > 1).any():
            centers = arrays.median(usable)[..., None]
            draws = np.where(factors > 1, centers * (draws / centers) ** factors, draws)
        return draws * np.exp(noise * np.asarray(deviation)[..., None]) if np.any(deviation) else draws

    def draw_scores(self, *shape: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw two normal scores of each replicate, ``(*shape, draws)``: of rounds, and of the noise beside."""
        return draw_scores(self.generator, *shape, draws=DRAWS)


Compute = Callable[[xr.Dataset, Sampler | None], xr.DataArray]


def estimate(
    metric: Compute, data: xr.Dataset, ci: float | None, description: tuple[str, str, str], *, along: str = ""
) -> xr.DataArray | xr.Dataset:
    """A metric of prepared data; with `ci` a dataset of it, ``ci_low``, ``ci_high`` and ``conclusive``.

    `description` is the name, the units and the long_name; `along` names a dim that the metric reduces, so that the
    data must not be split along it.
    """
    name, units, long_name = description
    if ci is not None:
        validation.check("ci", validation.Probability, ci)
        if "medians" not in data:
            raise MetricError(
                f"{name}(ci={ci:g}) bootstraps over rounds, but this dataset has no latency or no round numbers. "
                f"Use the dataset of the run, with its samples, or omit ci."
            )
    point = annotate(metric(data, None), name, units, long_name)
    if ci is None:
        return point
    low, high = (xr.full_like(point, np.nan, dtype=float) for _ in range(2))
    sampler = Sampler(level=ci, generator=np.random.default_rng(SEED))
    unsplit = {"compiler", "batch_size", "rounds", along}
    for part in split(data["medians"].sizes, unsplit):
        cells = {dim: span for dim, span in part.items() if dim in point.dims}
        bounds = _compute_bounds(metric, data.isel(part), point.isel(cells), sampler)
        low[cells], high[cells] = (bound.transpose(*point.dims).values for bound in bounds)
    certain = annotate(_find_conclusive(metric, data, point), "conclusive", "1", "whether it is of uncontended rounds")
    return combine_interval(point, (low, high), certain, ci)


def combine_interval(
    point: xr.DataArray, ends: tuple[xr.DataArray, xr.DataArray], conclusive: xr.DataArray, ci: float
) -> xr.Dataset:
    """Combine an annotated metric with the ends of its interval."""
    variables = {point.name: point}
    for side, end in zip(("low", "high"), ends, strict=True):
        long_name = f"{side} end of the {100 * ci:g} % interval: {point.attrs['long_name']}"
        variables[f"ci_{side}"] = annotate(end, f"ci_{side}", point.attrs["units"], long_name)
    return xr.Dataset({**variables, "conclusive": conclusive}, attrs={"ci": ci})


def split(sizes: Mapping[Hashable, int], unsplit: Collection[str]) -> Iterator[dict[str, slice]]:
    """Split data of such dims into parts of few trials, so that their replicates fit into memory."""
    dims = {str(dim): slice(0, size) for dim, size in sizes.items() if dim not in unsplit}
    yield from _halve(dims, math.prod(size for dim, size in sizes.items() if dim not in {*dims, "rounds"}))


def _halve(part: dict[str, slice], rest: int) -> Iterator[dict[str, slice]]:
    lengths = {dim: span.stop - span.start for dim, span in part.items()}
    longest = max(lengths, key=lambda dim: lengths[dim], default="")
    if rest * math.prod(lengths.values()) <= _TRIALS or lengths.get(longest, 1) < 2:
        yield part
        return
    span = part[longest]
    middle = (span.start + span.stop) // 2
    yield from _halve({**part, longest: slice(span.start, middle)}, rest)
    yield from _halve({**part, longest: slice(middle, span.stop)}, rest)


def _compute_bounds(
    metric: Compute, data: xr.Dataset, point: xr.DataArray, sampler: Sampler
) -> tuple[xr.DataArray, xr.DataArray]:
    """The interval of one part; wider where a stopping rule ended any trial that contributes to it."""
    draws = metric(data, sampler).transpose(*point.dims, "draw")
    values = np.moveaxis(draws.values, -1, 0)
    stopped = data["stopped"].any([dim for dim in data["stopped"].dims if dim not in point.dims or dim in _GROUP])
    by_rule = stopped.broadcast_like(point).transpose(*point.dims).values
    bounds = np.full((2, *point.shape), np.nan)
    for looks in (0, 1):
        if np.any(by_rule == bool(looks)):
            interval = np.stack(bound_replicates(values, sampler.level, stopped=bool(looks)))
            bounds = np.where(by_rule == bool(looks), interval, bounds)
    bounds = np.where(np.isnan(point.values), np.nan, bounds)
    return point.copy(data=bounds[0]), point.copy(data=bounds[1])


def bound_replicates(draws: np.ndarray, level: float, *, stopped: bool) -> tuple[np.ndarray, np.ndarray]:
    """Bound replicates, ``(draws, ...)``: wider where a rule ended the measurement."""
    return intervals.compute_interval(draws, intervals.adjust_level(level, int(stopped)))


def _find_conclusive(metric: Compute, data: xr.Dataset, point: xr.DataArray) -> xr.DataArray:
    """Return whether all trials of each value are conclusive: it is there without the others, and as they change."""
    if bool(data["conclusive"].all()):
        return xr.ones_like(point, dtype=bool)
    without = {name: data[name].where(data["conclusive"]) for name in ("throughput", "medians")}
    remaining = metric(data.assign(without), None).transpose(*point.dims).notnull()
    # By a factor each, so that the ratio of two of them changes as well.
    factors = data["conclusive"].copy(data=1 + np.random.default_rng(SEED).random(data["conclusive"].shape))
    slower = factors.where(~data["conclusive"], 1.0)
    changed = data.assign(throughput=data["throughput"] / slower, medians=data["medians"] * slower)
    values = metric(changed, None).transpose(*point.dims)
    return point.isnull() | (remaining & np.isclose(values, point, rtol=1e-9, atol=0, equal_nan=True))


# A ratio is of trials that differ in these: a rule that ended one affects the interval of the others.
_GROUP = ("compiler", "batch_size")


def compute_medians(values: xr.DataArray) -> xr.DataArray:
    """The median over ``rounds``."""
    medians: xr.DataArray = xr.apply_ufunc(arrays.median, values, input_core_dims=[["rounds"]])
    return medians


def annotate(values: xr.DataArray, name: str, units: str, long_name: str) -> xr.DataArray:
    """A copy of the values with their name, units and long_name."""
    renamed = values.rename(name)
    renamed.attrs = describe(units, long_name)
    return renamed
