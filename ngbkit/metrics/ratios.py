"""Throughputs and ratios of trials measured side by side: the parts of every other metric."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ngbkit.dataset import contention
from ngbkit.dataset.environments import read_environments
from ngbkit.dataset.long_form import list_labels, map_cells
from ngbkit.device.timing import correlation
from ngbkit.errors import MetricError
from ngbkit.metrics import arrays, waves
from ngbkit.metrics.draws import HOSTED_SD, PROBED_SD, UNCHECKED_SD, Sampler, compute_medians
from ngbkit.metrics.waves import Spread
from ngbkit.sweep.column import BASELINE, Column
from ngbkit.sweep.settling import number_waves

# No compiler can have this name.
_ANCHOR = "\0anchor"


def prepare(dataset: xr.Dataset, *, mask: xr.DataArray | None = None, anchored: bool = False) -> xr.Dataset:
    """The data from which ratios of medians and of replicates are computed.

    The variables are ``throughput``; ``medians`` of each round; ``anchor``, the medians of the anchor, if `anchored`
    and present; ``rounds_pool`` and ``ratios_pool``, by which the series of a device borrow the correlation of their
    rounds from each other; ``process_sd``, of each compiler's processes, ``hours_sd``, the part of it that more
    ``waves`` do not reduce, and ``copies_sd``, of the ratio of two processes of one program; ``stopped``, where a
    stopping rule ended the measurement; and ``conclusive``. A dataset without rounds yields ``throughput`` and
    ``conclusive`` alone. Contended samples of conclusive trials are left out, and trials in the mask become NaN.
    """
    is_conclusive, anchors_conclusive = contention.conclusive(dataset), contention.find_conclusive_anchors(dataset)
    dataset = contention.select_samples(dataset)
    if "latency" in dataset:
        columns, core = [dataset["latency"], dataset["batch_size"]], [["repeat"], []]
        rates = xr.apply_ufunc(arrays.throughput, *columns, input_core_dims=core)
    else:
        rates = dataset["throughput"]
    data = xr.Dataset({"throughput": rates, "conclusive": is_conclusive})
    if {"latency", "round"} <= set(dataset.variables):
        anchored = anchored and "anchor_latency" in dataset and "compiler" in dataset.dims
        anchored = anchored and BASELINE in dataset["compiler"]
        original, numbers = _compute_round_medians(dataset, anchored)
        medians, counts = waves.center(original, numbers)
        if anchored:
            data["conclusive"] = (is_conclusive & anchors_conclusive).transpose(*is_conclusive.dims)
            data["anchor"] = medians.sel(compiler=_ANCHOR, drop=True)
            original, medians = (each.drop_sel(compiler=_ANCHOR) for each in (original, medians))
        data["medians"] = medians
        data["rounds_pool"], data["ratios_pool"] = pool_series(medians)
        process_sd, hours_sd = _estimate_process_sd(dataset, original, numbers, data["ratios_pool"])
        deviation: xr.DataArray = xr.apply_ufunc(np.hypot, process_sd / np.sqrt(counts), hours_sd)
        data["process_sd"], data["hours_sd"], data["waves"] = deviation, hours_sd, counts
        copies = [_read_copies_sd(device) for device in list_devices(dataset)]
        data["copies_sd"] = along_devices(dataset, copies, UNCHECKED_SD)
        never = xr.zeros_like(data["throughput"], dtype=bool)
        data["stopped"] = dataset["looks"] > 0 if "looks" in dataset else never
    if mask is not None:
        for name in {"throughput", "medians"} & set(data):
            dims = data[name].dims
            data[name] = data[name].where(~mask).transpose(*dims)
    return data


def are_apart(data: xr.Dataset) -> bool:
    """Return whether any two columns of a group share no round: they were measured minutes apart."""
    if "compiler" not in data["throughput"].dims or "medians" not in data:
        return False
    measured = data["medians"].notnull().transpose(..., "compiler", "rounds").values.astype(np.float32)
    shared, counts = measured @ measured.swapaxes(-1, -2), measured.sum(axis=-1)
    return bool(((shared == 0) & (counts[..., None] * counts[..., None, :] > 0)).any())


def pool_series(medians: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Pool what the series of each device tell of their correlation: those of the baseline, and those of ratios to it.

    Without the baseline, the first column has its part.
    """
    reference, others = _split_reference(medians)
    rounds, ratios = (
        xr.apply_ufunc(
            correlation.pool_series,
            series,
            input_core_dims=[[dim for dim in series.dims if dim != "device"]],
            output_core_dims=[["correlation"]],
            vectorize=True,
        )
        for series in (reference, (others - reference).transpose(..., "rounds"))
    )
    return rounds, ratios


