"""Leads: how far it is known that one candidate is faster than another, drawn jointly for all of a contest.

Rounds of two networks are paired only where the networks took turns (``--together``): where the number of their bundle
is the same. Networks that memory kept apart are normalised by the common anchor of their bundles; all others were
measured minutes apart, and have an allowance for what a machine does meanwhile.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from ngbkit.device.timing import correlation
from ngbkit.device.timing.normal import MAD_SCALE
from ngbkit.metrics import arrays
from ngbkit.metrics.draws import DRAWS, PROBABILITY_LEVEL, SEED, Sampler, bound_replicates
from ngbkit.metrics.rankings.candidates import RankingCandidate, divide_rounds, find_highest

Compared = Literal["side by side", "normalised by anchors", "minutes apart"]

# Contests that are computed at once: few enough for the cache of a core.
_BLOCK = 128
# Rounds that tell a correlation; and the largest one, so that equal columns leave each other a chance.
_FEWEST, _LARGEST = 5, 0.999
# Robust standard deviations beyond which a round is a stray one.
_OUTLYING = 2.0
# Fewer effective rounds than these, where they are less than this share of all, understate how far rounds spread.
_FEWEST_EFFECTIVE, _SMALLEST_SHARE = 8, 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lead:
    """The throughput of a candidate over that of another, as logarithms."""

    log_ratio: float
    interval: tuple[float, float]  # of the ratio; NaN with too few rounds
    compared: Compared
    rounds: int
    effective_rounds: float  # as many independent ones tell as much
    rounds_sd: float  # that the rounds show
    process_sd: float
    hours_sd: float  # the part of it that more waves do not reduce
    waves: float
    between_sd: float  # of measurements at different times

    @property
    def rounds_needed(self) -> int:
        """The rounds that show their own spread where each resembles the one before; 0 where few do."""
        share = self.effective_rounds / self.rounds
        return math.ceil(_FEWEST_EFFECTIVE / share) if share < _SMALLEST_SHARE else 0


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnPair:
    """A candidate beside the one that it is compared with: ratios of shared rounds, or a part of each of the two."""

    candidate: RankingCandidate
    reference: RankingCandidate
    compared: Compared
    parts: Sequence[Sequence[float]]
    between_sd: float

    @property
    def stopped(self) -> bool:
        """Return whether a rule ended the measurement of either."""
        return self.candidate.stopped or self.reference.stopped

    @property
    def columns(self) -> tuple[RankingCandidate, RankingCandidate]:
        """Both of them."""
        return self.candidate, self.reference

    @cached_property
    def log_ratio(self) -> float:
        """The logarithm of its throughput over that of the reference: of medians over rounds, as a speed-up is.

        Between networks of different times it is of samples, as each throughput is.
        """
        if self.compared == "minutes apart":
            if self.candidate.network != self.reference.network:
                return math.log(self.candidate.throughput / self.reference.throughput)
            above, below = (statistics.median(each.rounds.values()) for each in (self.reference, self.candidate))
            return math.log(above / below)
        first, *second = [math.log(statistics.median(part)) for part in self.parts]
        return first - sum(second)


def pair(candidate: RankingCandidate, reference: RankingCandidate) -> ColumnPair:
    """Pair the rounds of two candidates as closely as they were measured."""
    compared: Compared = "side by side"
    parts, between_sd = [], 0.0
    if candidate.time == reference.time and (paired := divide_rounds(reference.rounds, candidate.rounds)):
        parts = [paired]
    for number in () if parts else candidate.ties.keys() & reference.ties.keys():
        anchored = [divide_rounds(each.ties[number], each.rounds) for each in (candidate, reference)]
        if all(anchored):
            compared, parts, between_sd = "normalised by anchors", anchored, candidate.copies_sd
            break
    if not parts:
        compared, between_sd = "minutes apart", math.hypot(candidate.drift_sd, reference.drift_sd)
        parts = [[1 / value for value in each.rounds.values()] for each in (candidate, reference)]
    return ColumnPair(candidate=candidate, reference=reference, compared=compared, parts=parts, between_sd=between_sd)


def compute_lead(candidate: RankingCandidate, reference: RankingCandidate, level: float) -> Lead:
    """Compute how much faster a candidate is than another, by rounds that both share where there are any."""
    return draw_leads([[pair(candidate, reference)]], level)[0][0][0]


def draw_leads(contests: Sequence[Sequence[ColumnPair]], level: float) -> list[list[tuple[Lead, np.ndarray]]]:
    """Draw the leads of the pairs of each contest jointly: the lead, and replicates of its logarithm.

    What a column has in its rounds, in its process and at its time, it has in all leads of its contest. Contests that
    are alike have the same variates, so that no contest depends on others.
    """
    classes: dict[tuple[Any, ...], list[int]] = {}
    for place, pairs in enumerate(contests):
        classes.setdefault(_describe_likeness(pairs), []).append(place)
    replicates: dict[int, list[tuple[Lead, np.ndarray]]] = {}
    for places in classes.values():
        for block in (places[start : start + _BLOCK] for start in range(0, len(places), _BLOCK)):
            columns = [*zip(*(contests[place] for place in block), strict=True)]
            leads = zip(*_draw_block(columns, level), strict=True) if columns else [[] for _ in block]
            replicates.update(zip(block, map(list, leads), strict=True))
    return [replicates[place] for place in range(len(contests))]


def _describe_likeness(pairs: Sequence[ColumnPair]) -> tuple[Any, ...]:
    """All that decides which variates a contest needs."""
    columns = [column for each in pairs for column in each.columns]
    times, processes = [column.time for column in columns], [id(column) for column in columns]
    return (
        tuple((each.compared, *map(len, each.parts), each.stopped) for each in pairs),
        tuple(map(times.index, times)),
        tuple(map(processes.index, processes)),
    )


def _draw_block(columns: Sequence[Sequence[ColumnPair]], level: float) -> Iterator[list[tuple[Lead, np.ndarray]]]:
    """Draw the leads of contests that are alike; `columns` has for each of their pairs that of every contest."""
    sampler = Sampler(level=level, generator=np.random.default_rng(SEED))
    of_rounds, of_processes, of_times = (
        defaultdict[Any, np.ndarray](lambda: sampler.draw_scores()[0]) for _ in range(3)
    )
    side_by_side = iter(_correlate([column for column in columns if column[0].compared == "side by side"], sampler))
    for pairs in columns:
        first, second = pairs[0].columns
        centers = np.array([each.log_ratio for each in pairs])
        if pairs[0].compared == "side by side":
            draws, effective = _resample(sampler, pairs, 0, "ratios_pool", next(side_by_side))
        else:
            pool = "rounds_pool" if pairs[0].compared == "minutes apart" else "ratios_pool"
            (draws, effective), (below, others) = (
                _resample(sampler, pairs, place, pool, np.broadcast_to(of_rounds[id(column)], (len(pairs), DRAWS)))
                for place, column in enumerate((first, second))
            )
            draws, effective = draws - below, np.minimum(effective, others)
        if pairs[0].compared == "minutes apart":  # around another centre
            medians = [np.log(arrays.median([each.parts[place] for each in pairs])) for place in (0, 1)]
            draws = draws + (centers - medians[0] + medians[1])[:, None]
        deviations = [[column.process_sd for column in each.columns] for each in pairs]
        noise = np.outer([sds[0] for sds in deviations], of_processes[id(first)])
        noise -= np.outer([sds[1] for sds in deviations], of_processes[id(second)])
        if any(each.between_sd for each in pairs):
            # Columns of one time that share no round were measured apart in it.
            times = (first.time, second.time) if first.time != second.time else (id(first), id(second))
            between = of_times[times[0]] - of_times[times[1]]
            noise += np.outer([each.between_sd / math.sqrt(2) for each in pairs], between)
        process_sds, replicates = np.hypot(*np.transpose(deviations)), np.exp(draws + noise)
        if pairs[0].compared == "side by side":  # whatever the others of a contest are, as in a table of speed-ups
            replicates = sampler.resample(*_collect_rounds(pairs, 0, "ratios_pool"), process_sds)
        bounds = np.transpose(bound_replicates(replicates.T, level, stopped=pairs[0].stopped)).tolist()
        leads = [
            Lead(
                log_ratio=log_ratio,
                interval=tuple(interval),
                compared=each.compared,
                rounds=min(map(len, each.parts)),
                effective_rounds=effective_rounds,
                rounds_sd=rounds_sd,
                process_sd=process_sd,
                hours_sd=math.hypot(*(column.hours_sd for column in each.columns)),
                waves=min(column.waves for column in each.columns),
                between_sd=each.between_sd,
            )
            for log_ratio, interval, effective_rounds, rounds_sd, process_sd, each in zip(
                *(centers.tolist(), bounds, effective.tolist(), draws.std(axis=-1).tolist(), process_sds.tolist()),
                pairs,
                strict=True,
            )
        ]
        yield list(zip(leads, draws + noise, strict=True))


def _resample(
    sampler: Sampler, pairs: Sequence[ColumnPair], part: int, pool: str, scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Resample the logarithms of the medians of one part of each pair; and the effective number of its rounds."""
    values, pools = _collect_rounds(pairs, part, pool)
    effective = values.shape[-1] / correlation.estimate_inflation(np.log(values), pools) ** 2
    return np.log(sampler.resample(values, pools, 0.0, scores)), effective


