"""Candidates of a comparison of networks: one column of a network, and how far its lead over another is known.

Rounds of two networks are paired only where the networks took turns (``--together``): where the number of their bundle
is the same. Networks that memory kept apart are normalised by the common anchor of their bundles; all others were
measured minutes apart, and have an allowance for what a machine does meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import xarray as xr

from ngbkit.dataset import contention
from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.long_form import expand_labels, list_labels
from ngbkit.dataset.storage import Data
from ngbkit.metrics import arrays, ratios
from ngbkit.metrics.contracts import Unlike, mask_unranked
from ngbkit.metrics.draws import DRAWS, Sampler
from ngbkit.metrics.drift import Drift, estimate_drifts
from ngbkit.sweep.trials import BASELINE
from ngbkit.user_text import format_network

Compared = Literal["side by side", "normalised by anchors", "minutes apart"]

Rounds = Mapping[int, float]
"""The median latency of each round, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankingCandidate:
    """One column of a network at one batch size on one device."""

    workload: str
    factors: Mapping[str, Any]
    compiler: str
    throughput: float
    rounds: Rounds
    bundle: float  # NaN where only its group took turns
    ties: Mapping[float, Rounds]  # of its bundle, by the number of the trial that they repeat
    process_sd: float
    copies_sd: float
    drift_sd: float
    conclusive: bool
    reason: str = ""  # why its outputs were not compared; empty where they were
    stopped: bool  # by a rule
    samples: int

    @property
    def checked(self) -> bool:
        """Return whether its outputs were compared."""
        return not self.reason

    @property
    def network(self) -> str:
        """The name of the network with the values of its factors."""
        return format_network(self.workload, self.factors)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lead:
    """The throughput of a candidate over that of another, as logarithms."""

    log_ratio: float
    compared: Compared
    rounds: int
    draws: np.ndarray  # of the rounds alone
    process_sd: float
    between_sd: float  # of measurements at different times

    @property
    def rounds_sd(self) -> float:
        """The standard deviation that the rounds show."""
        return float(np.std(self.draws))


Cell = tuple[str, int]
"""A device and a batch size."""


def list_candidates(data: Data, metric: str, unlike: Unlike, untuned: bool) -> dict[Cell, list[RankingCandidate]]:
    """List the measured columns of every network by device and batch size."""
    cells: dict[Cell, list[RankingCandidate]] = {}
    for node in map(expand_labels, nodes(data).values()):
        parts = ratios.prepare(node, mask=mask_unranked(node, metric, unlike, untuned))
        for cell, candidate in _iterate_candidates(node, parts, estimate_drifts(node)):
            cells.setdefault(cell, []).append(candidate)
    return cells


def compute_lead(candidate: RankingCandidate, reference: RankingCandidate, sampler: Sampler) -> Lead:
    """Compute how much faster a candidate is than another, by rounds that both share where there are any."""
    process_sd = math.hypot(candidate.process_sd, reference.process_sd)
    if _get_time(candidate) == _get_time(reference):
        paired = _pair(reference.rounds, candidate.rounds)
        if len(paired):
            return _build_lead("side by side", [paired], sampler, process_sd, 0.0)
    for number in candidate.ties.keys() & reference.ties.keys():
        parts = [_pair(each.ties[number], each.rounds) for each in (candidate, reference)]
        if all(map(len, parts)):
            return _build_lead("normalised by anchors", parts, sampler, process_sd, candidate.copies_sd)
    parts = [1 / np.array(list(each.rounds.values())) for each in (candidate, reference)]
    drift_sd = math.hypot(candidate.drift_sd, reference.drift_sd)
    lead = _build_lead("minutes apart", parts, sampler, process_sd, drift_sd)
    # Around another centre: a throughput is of samples, and not of the medians of rounds.
    log_ratio = math.log(candidate.throughput / reference.throughput)
    return replace(lead, log_ratio=log_ratio, draws=lead.draws - lead.log_ratio + log_ratio)


def find_fastest(columns: Sequence[RankingCandidate]) -> RankingCandidate:
    """Find the fastest column of a network by rounds that it shares with the baseline, as speed-ups are.

    Columns that were not checked are left out, unless none was. A machine that changes its pace may give the highest
    throughput to another one.
    """
    reference = next((column for column in columns if column.compiler == BASELINE), columns[0])

    def estimate_gain(column: RankingCandidate) -> float:
        paired = _pair(reference.rounds, column.rounds) if _get_time(column) == _get_time(reference) else np.array([])
        return float(arrays.median(paired)) if len(paired) else column.throughput / reference.throughput

    return max([column for column in columns if column.checked] or columns, key=estimate_gain)


