"""Break-even: the number of calls after which a compiler has recovered its compile time."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr

from ngbkit import validation
from ngbkit.errors import MetricError
from ngbkit.metrics import ratios
from ngbkit.metrics.draws import Sampler
from ngbkit.metrics.metric import Metric
from ngbkit.sweep.column import BASELINE

Cache = Literal["cold", "warm"]


def _compute_calls(data: xr.Dataset, sampler: Sampler | None, *, cache: Cache = "cold") -> xr.DataArray:
    validation.check("cache", Cache, cache)
    name = "compile_time" if cache == "cold" else "compile_time_warm"
    if name not in data:
        raise MetricError(
            f"break_even(cache={cache!r}) needs the variable {name!r}, which this dataset lacks. "
            + ("Measure again with this ngbkit." if cache == "warm" else "Use the dataset of the run.")
        )
    times = data[name].where(data[name].notnull(), data["compile_time"])
    extra = times - ratios.select_reference(times, "break_even", "compiler", BASELINE)
    rates = data["throughput"] if sampler is None else ratios.throughput(data, sampler)
    call = ratios.ratio(data["batch_size"], ratios.select_reference(rates, "break_even", "compiler", BASELINE))
    saved = call * (1 - ratios.ratio(xr.ones_like(call), ratios.speedup("break_even", data, sampler)))
    needed, gain = xr.broadcast(extra.clip(min=0), saved)
    calls = (needed / gain.where(gain > 0)).fillna(np.inf)
    calls = calls.where((gain != 0) | (needed != 0), 0.0).where(needed.notnull() & gain.notnull())
    return calls.transpose(*data["throughput"].dims, ...)


BREAK_EVEN = Metric(
    name="break_even",
    long_name="calls after which compiling has paid off, with a {cache} cache",
    meaning="extra compile seconds over the seconds that a call saves",
    formula=r"\frac{C_c - C_{\mathrm{identity}}}{t_{\mathrm{identity}} - t_c}",
    notes=f"The seconds saved are latency_{BASELINE} (1 - 1 / speed-up), with the speed-up paired round by round. The "
    "result is inf where a call saves nothing and compiling took longer, or where a call takes longer; 0 where "
    "neither compiling nor a call takes longer. Compile times have one sample: an interval is of the seconds saved "
    "alone.",
    relative_to=("compiler",),
    compute=_compute_calls,
    options={
        "cache": 'Use compile times with empty caches ("cold") or with the caches of an earlier compilation ("warm"); '
        "a compiler without a cache has one compile time for both."
    },
    variables=("compile_time", "compile_time_warm"),
    in_frames=False,
    neutral=0.0,
    variants={"break_even_warm": {"cache": "warm"}},
    place=10,
)
