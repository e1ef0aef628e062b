"""Break-even: the number of calls after which a compiler has recovered its compile time."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr

from ngbkit import validation
from ngbkit.errors import MetricError
from ngbkit.metrics import ratios
from ngbkit.metrics.contracts import Unlike
from ngbkit.metrics.draws import Sampler, estimate
from ngbkit.metrics.labelled import Result, prepare_compared
from ngbkit.sweep.trials import BASELINE

Cache = Literal["cold", "warm"]


def break_even(
    dataset: xr.Dataset, *, cache: Cache = "cold", ci: float | None = None, unlike: Unlike = "error"
) -> Result:
    """The calls after which compiling has paid off: extra compile seconds over the seconds that a call saves.

    The seconds saved are latency_identity (1 - 1 / speedup_c), with the speed-up paired round by round. The result is
    inf where a call saves nothing and compiling took longer, or where a call takes longer; 0 where neither compiling
    nor a call takes longer.

    Parameters
    ----------
    dataset, ci
        As for `throughput`; compile times have one sample, so the interval reflects the seconds saved alone.
    cache
        Use compile times with empty caches (``"cold"``) or with the caches of an earlier compilation (``"warm"``); a
        compiler without a cache has one compile time for both.
    unlike
        As for `speedup`.

    Raises
    ------
    MetricError
        Compile times, or warm ones, are missing; or as for `speedup`.
    UsageError
        `cache` is invalid; or as for `speedup`.
    """
    validation.check("cache", Cache, cache)
    name = "compile_time" if cache == "cold" else "compile_time_warm"
    if name not in dataset:
        raise MetricError(
            f"break_even(cache={cache!r}) needs the variable {name!r}, which this dataset lacks. "
            + ("Measure again with this ngbkit." if cache == "warm" else "Use the dataset of the run.")
        )
    data = prepare_compared(dataset, "break_even", unlike)
    times = dataset[name].where(dataset[name].notnull(), dataset["compile_time"])
    extra = times - ratios.select_reference(times, "break_even", "compiler", BASELINE)
    data["extra"] = extra.transpose(*data["throughput"].dims)

    def compute(part: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        rates = part["throughput"] if sampler is None else ratios.throughput(part, sampler)
        call = ratios.ratio(part["batch_size"], ratios.select_reference(rates, "break_even", "compiler", BASELINE))
        saved = call * (1 - ratios.ratio(xr.ones_like(call), ratios.speedup(part, "break_even", sampler)))
        calls: xr.DataArray = xr.apply_ufunc(_count_calls, part["extra"], saved)
        return calls.transpose(*part["throughput"].dims, ...)

    description = ("break_even", "1", f"calls after which compiling has paid off, with a {cache} cache")
    return estimate(compute, data, ci, description)


def _count_calls(extra: np.ndarray, saved: np.ndarray) -> np.ndarray:
    needed, gain = np.broadcast_arrays(np.maximum(extra, 0), saved)
    calls = np.full(gain.shape, np.inf)
    np.divide(needed, gain, out=calls, where=gain > 0)
    calls[(gain == 0) & (needed == 0)] = 0
    calls[np.isnan(gain) | np.isnan(needed)] = np.nan
    return calls
