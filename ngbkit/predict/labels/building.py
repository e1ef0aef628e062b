"""Builds examples from measurements: the graph of each network once, its labels merged."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit.errors import NgbkitWarning, UsageError
from ngbkit.predict.graphs import Graph
from ngbkit.predict.kinds.base import Progress, ignore_progress
from ngbkit.predict.labels.example_set import Examples
from ngbkit.predict.labels.measured_networks import (
    LEAST_S,
    MOST_S,
    Entry,
    ImportedMeasurement,
    find_families,
    parse_network,
)
from ngbkit.predict.labels.merging import Label, merge_labels
from ngbkit.predict.labels.rows import Runtime
from ngbkit.predict.lowering import find_lowering
from ngbkit.workloads.base import Workload

# Slower than any processor that networks are compiled for, and faster than any: multiply-accumulates in a second.
_SLOWEST, _FASTEST = 1e9, 1e16


def build_examples(
    measurements: Sequence[ImportedMeasurement],
    report: Progress = ignore_progress,
    *,
    lowered: bool = False,
) -> Examples:
    """Check all measurements, build the graph of each network once, and merge what is equal."""
    runtimes = list(dict.fromkeys(runtime for measurement in measurements for runtime in measurement.seconds))
    if lowered:
        lowering = find_lowering([compiler for _, compiler in runtimes])
        measurements = [replace(each, lowering=lowering) for each in measurements]
    labels = _build_labels(_select_measured(measurements), runtimes, report)
    _warn_of_units(labels)
    return merge_labels(labels, runtimes)


def _select_measured(measurements: Sequence[ImportedMeasurement]) -> list[ImportedMeasurement]:
    """Return the measurements with a latency, and warn of the others; UsageError: there is none, or one is invalid."""
    measured, left_out = [], []
    for measurement in measurements:
        _check_seconds(measurement)
        if all(math.isnan(value) for value in measurement.seconds.values()):
            left_out.append(measurement.place)
        else:
            measured.append(measurement)
    if not measured:
        raise UsageError(f"no latency of {len(measurements)} networks; expected seconds above 0. Measure them first.")
    if left_out:
        listed = ", ".join(left_out[:3]) + (", …" if len(left_out) > 3 else "")
        warnings.warn(f"{len(left_out)} without a latency are left out: {listed}.", NgbkitWarning, stacklevel=4)
    return measured


def _build_labels(
    measurements: Sequence[ImportedMeasurement], runtimes: Sequence[Runtime], report: Progress
) -> list[Label]:
    """Build the graph of each network once, and a label of each measurement."""
    places: dict[int, int] = {}
    workloads: dict[str, Workload] = {}
    parsed: dict[tuple[Any, ...], Entry] = {}
    entries = []
    for index, measurement in enumerate(measurements):
        # A table has many rows of few networks: each file is read once.
        description = measurement.description
        if description not in parsed:
            number = places.setdefault(id(measurement.network), index)
            parsed[description] = parse_network(measurement, number, workloads)
        entries.append(parsed[description])
    built: dict[tuple[Any, ...], Graph] = {}
    for index, entry in enumerate(entries):
        if entry.key not in built:
            report(index / len(entries), f"graph of {entry.texts['names']}")
            built[entry.key] = entry.build_graph()
    families = find_families(entry.texts["parents"] for entry in parsed.values())
    texts = {
        id(entry): {**entry.texts, "families": entry.texts["families"] or families[entry.texts["parents"]]}
        for entry in parsed.values()
    }
    return [
        Label(
            graph=built[entry.key],
            seconds=np.array([measurement.seconds.get(runtime, np.nan) for runtime in runtimes]),
            errors=np.array([measurement.errors.get(runtime, np.nan) for runtime in runtimes])
            if measurement.errors
            else None,
            texts=texts[id(entry)],
        )
        for entry, measurement in zip(entries, measurements, strict=True)
    ]


def _check_seconds(measurement: ImportedMeasurement) -> None:
    for (device, compiler), value in measurement.seconds.items():
        if not (math.isnan(value) or LEAST_S <= value <= MOST_S):
            network = measurement.network if isinstance(measurement.network, (str, Path)) else "its network"
            raise UsageError(
                f"invalid seconds of {measurement.place} ({network}) on {compiler} of {device}: got {value:g}; "
                f"expected a number above 0, from {LEAST_S:g} to {MOST_S:g}, or NaN where it was not measured."
            )


def _warn_of_units(labels: Sequence[Label]) -> None:
    """Warn of seconds that no processor needs for such graphs: they may have another unit."""
    macs = {id(graph): graph.macs or np.nan for graph in {id(label.graph): label.graph for label in labels}.values()}
    work = np.array([[macs[id(label.graph)]] for label in labels], dtype=np.float64)
    seconds = np.stack([label.seconds for label in labels])
    rates = (work / seconds)[np.isfinite(work / seconds)]
    if not len(rates):
        return
    rate, typical = float(np.median(rates)), float(np.nanmedian(seconds))
    if rate < _SLOWEST and typical > 1:
        hint = f"the median latency is {typical:.3g} s: if these are milliseconds, divide them by 1,000"
    elif rate > _FASTEST:
        hint = f"the median latency is {typical:.3g} s: check that these are seconds of the whole batch"
    else:
        return
    message = f"{rate:.1g} multiply-accumulates in a second are implausible; {hint}."
    warnings.warn(message, NgbkitWarning, stacklevel=4)
