"""Throughput, the speed-up over the baseline, and the gain of a batch: the metrics of each trial."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr

from ngbkit.errors import MetricError, UsageError
from ngbkit.metrics import ratios
from ngbkit.metrics.draws import Sampler
from ngbkit.metrics.metric import Chart, Metric
from ngbkit.sweep.column import BASELINE


def compute_ase(metric: str, data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
    """Compute ASE of medians or of replicates, for a metric that errors name."""
    return ratios.ratio(ratios.scaling(metric, data, sampler), data["throughput"]["batch_size"])


def _compute_bsr(data: xr.Dataset, sampler: Sampler | None, *, baseline: str = BASELINE) -> xr.DataArray:
    speedups = ratios.speedup("bsr", data, sampler, baseline=baseline)
    return ratios.ratio(speedups, ratios.select_reference(speedups, "bsr", "batch_size", 1))


def _compute_tcr(
    data: xr.Dataset,
    sampler: Sampler | None,
    *,
    raw_bytes: float | xr.DataArray | None = None,
    compressed_bytes: float | xr.DataArray | None = None,
) -> xr.DataArray:
    raw = _select_bytes(data, "input_bytes", raw_bytes)
    compressed = _select_bytes(data, "output_bytes", compressed_bytes)
    if np.min(raw) < 0 or np.min(compressed) < 0:
        raise UsageError(
            f"tcr(): invalid sizes: got {raw_bytes=} and {compressed_bytes=}; expected bytes of at least 0."
        )
    saved = raw - compressed
    if raw_bytes is None or compressed_bytes is None:
        saved = xr.DataArray(saved).where(lambda size: size > 0)
        if not saved.notnull().any():
            raise MetricError(
                "tcr() is of networks that compress: got outputs at least as large as the inputs, by shape and dtype. "
                "State the bytes of a sample by raw_bytes=… and compressed_bytes=…"
            )
    elif np.any(np.asarray(saved) < 0):
        raise UsageError(
            f"tcr(): a compressed sample is larger than a raw one: got {raw_bytes=}, {compressed_bytes=}; "
            "expected compressed_bytes <= raw_bytes. Swap them, or exclude that network."
        )
    rates = ratios.throughput(data, sampler)
    if sampler is None and isinstance(saved, xr.DataArray):
        xr.align(rates, saved, join="exact")  # each network of the dataset has its size
    return rates * (saved / 1e6)


def _select_bytes(data: xr.Dataset, name: str, size: float | xr.DataArray | None) -> float | xr.DataArray:
    """Select the bytes of a sample that ngbkit counted, unless the caller states them."""
    if size is not None:
        return size
    if name not in data.variables:
        option = "raw_bytes" if name == "input_bytes" else "compressed_bytes"
        raise MetricError(
            f"tcr() needs the bytes of a sample, and this dataset lacks {name}. State them by {option}=…, or measure "
            "again with this ngbkit, which counts them."
        )
    counted: xr.DataArray = data[name].reset_coords(drop=True)
    return counted


THROUGHPUT = Metric(
    name="throughput",
    units="s-1",
    unit_symbol="samples/s",
    long_name="throughput",
    meaning="T(b), the batch size over the median latency",
    formula=r"T_c(b) = \frac{b}{t_c(b)}",
    compute=ratios.throughput,
    chart=Chart(paper="figure 5"),
    place=1,
)
SPEEDUP = Metric(
    name="speedup",
    long_name="speed-up over {baseline}",
    meaning=f"S(b) = T(b) / T_{BASELINE}(b), paired round by round where there are rounds: above 1, compiling pays",
    formula=r"S_c(b) = \frac{T_c(b)}{T_{\mathrm{identity}}(b)}",
    relative_to=("compiler",),
    compute=partial(ratios.speedup, "speedup"),
    chart=Chart(reference=1, paper="figure 6"),
    place=2,
)
RTR = Metric(
    name="rtr",
    symbol="RTR",
    long_name="relative throughput rate: T(b) / T(1)",
    meaning="below 1, a batch costs throughput (the paper, section V-A4)",
    formula=r"\frac{T_c(b)}{T_c(1)}",
    relative_to=("batch_size",),
    compute=partial(ratios.scaling, "rtr"),
    chart=Chart(reference=1),
    place=3,
)
ASE = Metric(
    name="ase",
    symbol="ASE",
    long_name="absolute scaling efficiency: T(b) / (b T(1))",
    meaning="at 1, the batch gains perfectly; at 1 / b, it takes as long as its samples one by one (section V-A4)",
    formula=r"\frac{T_c(b)}{b\,T_c(1)}",
    relative_to=("batch_size",),
    compute=partial(compute_ase, "ase"),
    chart=Chart(reference=1, paper="figure 8"),
    place=4,
)
BSR = Metric(
    name="bsr",
    symbol="BSR",
    long_name="batch scaling resilience: ASE over that of {baseline}",
    meaning="below 1, a larger batch loses a part of the compiler's gain (section V-A4)",
    formula=r"\frac{\mathrm{ASE}_c(b)}{\mathrm{ASE}_{\mathrm{identity}}(b)} = \frac{S_c(b)}{S_c(1)}",
    notes="It equals S(b) / S(1), and is computed so: each ratio is of trials that were measured against each other,\n"
    "so that drift between groups cancels.",
    relative_to=("compiler", "batch_size"),
    compute=_compute_bsr,
    chart=Chart(reference=1, zero=False, paper="figures 9 and 11"),
    place=5,
)
TCR = Metric(
    name="tcr",
    symbol="TCR/s",
    units="megabyte s-1",
    unit_symbol="MB/s",
    long_name="transfer cost reduction per second",
    meaning="the bytes that compressed samples save: (raw - compressed) bytes of a sample, times the throughput "
    "(section IV-B1)",
    formula=r"(n_{\mathrm{raw}} - n_{\mathrm{compressed}})\,T_c(b)",
    notes="The bytes are of the network's inputs and outputs, as ngbkit counts them by shape and dtype. A network "
    "whose outputs are larger than its inputs is NaN. To declare other bytes, such as those after an entropy coder, "
    'for tables and figures too, assign them: ``ds.assign_coords(output_bytes=("width", [900, 700]))``.',
    compute=_compute_tcr,
    options={
        "raw_bytes": "The bytes of one sample before compression; an array along `workload` or another dim of the "
        "dataset where sizes differ. None takes the coordinate ``input_bytes``.",
        "compressed_bytes": "The bytes of one sample after compression, likewise. None takes ``output_bytes``.",
    },
    variables=("input_bytes", "output_bytes"),
    chart=Chart(),
    in_frames=False,
    place=6,
)
