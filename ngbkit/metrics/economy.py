"""When compiling pays: how many calls make good for the seconds that it took."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import xarray as xr

from ngbkit.errors import MetricError, UsageError
from ngbkit.metrics import ratios
from ngbkit.metrics.contracts import Unlike
from ngbkit.metrics.draws import Sampler, estimate
from ngbkit.metrics.labelled import Result, compared
from ngbkit.sweep.trials import BASELINE

Cache = Literal["cold", "warm"]


def break_even(
    dataset: xr.Dataset, *, cache: Cache = "cold", ci: float | None = None, unlike: Unlike = "error"
) -> Result:
    """After how many calls compiling has paid: extra compile seconds over the seconds that a call saves.

    The seconds saved are latency_identity (1 - 1 / speedup_c), of the speed-up that is paired round by round. It is inf
    where a call saves nothing and compiling took longer, or where a call takes longer; 0 where compiling took no longer
    and a call takes no longer.

    Parameters
    ----------
    dataset, ci
        As for `throughput`; compile times have one sample, so that the interval is of the seconds saved alone.
    cache
        Of compile times those with empty caches, or those with what an earlier compilation kept; a compiler that keeps
        nothing compiles warm as it does cold.
    unlike
        As for `speedup`.

    Raises
    ------
    MetricError
        There are no compile times, or no warm ones; or as for `speedup`.
    UsageError
        `cache` is neither of the two; or as for `speedup`.
    """
    if cache not in get_args(Cache):
        raise UsageError(f"break_even() came with {cache=}; valid are {', '.join(map(repr, get_args(Cache)))}.")
    name = "compile_time" if cache == "cold" else "compile_time_warm"
    if name not in dataset:
        raise MetricError(
            f"break_even(cache={cache!r}) needs the variable {name!r}, which this dataset lacks. "
            + ("Measure again with this ngbkit." if cache == "warm" else "Take the dataset that the run gave.")
        )
    data = compared(dataset, "break_even", unlike)
    times = dataset[name].where(dataset[name].notnull(), dataset["compile_time"])
    extra = times - ratios.at(times, "break_even", "compiler", BASELINE)
    data["extra"] = extra.transpose(*data["throughput"].dims)

    def found(part: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
        rates = part["throughput"] if sampler is None else ratios.throughput(part, sampler)
        call = ratios.ratio(part["batch_size"], ratios.at(rates, "break_even", "compiler", BASELINE))
        saved = call * (1 - ratios.ratio(xr.ones_like(call), ratios.speedup(part, "break_even", sampler)))
        calls: xr.DataArray = xr.apply_ufunc(_calls, part["extra"], saved)
        return calls.transpose(*part["throughput"].dims, ...)

    about = ("break_even", "1", f"calls after which compiling has paid, with a {cache} cache")
    return estimate(found, data, ci, about)


def _calls(extra: np.ndarray, saved: np.ndarray) -> np.ndarray:
    needed, gain = np.broadcast_arrays(np.maximum(extra, 0), saved)
    calls = np.full(gain.shape, np.inf)
    np.divide(needed, gain, out=calls, where=gain > 0)
    calls[(gain == 0) & (needed == 0)] = 0
    calls[np.isnan(gain) | np.isnan(needed)] = np.nan
    return calls
