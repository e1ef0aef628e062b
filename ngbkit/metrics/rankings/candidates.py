"""Candidates of a comparison of networks: each column of a network, at one batch size on one device."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset import contention
from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.long_form import expand_labels, list_labels
from ngbkit.dataset.storage import Data
from ngbkit.metrics import arrays, ratios
from ngbkit.metrics.contracts import Unlike, mask_unranked
from ngbkit.metrics.drift import Drift, estimate_drifts
from ngbkit.sweep.column import BASELINE
from ngbkit.user_text import format_network

Rounds = Mapping[int, float]
"""The median latency of each round, in seconds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RankingCandidate:
    """One column of a network at one batch size on one device."""

    device: str
    workload: str
    factors: Mapping[str, Any]
    compiler: str
    throughput: float
    rounds: Rounds
    bundle: float  # NaN where only its group took turns
    ties: Mapping[float, Rounds]  # of its bundle, by the number of the trial that they repeat
    process_sd: float
    hours_sd: float  # the part of it that more waves do not reduce
    waves: float
    copies_sd: float
    drift_sd: float
    rounds_pool: np.ndarray  # by which series borrow the correlation of their rounds from each other
    ratios_pool: np.ndarray
    conclusive: bool
    reason: str = ""  # why its outputs were not compared; empty where they were
    stopped: bool  # by a rule
    samples: int

    @property
    def checked(self) -> bool:
        """Return whether its outputs were compared."""
        return not self.reason

    @cached_property
    def network(self) -> str:
        """The name of the network with the values of its factors."""
        return format_network(self.workload, self.factors)

    @cached_property
    def time(self) -> tuple[str, str | float]:
        """The device, and the bundle in which it took turns there, or its network where only its group did."""
        return self.device, self.network if math.isnan(self.bundle) else self.bundle


Cell = tuple[str, int]
"""A device and a batch size."""


def list_candidates(data: Data, metric: str, unlike: Unlike, untuned: bool) -> dict[Cell, list[RankingCandidate]]:
    """List the measured columns of every network by device and batch size."""
    cells: dict[Cell, list[RankingCandidate]] = {}
    for node in nodes(data).values():
        dropped = [dim for dim in ("device", "workload", "compiler") if dim not in node.coords]
        node = expand_labels(node.assign_coords(dict.fromkeys(dropped, "")))
        parts = ratios.prepare(node, mask=mask_unranked(node, metric, unlike, untuned))
        for cell, candidate in _iterate_candidates(node, parts, estimate_drifts(node)):
            cells.setdefault(cell, []).append(candidate)
    return cells


def group_by_network(candidates: Sequence[RankingCandidate]) -> list[list[RankingCandidate]]:
    """Group the columns of each network, in the order of the networks."""
    groups: dict[str, list[RankingCandidate]] = {}
    for candidate in candidates:
        groups.setdefault(candidate.network, []).append(candidate)
    return list(groups.values())


def find_fastest(columns: Sequence[RankingCandidate]) -> RankingCandidate:
    """Find the fastest column of a network by rounds that it shares with the baseline, as speed-ups are.

    Columns that were not checked are left out, unless none was. A machine that changes its pace may give the highest
    throughput to another one.
    """
    reference = next((column for column in columns if column.compiler == BASELINE), columns[0])

    def estimate_gain(column: RankingCandidate) -> float:
        paired = divide_rounds(reference.rounds, column.rounds) if column.time == reference.time else []
        return statistics.median(paired) if paired else column.throughput / reference.throughput

    return max([column for column in columns if column.checked] or columns, key=estimate_gain)


def find_highest(networks: Sequence[RankingCandidate]) -> RankingCandidate:
    """Find the network of the highest throughput of those that were checked, unless none was."""
    return max([each for each in networks if each.checked] or networks, key=lambda each: each.throughput)


def divide_rounds(above: Rounds, below: Rounds) -> list[float]:
    """The ratios of the rounds that both have."""
    return [above[number] / below[number] for number in above if number in below]


