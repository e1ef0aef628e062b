"""The resemblance of rounds to the rounds before them, and by how much it widens the interval of a median.

A machine is slower for seconds at a time, and not all compilers by the same factor. Six or ten rounds tell little of
that, but the series of a run resemble each other in it, so each borrows from the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ngbkit.device.timing.normal import MAD_SCALE

Floats = NDArray[np.floating[Any]]

_GRID = np.linspace(0.0, 0.9, 19)
"""The autocorrelations at a distance of one round, as of an autoregressive process, that are thought possible."""

# Before any data: three quarters as of the series in notebooks/data, whose runs have means of 0.04 to 0.28; the rest
# for machines that are unlike those.
_USUAL = (1 - _GRID) ** 5
_PRIOR: Floats = np.log(0.75 * _USUAL / _USUAL.sum() + 0.25 / len(_GRID))
# The series of a run are similar and not equal, and some is unlike all others: what these tell is blurred by a standard
# deviation, so many of them count, and a share of the prior stays as it was before any of them.
_SPREAD, _MOST_BORROWED, _UNLIKE = 0.1, 12, 0.2
_BLUR = np.exp(-(((_GRID[:, None] - _GRID) / _SPREAD) ** 2) / 2)
_BLUR /= _BLUR.sum(axis=0)
_FEWEST_ROUNDS, _OUTLYING = 3, 3.0


def estimate_inflation(log_values: ArrayLike, pool: ArrayLike | None = None) -> Floats:
    """Estimate how much wider the interval of a median is than it would be if all rounds were independent.

    `log_values` are natural logarithms, ``(..., rounds)``, in the order of time, NaN-padded; `pool`, ``(..., grid)``,
    is the prior that other series give, of `pool_series`. The result, ``(...)``, is at least 1: the root of the
    posterior mean of the variance of a mean, over that of independent rounds. Values beyond three robust standard
    deviations are clipped.
    """
    likelihood, variance = _fit(np.asarray(log_values, float))
    posterior = likelihood + (_PRIOR if pool is None else np.asarray(pool, float))
    weights = np.exp(posterior - posterior.max(axis=-1, keepdims=True))
    return np.asarray(np.sqrt(np.maximum(1.0, (weights * variance).sum(axis=-1) / weights.sum(axis=-1))))


def pool_series(log_values: Floats | Sequence[Floats]) -> Floats:
    """Pool what series, ``(..., rounds)``, tell of their autocorrelation: the logarithm of a prior, ``(grid,)``.

    A sequence has series of any lengths. A series counts once by itself, so the sum is of one less.
    """
    if not isinstance(log_values, np.ndarray):
        log_values = np.array(list(zip_longest(*log_values, fillvalue=np.nan)), float).T
    likelihood, _ = _fit(log_values)
    rows = likelihood.reshape(-1, len(_GRID))
    rows = rows[rows.any(axis=-1)]
    if len(rows) < 2:
        return _PRIOR
    pooled = rows.sum(axis=0) * min(len(rows) - 1, _MOST_BORROWED) / len(rows) + _PRIOR
    weights = np.exp(pooled - pooled.max())
    blurred = _BLUR @ (weights / weights.sum())
    return np.asarray(np.log((1 - _UNLIKE) * blurred + _UNLIKE * np.exp(_PRIOR)))


def _fit(values: Floats) -> tuple[Floats, Floats]:
    """Fit each autocorrelation to each series: its restricted log-likelihood, and the variance of the mean.

    The variance is over that of independent rounds. A series that tells nothing has 0 and 1.
    """
    shape = (*values.shape[:-1], len(_GRID))
    if not values.size:
        return np.zeros(shape), np.ones(shape)
    order = np.argsort(np.isnan(values), axis=-1, kind="stable")  # the gaps of missing rounds are closed
    ordered = np.take_along_axis(values, order, axis=-1)
    present = ~np.isnan(ordered)
    count = np.count_nonzero(present, axis=-1)
    deviations = ordered - _compute_middle(ordered, count)[..., None]
    limit = _OUTLYING * MAD_SCALE * _compute_middle(np.abs(deviations), count)
    clipped = np.nan_to_num(np.clip(deviations, -limit[..., None], limit[..., None]))
    last = np.take_along_axis(clipped, np.maximum(count - 1, 0)[..., None], axis=-1)[..., 0]
    ends, squares, total = clipped[..., 0] ** 2 + last**2, (clipped**2).sum(axis=-1), clipped.sum(axis=-1)
    products = (clipped[..., 1:] * clipped[..., :-1]).sum(axis=-1)
    usable = (squares > 0) & (count >= _FEWEST_ROUNDS)
    rounds, square, ends, products, total, edges = (
        np.where(usable, each, 1.0)[..., None]
        for each in (count, squares, ends, products, total, clipped[..., 0] + last)
    )
    # The quadratic forms of the inverse of the correlations, for the values and for their mean.
    of_ones = rounds * (1 - _GRID) ** 2 + 2 * _GRID * (1 - _GRID)
    of_both = (1 - _GRID) ** 2 * total + _GRID * (1 - _GRID) * edges
    of_values = square * (1 + _GRID**2) - _GRID**2 * ends - 2 * _GRID * products
    rest = np.maximum(of_values - of_both**2 / of_ones, np.finfo(float).tiny)
    likelihood = (np.log1p(-(_GRID**2)) - np.log(of_ones) - (rounds - 1) * np.log(rest)) / 2
    variance = rest / of_ones * rounds / np.maximum(square - total**2 / rounds, np.finfo(float).tiny)
    likelihood -= likelihood.max(axis=-1, keepdims=True)
    return np.where(usable[..., None], likelihood, 0.0), np.where(usable[..., None], variance, 1.0)


def _compute_middle(values: Floats, count: NDArray[np.intp]) -> Floats:
    """Compute the median of each row; NaN where it has no value."""
    ordered = np.sort(values, axis=-1)
    lower, upper = (np.maximum(count - 1, 0) // 2)[..., None], np.minimum(count // 2, values.shape[-1] - 1)[..., None]
    pair = (np.take_along_axis(ordered, index, axis=-1)[..., 0] for index in (lower, upper))
    return np.asarray(sum(pair) / 2)