def _split_reference(medians: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Split the logarithms of medians into those of the baseline, or of the first column, and those of the others."""
    wide = medians if "compiler" in medians.dims else medians.expand_dims("compiler")
    logs: xr.DataArray = xr.apply_ufunc(np.log, wide).transpose(..., "rounds")
    labels = list_labels(medians, "compiler")
    reference = logs.isel(compiler=labels.index(BASELINE) if BASELINE in labels else 0, drop=True)
    others = logs.isel(compiler=[place for place, label in enumerate(labels) if label != BASELINE or len(labels) < 2])
    return reference, others


def list_devices(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """The environments of the devices of a dataset, in their order; an unknown one is empty."""
    environments = read_environments(dataset)
    return [environments.get(str(label), {}) for label in list_labels(dataset, "device")]


def _estimate_process_sd(
    dataset: xr.Dataset, medians: xr.DataArray, numbers: NDArray[np.intp], pools: xr.DataArray
) -> tuple[xr.DataArray, xr.DataArray]:
    """Estimate the standard deviation of the logarithm of a process's latency, by device and compiler.

    Returned with what the history of a device shows beyond that of its waves, which more waves do not reduce.
    """
    compilers = list_labels(dataset, "compiler") or [BASELINE]
    devices = list_devices(dataset) or [{}]
    spreads: list[dict[str, Spread]] = [{} for _ in devices]
    if numbers.max(initial=0):
        reference, others = _split_reference(medians)
        ratios = (others - reference).transpose("compiler", ..., "rounds")
        for place in range(len(devices)):
            select = {"device": place} if "device" in ratios.dims else {}
            pool = (pools.isel(select) if "device" in pools.dims else pools).values
            for label, series in zip(list_labels(others, "compiler"), ratios.isel(select), strict=True):
                spreads[place][str(label)] = waves.estimate_spread(
                    series.values.reshape(-1, series.sizes["rounds"]), numbers, pool
                )
    rows = [_compute_process_sds(device, compilers, each) for device, each in zip(devices, spreads, strict=True)]
    shape = [dataset.sizes[dim] for dim in ("device", "compiler") if dim in dataset.dims]
    dims = [dim for dim in ("device", "compiler") if dim in dataset.dims]
    coords = {dim: dataset[dim] for dim in ("device", "compiler") if dim in dataset.coords}
    process_sd, hours_sd = (xr.DataArray(np.reshape(each, shape), coords, dims) for each in zip(*rows, strict=True))
    return process_sd, hours_sd


def _compute_process_sds(
    device: dict[str, Any], compilers: list[Any], spreads: Mapping[str, Spread]
) -> tuple[list[float], list[float]]:
    # Measured are ratios, within minutes and within hours. A compiler without any has the largest; the baseline gets
    # half the variance of the least, and each other compiler the rest of its own.
    of_copies = _read_copies_sd(device)
    deviations = {
        pair["compiler"]: float(pair["group_sd"])
        for pair in (device.get("selfcheck") or {}).get("pairs", ())
        if pair.get("group_sd") is not None and not pair.get("beside_busy")
    }
    history = (device.get("history") or {}).get("deviations") or {}
    least = max(history.values()) if history else max(of_copies, assume_host_sd(device))
    most = max([least, of_copies, *deviations.values()])
    of_ratios = {
        name: max(of_copies, history.get(name, least), deviations.get(name, 0.0)) for name in {*history, *deviations}
    }
    of_waves = waves.combine(spreads, {name: of_ratios.get(name, most) for name in spreads})
    hours = {name: math.sqrt(max(0.0, history.get(name, 0.0) ** 2 - of_waves[name] ** 2)) for name in of_waves}
    of_ratios |= of_waves
    most = max([most, *of_ratios.values()])
    of_baseline = min(of_ratios.values(), default=most) / math.sqrt(2)
    processes = [
        of_baseline
        if Column.read(str(label)).is_baseline
        else math.sqrt(of_ratios.get(label, most) ** 2 - of_baseline**2)
        for label in compilers
    ]
    return processes, [hours.get(str(label), 0.0) for label in compilers]


def _read_copies_sd(device: dict[str, Any]) -> float:
    """The standard deviation of the logarithm of the ratio of two processes of one program."""
    measured = (device.get("selfcheck") or {}).get("process_sd")
    return UNCHECKED_SD if measured is None else float(measured)


def is_hosted(device: dict[str, Any]) -> bool:
    """Return whether a device is a virtual machine without a history of its host's effect on ratios."""
    return assume_host_sd(device) > 0 and not (device.get("history") or {}).get("deviations")


def assume_host_sd(device: dict[str, Any]) -> float:
    """Assume by how much the host of a device changes ratios from hour to hour; 0 for a machine of its own."""
    if not is_virtual(device):
        return 0.0
    return PROBED_SD if is_probed(device) else HOSTED_SD


def is_virtual(device: dict[str, Any]) -> bool:
    """Return whether a device is a virtual machine."""
    return bool((device.get("conditions") or {}).get("virtual_machine"))


def is_probed(device: dict[str, Any]) -> bool:
    """Return whether probes tell the ways in which the host of a device runs its cores."""
    return any((device.get("states") or {}).values())


def along_devices(dataset: xr.Dataset, values: list[float], missing: float) -> xr.DataArray:
    """One value per device as an array along `device`, or as a scalar where the dataset has no such dim."""
    if "device" in dataset.dims:
        return xr.DataArray(values, {"device": dataset["device"]}, ["device"])
    return xr.DataArray(values[0] if values else missing)


def throughput(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
    """Samples per second; replicates are of the median of the rounds' medians, centred on the throughput itself."""
    rates = data["throughput"]
    if sampler is None:
        return rates
    draws = sampler.draw_medians(data["medians"], data["rounds_pool"], data["process_sd"])
    return ratio(rates, ratio(draws, compute_medians(data["medians"])))


def speedup(metric: str, data: xr.Dataset, sampler: Sampler | None, *, baseline: str = BASELINE) -> xr.DataArray:
    """T_c / T_baseline, paired round by round where there are rounds, else from throughputs."""
    if "medians" not in data:
        return ratio(data["throughput"], select_reference(data["throughput"], metric, "compiler", baseline))
    reference = select_reference(data["medians"], metric, "compiler", baseline)
    columns = data["medians"]["compiler"]
    deviation = _compute_deviation(data, metric, baseline)
    if Column.read(baseline).is_baseline:
        is_baseline = map_cells(columns, lambda label: Column.read(str(label)).is_baseline, bool)
        deviation = deviation.where(~is_baseline, data["copies_sd"])
    return _compute_paired(data, reference, deviation * (columns != baseline), sampler)


def compare_columns(
    data: xr.Dataset, reference: xr.DataArray, reference_sd: xr.DataArray, sampler: Sampler | None
) -> xr.DataArray:
    """T_c over that of a reference of each column: the medians of its rounds, and the deviation of its processes."""
    deviation: xr.DataArray = xr.apply_ufunc(np.hypot, data["process_sd"], reference_sd)
    return _compute_paired(data, reference, deviation.fillna(0.0), sampler)


def scaling(metric: str, data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
    """T_c(b) / T_c(1), normalised by anchors where there are any; replicates of others have the drift of the device."""
    rates = data["throughput"]
    first = select_reference(rates, metric, "batch_size", 1)
    if "anchor" not in data or "batch_size" not in rates.dims:
        return ratio(rates, first) if sampler is None else _draw_untied(data, metric, sampler)
    is_anchor = (data["medians"]["compiler"] == BASELINE) & (data["medians"]["batch_size"] == 1)
    normalised = _compute_normalised(data, is_anchor, None)
    untied = normalised.isnull()
    if sampler is None:
        return normalised.where(~untied, ratio(rates, first)).transpose(*rates.dims)
    draws = _compute_normalised(data, is_anchor, sampler)
    return draws.where(~untied, _draw_untied(data, metric, sampler)) if untied.any() else draws


def _draw_untied(data: xr.Dataset, metric: str, sampler: Sampler) -> xr.DataArray:
    """Draw T_c(b) / T_c(1) of groups measured minutes apart, which all columns of a group drift by."""
    rates = throughput(data, sampler)
    shift = rates.isel(compiler=0, drop=True) if "compiler" in rates.dims else rates
    noise = shift.copy(data=sampler.draw_scores(*shift.shape[:-1])[1])
    drifting = (rates * np.exp(noise * data["drift_sd"])).transpose(*rates.dims)
    return ratio(drifting, select_reference(drifting, metric, "batch_size", 1))


def ratio(above: xr.DataArray, below: xr.DataArray) -> xr.DataArray:
    """The quotient; NaN where either is NaN or the denominator is 0."""
    quotient: xr.DataArray = xr.apply_ufunc(arrays.ratio, above, below)
    return quotient


def select_reference(values: xr.DataArray, metric: str, dim: str, label: str | int) -> xr.DataArray:
    """The values that a metric is relative to, without that dim; a `MetricError` that names the trials to add."""
    labels = list_labels(values, dim)
    if label in labels:
        return values.sel({dim: label}, drop=True) if dim in values.dims else values.drop_vars(dim)
    reference = {"compiler": f"the compiler {label!r}", "batch_size": f"batch size {label}"}[dim]
    names = ", ".join(map(str, labels))
    if dim in values.dims:
        argument, flag = {"compiler": ("compilers", "-c"), "batch_size": ("batch_sizes", "-b")}[dim]
        raise MetricError(
            f"{metric}() is relative to {reference}; the sweep has {names}. "
            f"Add {argument}=[{label!r}, …] or {flag} {','.join(map(str, [label, *labels]))}."
        )
    raise MetricError(
        f"{metric}() is relative to {reference}; this selection has {f'only {names}' if labels else 'no such dim'}. "
        f"Compute the metric first, then select: ds.ngb.{metric}().sel({dim}={labels[0] if labels else label!r})."
    )


def _compute_round_medians(dataset: xr.Dataset, anchored: bool) -> tuple[xr.DataArray, NDArray[np.intp]]:
    """The medians of every column, and of the anchors as one more column, with the wave of each round."""
    variables = [dataset["latency"], dataset["round"]]
    if anchored:
        for place, name in enumerate(("latency", "round")):
            # In the groups of batch size 1 the baseline is its own anchor.
            baseline = select_reference(dataset[name], "rtr", "compiler", BASELINE)
            anchor = dataset[f"anchor_{name}"].where(dataset["batch_size"] != 1, baseline)
            columns = [variables[place], anchor.expand_dims(compiler=[_ANCHOR])]
            variables[place] = xr.concat(columns, "compiler", join="override")
    medians: xr.DataArray = xr.apply_ufunc(
        arrays.round_medians, *variables, input_core_dims=[["repeat"], ["repeat"]], output_core_dims=[["rounds"]]
    )
    return medians, number_waves(arrays.list_rounds(variables[1]))


def _compute_normalised(data: xr.Dataset, is_anchor: xr.DataArray, sampler: Sampler | None) -> xr.DataArray:
    """T(b) / T(1), each divided by the anchor's throughput in the same rounds."""
    deviation = _compute_deviation(data, "rtr", BASELINE) * ~is_anchor
    rates = _compute_paired(data, data["anchor"], deviation, sampler) * data["batch_size"]
    return ratio(rates, rates.sel(batch_size=1, drop=True))


def _compute_deviation(data: xr.Dataset, metric: str, baseline: str) -> xr.DataArray:
    """The standard deviation of the logarithm of the ratio of each column to the baseline, as different programs."""
    reference = select_reference(data["process_sd"], metric, "compiler", baseline)
    deviation: xr.DataArray = xr.apply_ufunc(np.hypot, data["process_sd"], reference)
    return deviation


def _compute_paired(
    data: xr.Dataset, reference: xr.DataArray, deviation: xr.DataArray, sampler: Sampler | None
) -> xr.DataArray:
    """The latency of the reference over that of each column, round by round; of medians where they share no round."""
    medians, core = data["medians"], ["rounds"]
    if sampler is None:
        paired: xr.DataArray = xr.apply_ufunc(arrays.paired_speedup, medians, reference, input_core_dims=[core, core])
        return paired
    ratios = ratio(reference, medians).transpose(*medians.dims)
    draws = sampler.draw_medians(ratios, data["ratios_pool"], deviation)
    unpaired = ~ratios.notnull().any("rounds")
    if (unpaired & medians.notnull().any("rounds")).any():
        deviation = xr.apply_ufunc(np.hypot, deviation, math.sqrt(2) * data["drift_sd"])
        above = sampler.draw_medians(reference, data["rounds_pool"], 0.0)
        draws = draws.where(~unpaired, ratio(above, sampler.draw_medians(medians, data["rounds_pool"], deviation)))
    return draws
