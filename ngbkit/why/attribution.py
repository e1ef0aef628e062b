"""The time of each piece in two runtimes, and its part of the gap: numbers with intervals, from rounds in pairs.

A gap is the mean, over rounds, of the second runtime's seconds minus the first's: the means of pieces sum to that of
whole calls. Rounds that other work slowed are left out of all pieces alike. Replicates resample rounds; they spread by
a factor more as rounds resemble those before them, and as the small number of rounds demands (Student's t).

Rounds do not show how a kernel in one process differs from the same kernel in another: pages and caches differ from
process to process, and so does the time in which threads wake. Each piece has an allowance for that: `PROCESS_SD` of
its time, and `KERNEL_SD` for each kernel. Where both sides are versions of one program, most of their pieces are the
same: the deviation of these shows how far two processes differ here, and the allowance is at least that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from ngbkit.device.timing import correlation, intervals
from ngbkit.device.timing.normal import LEVEL, MAD_SCALE, find_quantile
from ngbkit.errors import MetricError
from ngbkit.metrics.draws import DRAWS, SEED
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.statistics import adjust_by_holm
from ngbkit.why.pieces import Piece
from ngbkit.why.trial_profile import Floats, TrialProfile

ALPHA = 0.05
"""The probability that any piece of a program is called guilty in a comparison with its copy, at most."""

PROCESS_SD = 0.07
"""The standard deviation of the difference of a kernel's time between two processes, as a share of that time.

