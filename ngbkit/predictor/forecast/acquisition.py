"""Which trials tell most of what a sweep is asked for: which compiler is the best of each group.

A trial is worth what knowing it is expected to save: choosing the best compiler of every group with it, and without it
(the knowledge gradient: Frazier, Powell and Dayanik, A knowledge-gradient policy for sequential information collection,
SIAM Journal on Control and Optimization 47, 2008).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ngbkit.predictor.forecast.surrogate import Places, Surrogate
from ngbkit.predictor.forecast.table import Floats

Flags = NDArray[np.bool_]

# What is settled is still to be predicted: where nothing else is to be gained, the least known counts.
_CURIOUS = 1e-3


def choose(
    surrogate: Surrogate, places: Places, groups: NDArray[np.intp], open_: Flags, worth: Floats, count: int
) -> list[int]:
    """The trials to measure next, the most telling for its time first.

    Parameters
    ----------
    surrogate
        Of what was measured so far.
    places
        The trials to look at, as places in its table.
    groups
        Which group each is of.
    open_
        Which may be measured: not those that have a record.
    worth
        By how much each counts: what makes it likely to give a result, over the seconds that it takes. Trials that can
        give none, whose compiler is known not to work, are 0, and are no one's best.
    count
        How many.

    Returns
    -------
    list of int
        Of the trials of `places`, by their index there; fewer where nothing is left to tell.
    """
    from scipy.special import ndtr

    mean, covariance = surrogate.joint(places)
    left, right = _contrasts(mean, groups, worth > 0)
    found: list[int] = []
    free = open_ & (worth > 0)
    for _ in range(min(count, int(free.sum()))):
        across = covariance[left] - covariance[right]
        variance = np.maximum(np.diag(covariance), 0) + surrogate.noise
        moved = np.abs(across[:, free]) / np.sqrt(variance[free])
        gap = np.abs(mean[left] - mean[right])[:, None]
        ratio = gap / np.maximum(moved, 1e-12)
        gain = moved * np.exp(-0.5 * ratio**2) / np.sqrt(2 * np.pi) - gap * ndtr(-ratio)
        total = (gain.sum(axis=0) + _CURIOUS * np.sqrt(variance[free])) * worth[free]
        at = int(np.flatnonzero(free)[int(np.argmax(total))])
        found.append(at)
        free[at] = False
        # What it will say is not known, but how much less will be unknown then is.
        covariance = covariance - np.outer(covariance[at], covariance[at]) / variance[at]
    return found


def spread(numbers: Floats, groups: NDArray[np.intp], count: int) -> list[int]:
    """Groups to begin with, as unlike as can be: the one in the middle, then the farthest from those before it."""
    names = np.unique(groups)
    middles = np.stack([numbers[groups == name].mean(axis=0) for name in names])
    found = [int(np.argmin(((middles - middles.mean(axis=0)) ** 2).sum(axis=1)))]
    while len(found) < min(count, len(names)):
        far = ((middles[:, None] - middles[found][None]) ** 2).sum(axis=2).min(axis=1)
        far[found] = -1.0
        found.append(int(np.argmax(far)))
    return [int(names[at]) for at in found]


def _contrasts(mean: Floats, groups: NDArray[np.intp], possible: Flags) -> tuple[Places, Places]:
    """In each group the trial that is best so far, against each of the others."""
    left, right = [], []
    for group in np.unique(groups):
        own = np.flatnonzero((groups == group) & possible)
        if len(own) > 1:
            best = int(own[np.argmin(mean[own])])
            left += [best] * (len(own) - 1)
            right += [int(one) for one in own if one != best]
    return np.array(left, dtype=np.intp), np.array(right, dtype=np.intp)
