"""The roofline model: the rates of each trial against the peaks of its device."""

from __future__ import annotations

import numpy as np
import xarray as xr

from ngbkit.dataset.long_form import list_labels
from ngbkit.errors import MetricError
from ngbkit.metrics import ratios
from ngbkit.metrics.draws import annotate

_REQUIRED = ("macs", "weight_bytes", "input_bytes", "output_bytes")


def roofline(dataset: xr.Dataset) -> xr.Dataset:
    """The rates of each trial, and their share of the device's peaks (Williams et al. 2009, the roofline model).

    Traffic is the compulsory one: weights, inputs and outputs moved once, without intermediate results. Actual traffic
    is at least that, so `bytes_per_s` is a lower bound, and a trial may be memory-bound where `bound` is ``"compute"``.
    The peaks were measured in f32 with the threads of the run; a column of another precision can exceed them, with a
    fraction above 1.

    Parameters
    ----------
    dataset
        With the coordinates ``macs, weight_bytes, input_bytes, output_bytes`` and the devices' measured peaks.

    Returns
    -------
    xarray.Dataset
        ``flops`` (FLOP/s, a multiply-accumulate being two), ``bytes_per_s`` (B/s), ``intensity`` (FLOP/B), ``bound``
        (``"compute"`` or ``"memory"``, empty where unknown) and ``fraction`` (the shortest time that the peaks allow,
        over the median latency).

    Raises
    ------
    MetricError
        A coordinate or every device's peaks are missing; the message lists them.
    """
    missing = [name for name in _REQUIRED if name not in dataset.coords]
    if missing:
        raise MetricError(
            f"roofline() needs the operations and bytes of each network; this dataset lacks {', '.join(missing)}. "
            "Measure again with this ngbkit, which counts them where it can."
        )
    # The peaks are those of the CPU, also on a device that measures on a GPU.
    machines = [
        device.get("peaks") or {} if device.get("accelerator", "cpu") == "cpu" else {}
        for device in ratios.list_devices(dataset)
    ]
    peaks = [
        ratios.along_devices(dataset, [float(machine.get(name) or np.nan) for machine in machines], np.nan)
        for name in ("flops", "bytes_per_s")
    ]
    if not (peaks[0].notnull() & peaks[1].notnull()).any():
        devices = ", ".join(map(str, list_labels(dataset, "device"))) or "any device"
        raise MetricError(
            f"roofline() compares with the device's own peaks, and none were measured for {devices}. "
            "Measure again with this ngbkit on that device's CPU; it measures no peaks of a GPU."
        )
    rates = ratios.prepare(dataset)["throughput"]
    batch = dataset["batch_size"]
    calls = ratios.ratio(rates, batch)
    flops = calls * (2 * dataset["macs"] * batch)
    traffic = calls * (dataset["weight_bytes"] + batch * (dataset["input_bytes"] + dataset["output_bytes"]))
    shares = ratios.ratio(flops, peaks[0]), ratios.ratio(traffic, peaks[1])
    fraction = xr.apply_ufunc(np.maximum, *shares)
    bound = xr.full_like(fraction, "compute", dtype=object).where(shares[0] >= shares[1], "memory")
    bound = bound.where(fraction.notnull(), "")
    variables = {
        "flops": (flops, "s-1", "floating-point operations per second"),
        "bytes_per_s": (traffic, "byte s-1", "compulsory traffic per second, a lower bound"),
        "intensity": (ratios.ratio(flops, traffic), "byte-1", "floating-point operations per byte moved"),
        "bound": (bound, "", "the nearer of the two peaks"),
        "fraction": (fraction, "1", "share of the nearer of the f32 peaks"),
    }
    columns = {
        name: annotate(values, name, units, long_name).transpose(*rates.dims)
        for name, (values, units, long_name) in variables.items()
    }
    return xr.Dataset(columns, attrs=dataset.attrs)