def _collect_rounds(pairs: Sequence[ColumnPair], part: int, pool: str) -> tuple[np.ndarray, np.ndarray]:
    """Collect the rounds of one part of each pair, and by which they borrow their correlation."""
    return np.array([each.parts[part] for each in pairs]), np.array([getattr(each.candidate, pool) for each in pairs])


def _correlate(columns: Sequence[Sequence[ColumnPair]], sampler: Sampler) -> np.ndarray:
    """Draw normal scores, ``(columns, contests, draws)``, that correlate as medians of pairs of the same rounds do."""
    scores, _ = sampler.draw_scores(len(columns))
    factors = np.array([_factorise(pairs) for pairs in zip(*columns, strict=True)])
    return np.einsum("cij,jd->icd", factors, scores) if columns else scores


def _factorise(pairs: Sequence[ColumnPair]) -> np.ndarray:
    """Compute the Cholesky factor of the correlations between the ratios of pairs, from rounds that all have."""
    columns = [column.rounds for each in pairs for column in each.columns]
    numbers = [number for number in columns[0] if all(number in rounds for rounds in columns)]
    if len(pairs) < 2 or len(numbers) < _FEWEST:
        return np.eye(len(pairs))
    logs = np.log([[rounds[number] for number in numbers] for rounds in columns])
    gaps = logs[1::2] - logs[::2]
    gaps -= np.median(gaps, axis=1, keepdims=True)
    # A stray round moves no median, so it must make no correlation.
    limits = _OUTLYING * MAD_SCALE * np.median(np.abs(gaps), axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlations = np.nan_to_num(np.corrcoef(gaps.clip(-limits, limits))).clip(-1, 1)
    # As medians of normal values that correlate so do.
    correlations = _LARGEST * 2 / math.pi * np.arcsin(correlations)
    np.fill_diagonal(correlations, 1.0)
    return np.asarray(np.linalg.cholesky(correlations))


def draw_speeds(networks: Sequence[RankingCandidate]) -> np.ndarray:
    """Draw the speeds of networks together, ``(networks, draws)``: logarithms, over that of the highest."""
    first = find_highest(networks)
    others = [network for network in networks if network is not first]
    (leads,) = draw_leads([[pair(first, other) for other in others]], PROBABILITY_LEVEL)
    speeds = {id(other): -draws for other, (_, draws) in zip(others, leads, strict=True)}
    return np.array([speeds.get(id(network), np.zeros(DRAWS)) for network in networks])
