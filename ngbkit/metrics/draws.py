"""How sure a metric is: computed once from the medians over rounds, and once from many bootstrap replicates of them.

Every metric is one function of prepared data and a `Sampler`. Without a sampler it takes medians and gives the metric;
with one it takes replicates of them and gives replicates of the metric, along the dim ``draw``.

An interval of one median covers as often as it says (see `ngbkit.device.timing.intervals`). That of a metric made of
several medians, such as BSR and RTR, is a little too wide: of 20 rounds, 96 to 98 % cover where 95 % were asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import describe
from ngbkit.device.timing import intervals
from ngbkit.errors import MetricError, UsageError
from ngbkit.metrics import arrays

DRAWS = 1000
"""Bootstrap replicates of a metric."""

# Trials whose replicates are held at once: 12 MB an array of a thousand replicates.
_TRIALS = 1500
_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """Where replicates come from: the same data gives the same ones.

    Parameters
    ----------
    level
        Of the interval that they are for: a trial with too few rounds for it has none.
    generator
        Where chance comes from.
    """

    level: float
    generator: np.random.Generator

    def medians(self, values: xr.DataArray) -> xr.DataArray:
        """Replicates of the median over ``rounds``, along ``draw``."""
        found: xr.DataArray = xr.apply_ufunc(
            self._medians, values, input_core_dims=[["rounds"]], output_core_dims=[["draw"]]
        )
        return found

    def _medians(self, values: np.ndarray) -> np.ndarray:
        known = np.count_nonzero(~np.isnan(values), axis=-1)
        kept = np.where(intervals.enough(known, self.level)[..., None], values, np.nan)
        return np.moveaxis(intervals.medians(kept, DRAWS, self.generator), 0, -1)

    def shaken(self, draws: xr.DataArray, deviation: xr.DataArray) -> xr.DataArray:
        """Replicates with normal noise of that standard deviation on their logarithm, one a replicate and trial."""
        if not (deviation > 0).any():
            return draws
        noise = draws.copy(data=self.generator.standard_normal(draws.shape))
        return draws * np.exp(noise * deviation)


Metric = Callable[[xr.Dataset, Sampler | None], xr.DataArray]


def checked(metric: str, data: xr.Dataset, ci: float | None) -> None:
    """Refuse a level that is none, and data that no interval can come from.

    Raises
    ------
    UsageError
        `ci` is not between 0 and 1.
    MetricError
        The data has no rounds.
    """
    if ci is None:
        return
    if not (isinstance(ci, (int, float)) and 0 < ci < 1):
        raise UsageError(f"{metric}() came with {ci=}; it is a probability between 0 and 1: ci=0.95.")
    if "medians" not in data:
        raise MetricError(
            f"{metric}(ci={ci:g}) bootstraps over rounds; this dataset has no latency, or not the rounds that its "
            f"samples are from. Take the dataset that the run gave, with its samples, or leave ci out."
        )


def estimate(
    metric: Metric, data: xr.Dataset, ci: float | None, about: tuple[str, str, str], *, along: str = ""
) -> xr.DataArray | xr.Dataset:
    """A metric, with its interval where `ci` is given.

    Parameters
    ----------
    metric
        The metric of a part of the data.
    data
        What `ngbkit.metrics.ratios.prepare` gave.
    ci
        The probability that the interval covers, or None.
    about
        Name, units and long_name.
    along
        A dim that the metric is taken over, so that no part may be cut along it.

    Returns
    -------
    xarray.DataArray or xarray.Dataset
        Without `ci` the metric; with it a dataset of the metric, ``ci_low`` and ``ci_high``, and the attribute ``ci``.

    Raises
    ------
    UsageError, MetricError
        As `checked`.
    """
    name, units, long_name = about
    checked(name, data, ci)
    point = described(metric(data, None), name, units, long_name)
    if ci is None:
        return point
    low, high = (xr.full_like(point, np.nan, dtype=float) for _ in range(2))
    sampler = Sampler(level=ci, generator=np.random.default_rng(_SEED))
    whole = {"compiler", "batch_size", "rounds", along}
    for part in parts(data, [str(dim) for dim in data["medians"].dims if dim not in whole]):
        here = {dim: span for dim, span in part.items() if dim in point.dims}
        ends = _ends(metric, data.isel(part), point.isel(here), sampler)
        low[here], high[here] = (end.transpose(*point.dims).values for end in ends)
    found = {
        name: point,
        "ci_low": described(low, "ci_low", units, f"low end of the {100 * ci:g} % interval: {long_name}"),
        "ci_high": described(high, "ci_high", units, f"high end of the {100 * ci:g} % interval: {long_name}"),
    }
    return xr.Dataset(found, attrs={"ci": ci})


def parts(data: xr.Dataset, cut: list[str]) -> Iterator[dict[str, slice]]:
    """Stretches along the dims `cut` that together are all data, each of so few trials that memory is no concern."""
    sizes = data["medians"].sizes
    rest = math.prod(size for dim, size in sizes.items() if dim not in {*cut, "rounds"})
    yield from _halved({dim: slice(0, sizes[dim]) for dim in cut}, rest)


def _halved(part: dict[str, slice], rest: int) -> Iterator[dict[str, slice]]:
    lengths = {dim: span.stop - span.start for dim, span in part.items()}
    longest = max(lengths, key=lambda dim: lengths[dim], default="")
    if rest * math.prod(lengths.values()) <= _TRIALS or lengths.get(longest, 1) < 2:
        yield part
        return
    span = part[longest]
    middle = (span.start + span.stop) // 2
    yield from _halved({**part, longest: slice(span.start, middle)}, rest)
    yield from _halved({**part, longest: slice(middle, span.stop)}, rest)


def _ends(metric: Metric, data: xr.Dataset, point: xr.DataArray, sampler: Sampler) -> tuple[xr.DataArray, xr.DataArray]:
    """The interval of one part; where a stopping rule ended any trial that went into it, at the level for that."""
    draws = metric(data, sampler).transpose(*point.dims, "draw")
    values = np.moveaxis(draws.values, -1, 0)
    stopped = data["stopped"].any([dim for dim in data["stopped"].dims if dim not in point.dims or dim in _GROUP])
    looked = stopped.broadcast_like(point).transpose(*point.dims).values
    ends = np.full((2, *point.shape), np.nan)
    for looks in (0, 1):
        if np.any(looked == bool(looks)):
            found = np.stack(intervals.interval(values, intervals.adjusted(sampler.level, looks)))
            ends = np.where(looked == bool(looks), found, ends)
    ends = np.where(np.isnan(point.values), np.nan, ends)
    return point.copy(data=ends[0]), point.copy(data=ends[1])


# Ratios are of trials that differ in these: a rule that ended one has a part in the interval of the others.
_GROUP = ("compiler", "batch_size")


def center(values: xr.DataArray, sampler: Sampler | None) -> xr.DataArray:
    """The median over ``rounds``, or its replicates."""
    if sampler is not None:
        return sampler.medians(values)
    found: xr.DataArray = xr.apply_ufunc(arrays.median, values, input_core_dims=[["rounds"]])
    return found


def described(values: xr.DataArray, name: str, units: str, long_name: str) -> xr.DataArray:
    """Values under their own name, with their unit and what they are."""
    found = values.rename(name)
    found.attrs = describe(units, long_name)
    return found