def _iterate_candidates(
    node: xr.Dataset, parts: xr.Dataset, drifts: Mapping[str, Drift]
) -> Iterator[tuple[Cell, RankingCandidate]]:
    """The candidates of a node, with the cell of each."""
    node = contention.select_samples(node)
    factors = [name for name in factor_dims(node) if name != "rounds"]
    dims = ["device", "batch_size", "workload", *factors, "compiler"]
    rates = parts["throughput"].transpose(*dims)
    has_rounds = "medians" in parts
    if not has_rounds:  # such as a published table of throughputs
        rounds = rates.expand_dims(rounds=[0]).isel(rounds=[])
        parts = parts.assign(dict.fromkeys(("process_sd", "hours_sd", "copies_sd"), 0.0))
        parts = parts.assign(medians=rounds, waves=1.0, stopped=False)
        parts = parts.assign(dict.fromkeys(("rounds_pool", "ratios_pool"), ratios.pool_series(rounds)[0]))
    bundles = _align(node["bundle"] if "bundle" in node else xr.DataArray(np.nan), rates)
    deviations = {name: _align(parts[name], rates) for name in ("process_sd", "hours_sd", "waves", "copies_sd")}
    properties = {name: _align(parts[name], rates) for name in ("conclusive", "stopped")}
    medians = parts["medians"].transpose(*dims, "rounds").values
    pools = {name: parts[name].values for name in ("rounds_pool", "ratios_pool")}
    numbers = arrays.list_rounds(node["round"].values).tolist() if has_rounds else []
    counts = node["latency"].notnull().sum("repeat") if has_rounds else xr.zeros_like(rates)
    samples = counts.transpose(*dims).values
    unchecked = contention.find_unchecked(node)
    errors = node["error"] if "error" in node else xr.zeros_like(rates, dtype=str)
    reasons = _align(errors.where(errors != "", "without a reason").where(unchecked, ""), rates)
    ties = _collect_ties(node, dims[:-1])
    labels = {dim: list_labels(rates, dim) for dim in dims}
    for index in zip(*np.nonzero(np.isfinite(rates.values)), strict=True):
        place = {dim: labels[dim][position] for dim, position in zip(dims, index, strict=True)}
        cell = (str(place.pop("device")), int(place.pop("batch_size")))
        bundle = float(bundles[index])
        yield (
            cell,
            RankingCandidate(
                device=cell[0],
                workload=str(place["workload"]),
                factors={name: place[name] for name in factors},
                compiler=str(place["compiler"]),
                throughput=float(rates.values[index]),
                rounds=_number(medians[index], numbers),
                bundle=bundle,
                ties=ties.get((*cell, bundle), {}),
                **{name: float(values[index]) for name, values in deviations.items()},  # type: ignore[arg-type]
                drift_sd=drifts[cell[0]].sd,
                **{name: values[index[0]] for name, values in pools.items()},
                conclusive=bool(properties["conclusive"][index]),
                reason=str(reasons[index]),
                stopped=bool(properties["stopped"][index]),
                samples=int(samples[index]),
            ),
        )


def _align(values: xr.DataArray, like: xr.DataArray) -> np.ndarray:
    """The values along all dims of another array."""
    return np.asarray(values.reset_coords(drop=True).broadcast_like(like).transpose(*like.dims).values)


def _collect_ties(node: xr.Dataset, dims: Sequence[str]) -> dict[tuple[Any, ...], dict[float, Rounds]]:
    """The ties by device, batch size and bundle; each by the number of the trial that it repeats."""
    names = ("tie_latency", "tie_round", "tie_bundle", "tie")
    if not {*names} <= set(node.variables):
        return {}
    ties: dict[tuple[Any, ...], dict[float, Rounds]] = {}
    values = {
        name: node[name].isel(compiler=0, drop=True) if "compiler" in node[name].dims else node[name] for name in names
    }
    latency, rounds = (values[name].transpose(*dims, "repeat").values for name in names[:2])
    medians, numbers = arrays.round_medians(latency, rounds), arrays.list_rounds(rounds).tolist()
    bundles, repeated = (values[name].transpose(*dims).values for name in names[2:])
    devices, sizes = node["device"].values.tolist(), node["batch_size"].values.tolist()
    for index in zip(*np.nonzero(np.isfinite(repeated)), strict=True):
        cell = (str(devices[index[0]]), int(sizes[index[1]]), float(bundles[index]))
        ties.setdefault(cell, {})[float(repeated[index])] = _number(medians[index], numbers)
    return ties


def _number(medians: np.ndarray, numbers: Sequence[int]) -> Rounds:
    """The medians of one trial by the number of their round."""
    return {number: value for number, value in zip(numbers, medians.tolist(), strict=True) if value == value}
