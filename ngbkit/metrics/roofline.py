"""How near a trial comes to what its device can do."""

from __future__ import annotations

import numpy as np
import xarray as xr

from ngbkit.errors import MetricError
from ngbkit.metrics import ratios
from ngbkit.metrics.draws import described

_NEEDED = ("macs", "weight_bytes", "input_bytes", "output_bytes")


def roofline(dataset: xr.Dataset) -> xr.Dataset:
    """What a trial achieves, and which share of what its device could (Williams et al. 2009, the roofline model).

    Traffic is the compulsory one: weights, inputs and outputs moved once, with nothing written out in between. Real
    traffic is at least that, so `bytes_per_s` is a lower bound, and a trial may be memory-bound where `bound` says
    ``"compute"``. The peaks were measured in f32 with the threads of the run; a column of another precision can go
    beyond them, and its fraction beyond 1.

    Parameters
    ----------
    dataset
        With the coordinates ``macs, weight_bytes, input_bytes, output_bytes`` and the devices' measured peaks.

    Returns
    -------
    xarray.Dataset
        ``flops`` (FLOP/s, a multiply-accumulate being two), ``bytes_per_s`` (B/s), ``intensity`` (FLOP/B), ``bound``
        (``"compute"`` or ``"memory"``, empty where unknown) and ``fraction`` (the least time that the peaks allow, over
        the median latency).

    Raises
    ------
    MetricError
        A coordinate or every device's peaks lack; the message says which.
    """
    lacking = [name for name in _NEEDED if name not in dataset.coords]
    if lacking:
        raise MetricError(
            f"roofline() needs what a network computes and moves; this dataset lacks {', '.join(lacking)}. "
            "Measure again with this ngbkit, which counts them where the network can be counted."
        )
    compute, memory = (_peaks(dataset, name) for name in ("flops", "bytes_per_s"))
    if not (compute.notnull() & memory.notnull()).any():
        devices = ", ".join(map(str, np.atleast_1d(dataset["device"].values))) if "device" in dataset.coords else "any"
        raise MetricError(
            f"roofline() compares with the device's own peaks, and none were measured for {devices}. "
            "Measure again with this ngbkit on that device."
        )
    rates = ratios.prepare(dataset)["throughput"]
    batch = dataset["batch_size"]
    calls = ratios.ratio(rates, batch)
    operations = 2 * dataset["macs"] * batch
    traffic = dataset["weight_bytes"] + batch * (dataset["input_bytes"] + dataset["output_bytes"])
    flops, moved = (calls * each for each in (operations, traffic))
    shares = ratios.ratio(flops, compute), ratios.ratio(moved, memory)
    dims = rates.dims
    bound = xr.apply_ufunc(_nearer, *shares)
    found = {
        "flops": described(flops, "flops", "FLOP/s", "floating-point operations a second"),
        "bytes_per_s": described(moved, "bytes_per_s", "B/s", "compulsory traffic a second, a lower bound"),
        "intensity": described(ratios.ratio(flops, moved), "intensity", "FLOP/B", "operations a byte moved"),
        "bound": described(bound, "bound", "", "which peak is nearer"),
        "fraction": described(
            xr.apply_ufunc(np.maximum, *shares), "fraction", "1", "share of what the nearer of the f32 peaks allows"
        ),
    }
    return xr.Dataset({name: values.transpose(*dims) for name, values in found.items()}, attrs=dataset.attrs)


def _nearer(compute: np.ndarray, memory: np.ndarray) -> np.ndarray:
    bound = np.where(compute >= memory, "compute", "memory").astype(object)
    bound[np.isnan(compute + memory)] = ""
    return bound


def _peaks(dataset: xr.Dataset, name: str) -> xr.DataArray:
    known = ratios.environments(dataset)
    labels = np.atleast_1d(dataset["device"].values).tolist() if "device" in dataset.coords else []
    values = [float((known.get(str(label), {}).get("peaks") or {}).get(name) or np.nan) for label in labels]
    if "device" in dataset.dims:
        return xr.DataArray(values, {"device": dataset["device"]}, ["device"])
    return xr.DataArray(values[0] if values else np.nan)