This and `KERNEL_SD` are medians over 24 pairs of copies: three networks in ONNX Runtime and OpenVINO on two virtual
cores. Single pairs had 2 to 24 %, and 2 to 10 µs.
"""

KERNEL_SD = 4e-6
"""The same of short kernels, in seconds of each: of those that take less than half a percent of a call."""

CALL_SD = 0.01
"""The same of what a call spends between kernels: as a share of the call, since it is the rest of all of it."""

_FEWEST_ROUNDS = 6
# Pieces that tell how far two processes differ: the share of a call that divides long from short ones, and the fewest.
_LEAST_PIECE, _FEWEST_PIECES = 0.005, 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attribution:
    """The gap between two runtimes by pieces, in seconds of a call; positive where the second takes longer."""

    seconds: Floats  # the mean of each piece in both, ``(2, pieces)``
    differences: Floats  # the gap of each piece in each round, ``(pieces, rounds)``
    allowances: Floats  # the standard deviation of the gap of each piece that rounds do not show
    draws: Floats  # replicates of the gaps, ``(draws, pieces)``

    def sum_parts(self, parts: Sequence[Sequence[int]]) -> Attribution:
        """Sum pieces to parts, each a list of their indices."""
        return Attribution(
            seconds=np.stack([self.seconds[:, list(part)].sum(axis=1) for part in parts], axis=1),
            differences=np.stack([self.differences[list(part)].sum(axis=0) for part in parts]),
            allowances=np.array([float(np.hypot.reduce(self.allowances[list(part)])) for part in parts]),
            draws=np.stack([self.draws[:, list(part)].sum(axis=1) for part in parts], axis=1),
        )

    @property
    def rounds(self) -> int:
        """The number of rounds that count."""
        return int(self.differences.shape[1])

    @property
    def gaps(self) -> Floats:
        """The gap of each piece."""
        return np.asarray(self.differences.mean(axis=1))

    @property
    def total(self) -> float:
        """The gap of whole calls."""
        return float(self.gaps.sum())

    @property
    def total_estimate(self) -> Estimate:
        """The gap of whole calls, with its interval."""
        low, high = intervals.compute_interval(self.draws.sum(axis=1), LEVEL)
        return Estimate(self.total, float(low), float(high))

    @property
    def gap_intervals(self) -> tuple[Floats, Floats]:
        """The ends of the interval of each gap."""
        return intervals.compute_interval(self.draws, LEVEL)

    @property
    def shares(self) -> tuple[Floats, Floats, Floats]:
        """The share of each piece in the gap of whole calls, with its interval; NaN where that gap is not sure."""
        totals = self.draws.sum(axis=1)
        low, high = intervals.compute_interval(totals, LEVEL)
        if low <= 0 <= high:
            nothing = np.full(len(self.differences), np.nan)
            return nothing, nothing, nothing
        return self.gaps / self.total, *intervals.compute_interval(self.draws / totals[:, None], LEVEL)

    @property
    def p_values(self) -> Floats:
        """The probability of so large a gap in a program and its copy, adjusted for the number of pieces (Holm)."""
        spreads = _estimate_inflation(self.differences) * self.differences.std(axis=1, ddof=1)
        deviations = np.hypot(spreads / np.sqrt(self.rounds), self.allowances)
        scores = np.divide(self.gaps, deviations, out=np.zeros(len(deviations)), where=deviations > 0)
        return adjust_by_holm(2 * stdtr(self.rounds - 1, -np.abs(scores)))

    @property
    def is_guilty(self) -> NDArray[np.bool_]:
        """True for each piece that differs beyond what a program and its copy do."""
        return np.asarray(self.p_values < ALPHA)


def attribute(profiles: Sequence[TrialProfile], pieces: Sequence[Piece], *, are_versions: bool = False) -> Attribution:
    """Attribute the gap between two profiles to their pieces, of which the last is the time between kernels.

    `are_versions` says that both are versions of one program. MetricError: they have fewer than 6 rounds in common.
    """
    first, second = profiles
    rounds = min(len(first.plain), len(second.plain))
    if rounds < _FEWEST_ROUNDS:
        raise MetricError(
            f"invalid profiles: got {rounds} rounds in common; expected {_FEWEST_ROUNDS} or more. Measure them again."
        )
    is_kept = ~(first.is_outlying[:rounds] | second.is_outlying[:rounds])
    if is_kept.sum() < max(_FEWEST_ROUNDS, rounds / 2):
        is_kept[:] = True
    times = np.stack([sum_kernels(profile, pieces, side)[:, :rounds] for side, profile in enumerate(profiles)])
    times = times[..., is_kept]
    means = times.mean(axis=-1)
    share, seconds = PROCESS_SD, KERNEL_SD
    if are_versions:
        share, seconds = np.fmax((share, seconds), estimate_process_sd(means)).tolist()
    counts = np.array([max(map(len, piece.kernels)) for piece in pieces])
    allowances = np.hypot(share * _compute_rms(means), seconds * counts)
    allowances[-1] = max(share * _compute_rms(means[:, -1]), CALL_SD * _compute_rms(means.sum(axis=1)))
    differences = times[1] - times[0]
    generator = np.random.default_rng(SEED)
    draws = draw_means(differences, generator)
    return Attribution(
        seconds=means,
        differences=differences,
        allowances=allowances,
        draws=draws + generator.standard_normal(draws.shape) * allowances,
    )


def sum_kernels(profile: TrialProfile, pieces: Sequence[Piece], side: int) -> Floats:
    """Sum the seconds of the kernels of each piece, ``(pieces, rounds)``; the last piece is the rest of the call."""
    sums = np.stack([profile.seconds[list(piece.kernels[side])].sum(axis=0) for piece in pieces])
    sums[-1] = profile.plain - sums[:-1].sum(axis=0)
    return np.asarray(sums)


def draw_means(values: Floats, generator: np.random.Generator) -> Floats:
    """Draw replicates, ``(draws, rows)``, of the mean over rounds of each row; all rows resample the same rounds."""
    rounds = values.shape[1]
    weights = generator.multinomial(rounds, np.full(rounds, 1 / rounds), DRAWS) / rounds
    means = values.mean(axis=1)
    student = stdtrit(rounds - 1, (1 + LEVEL) / 2) / find_quantile(LEVEL)
    factors = student * np.sqrt(rounds / (rounds - 1)) * _estimate_inflation(values)
    return np.asarray(means + (weights @ values.T - means) * factors)


def estimate_process_sd(means: Floats) -> tuple[float, float]:
    """Estimate how far pieces differ between two processes: long ones as a share, short ones in seconds, or NaN.

    `means` are the seconds of each piece in both, of which the last is the time between kernels.
    """
    gaps, seconds = means[1, :-1] - means[0, :-1], means[:, :-1].mean(axis=0)
    is_long = seconds > _LEAST_PIECE * means.sum(axis=1).mean()
    parts = gaps[is_long] / seconds[is_long], gaps[~is_long & (seconds > 0)]
    share, rest = (MAD_SCALE * np.median(np.abs(each)) if len(each) >= _FEWEST_PIECES else np.nan for each in parts)
    return float(share), float(rest)


def _compute_rms(values: Floats) -> Floats:
    """Return the root of the mean square over both sides."""
    return np.asarray(np.sqrt((values**2).mean(axis=0)))


def _estimate_inflation(values: Floats) -> Floats:
    """Estimate how much wider an interval is than of independent rounds, from the series of all pieces."""
    return correlation.estimate_inflation(values, correlation.pool_series(values))