def add_noise(
    leads: Sequence[Lead], candidates: Sequence[RankingCandidate], reference: RankingCandidate, sampler: Sampler
) -> Any:
    """Draw the logarithms of throughputs over that of the reference, ``(candidates, draws)``, with all that varies.

    What happens to the process of the reference, or while it was measured, happens to all ratios over it.
    """
    normal = sampler.generator.standard_normal
    of_reference, of_bundles = normal(DRAWS), {_get_time(reference): normal(DRAWS)}
    rows = []
    for lead, candidate in zip(leads, candidates, strict=True):
        if candidate is reference:
            rows.append(np.zeros(DRAWS))
            continue
        time = _get_time(candidate)
        if time not in of_bundles:
            of_bundles[time] = normal(DRAWS)
        between = of_bundles[time] - of_bundles[_get_time(reference)] if lead.between_sd else np.zeros(DRAWS)
        process = candidate.process_sd * normal(DRAWS) - reference.process_sd * of_reference
        rows.append(lead.draws + process + lead.between_sd / math.sqrt(2) * between)
    return np.array(rows)


def _get_time(candidate: RankingCandidate) -> Any:
    """Identify what was measured at the same time: a bundle, or the group alone."""
    return candidate.network if math.isnan(candidate.bundle) else candidate.bundle


def _pair(above: Rounds, below: Rounds) -> np.ndarray:
    """The ratios of the rounds that both have."""
    return np.array([above[number] / below[number] for number in above if number in below])


def _build_lead(
    compared: Compared, parts: list[np.ndarray], sampler: Sampler, process_sd: float, between_sd: float
) -> Lead:
    """The lead of the first part over the second, or of the only part over 1."""
    centers = [float(arrays.median(part)) for part in parts]
    draws = [sampler.draw_medians(xr.DataArray(part, dims="rounds")).values for part in parts]
    above, *below = [np.log(values) for values in draws]
    first, *second = [math.log(center) for center in centers]
    return Lead(
        log_ratio=first - sum(second),
        compared=compared,
        rounds=min(map(len, parts)),
        draws=above - sum(below),
        process_sd=process_sd,
        between_sd=between_sd,
    )


def _iterate_candidates(
    node: xr.Dataset, parts: xr.Dataset, drifts: Mapping[str, Drift]
) -> Iterator[tuple[Cell, RankingCandidate]]:
    """The candidates of a node, with the cell of each."""
    if "medians" not in parts:
        return
    node = contention.select_samples(node)
    factors = [name for name in factor_dims(node) if name != "rounds"]
    dims = ["device", "batch_size", "workload", *factors, "compiler"]
    rates = parts["throughput"].transpose(*dims)
    bundles = _align(node["bundle"] if "bundle" in node else xr.DataArray(np.nan), rates)
    properties = {name: _align(parts[name], rates) for name in ("process_sd", "copies_sd", "conclusive", "stopped")}
    latency, rounds = (node[name].transpose(*dims, "repeat").values for name in ("latency", "round"))
    unchecked = contention.find_unchecked(node)
    reasons = _align(node["error"].where(unchecked, "") if bool(unchecked.any()) else xr.DataArray(""), rates)
    ties = _collect_ties(node, dims[:-1])
    labels = {dim: list_labels(rates, dim) for dim in dims}
    for index in zip(*np.nonzero(np.isfinite(rates.values)), strict=True):
        place = {dim: labels[dim][position] for dim, position in zip(dims, index, strict=True)}
        cell = (str(place.pop("device")), int(place.pop("batch_size")))
        bundle = float(bundles[index])
        yield (
            cell,
            RankingCandidate(
                workload=str(place["workload"]),
                factors={name: place[name] for name in factors},
                compiler=str(place["compiler"]),
                throughput=float(rates.values[index]),
                rounds=_compute_medians(latency[index], rounds[index]),
                bundle=bundle,
                ties=ties.get((*cell, bundle), {}),
                process_sd=float(properties["process_sd"][index]),
                copies_sd=float(properties["copies_sd"][index]),
                drift_sd=drifts[cell[0]].sd,
                conclusive=bool(properties["conclusive"][index]),
                reason=str(reasons[index]),
                stopped=bool(properties["stopped"][index]),
                samples=int(np.count_nonzero(np.isfinite(latency[index]))),
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
    bundles, numbers = (values[name].transpose(*dims).values for name in names[2:])
    devices, sizes = node["device"].values.tolist(), node["batch_size"].values.tolist()
    for index in zip(*np.nonzero(np.isfinite(numbers)), strict=True):
        cell = (str(devices[index[0]]), int(sizes[index[1]]), float(bundles[index]))
        ties.setdefault(cell, {})[float(numbers[index])] = _compute_medians(latency[index], rounds[index])
    return ties


def _compute_medians(latency: np.ndarray, rounds: np.ndarray) -> Rounds:
    """The median latency of each round of one trial."""
    present = (rounds >= 0) & np.isfinite(latency)
    order = np.argsort(rounds[present], kind="stable")
    samples, numbers = latency[present][order], rounds[present][order]
    distinct, starts = np.unique(numbers, return_index=True)
    parts = np.split(samples, starts[1:])
    return {number: float(np.median(part)) for number, part in zip(distinct.tolist(), parts, strict=False)}
