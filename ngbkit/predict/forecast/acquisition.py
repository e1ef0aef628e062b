"""Chooses the trials that most improve the answer to which compiler is the best of each group.

The value of a trial is the time that its result is expected to save when the best compiler of every group is chosen
(the knowledge gradient: Frazier, Powell and Dayanik, A knowledge-gradient policy for sequential information collection,
SIAM Journal on Control and Optimization 47, 2008).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ngbkit.predict.forecast.surrogate import Indices, Surrogate
from ngbkit.predict.forecast.trial_table import Floats

Flags = NDArray[np.bool_]

# Where no decision depends on a trial, the most uncertain trial counts, for the sake of the predictions.
_CURIOUS = 1e-3


def choose(
    surrogate: Surrogate, indices: Indices, groups: NDArray[np.intp], available: Flags, worth: Floats, count: int
) -> list[int]:
    """Return the positions in `indices` of up to `count` trials to measure next, the most informative first.

    `indices` are rows of the surrogate's table, `groups` the group of each; `available` excludes trials with a record.
    `worth` weighs each trial: its probability of a result, over its expected seconds; it is 0 for a compiler that does
    not work, which is then the best of no group.
    """
    from scipy.special import ndtr

    mean, covariance = surrogate.predict_joint(indices)
    best, rivals = _build_contrasts(mean, groups, worth > 0)
    chosen: list[int] = []
    free = available & (worth > 0)
    for _ in range(min(count, int(free.sum()))):
        differences = covariance[best] - covariance[rivals]
        variance = np.maximum(np.diag(covariance), 0) + surrogate.noise
        shift = np.abs(differences[:, free]) / np.sqrt(variance[free])
        gap = np.abs(mean[best] - mean[rivals])[:, None]
        ratio = gap / np.maximum(shift, 1e-12)
        gain = shift * np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi) - gap * ndtr(-ratio)
        value = (gain.sum(axis=0) + _CURIOUS * np.sqrt(variance[free])) * worth[free]
        index = int(np.flatnonzero(free)[int(np.argmax(value))])
        chosen.append(index)
        free[index] = False
        # Its result is unknown, but not by how much it reduces the uncertainty.
        covariance = covariance - np.outer(covariance[index], covariance[index]) / variance[index]
    return chosen


def spread_groups(numbers: Floats, groups: NDArray[np.intp], count: int) -> list[int]:
    """Return dissimilar groups to start with: the most central, then always the farthest from those chosen."""
    names = np.unique(groups)
    centres = np.stack([numbers[groups == name].mean(axis=0) for name in names])
    chosen = [int(np.argmin(((centres - centres.mean(axis=0)) ** 2).sum(axis=1)))]
    while len(chosen) < min(count, len(names)):
        distances = ((centres[:, None] - centres[chosen][None]) ** 2).sum(axis=2).min(axis=1)
        distances[chosen] = -1.0
        chosen.append(int(np.argmax(distances)))
    return [int(names[index]) for index in chosen]


def _build_contrasts(mean: Floats, groups: NDArray[np.intp], possible: Flags) -> tuple[Indices, Indices]:
    """Pair the best trial of each group so far with each other trial of the group."""
    best, rivals = [], []
    for group in np.unique(groups):
        members = np.flatnonzero((groups == group) & possible)
        if len(members) > 1:
            best_member = int(members[np.argmin(mean[members])])
            best += [best_member] * (len(members) - 1)
            rivals += [int(member) for member in members if member != best_member]
    return np.array(best, dtype=np.intp), np.array(rivals, dtype=np.intp)
