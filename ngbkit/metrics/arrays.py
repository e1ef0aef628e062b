"""The metrics as arithmetic on NumPy arrays, without labels; NaN in, NaN out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.floating[Any]]


def ratio(numerator: ArrayLike, denominator: ArrayLike) -> Floats:
    """`numerator` over `denominator`; NaN where either is NaN or the denominator is 0."""
    above, below = np.broadcast_arrays(np.asarray(numerator, float), np.asarray(denominator, float))
    quotient: Floats = np.divide(above, below, out=np.full(above.shape, np.nan), where=below != 0)
    return quotient


def median(samples: ArrayLike, axis: int = -1) -> Floats:
    """The median along `axis`, ignoring NaN, much faster than `numpy.nanmedian`; NaN where there is no sample."""
    ordered = np.moveaxis(np.sort(np.asarray(samples, float), axis=axis), axis, -1)  # NaN sorts last
    if not ordered.shape[-1]:
        return np.full(ordered.shape[:-1], np.nan)
    count = np.count_nonzero(~np.isnan(ordered), axis=-1)[..., None]
    lower = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=-1)
    upper = np.take_along_axis(ordered, np.minimum(count // 2, ordered.shape[-1] - 1), axis=-1)
    return np.asarray(((lower + upper) / 2)[..., 0])


def throughput(latency: ArrayLike, batch_size: ArrayLike, axis: int = -1) -> Floats:
    """Samples per second: `batch_size` over the median along `axis` of `latency`, in seconds."""
    return ratio(batch_size, median(latency, axis))


def round_medians(latency: ArrayLike, rounds: ArrayLike) -> Floats:
    """The median latency of each interleaving round, of shape ``(..., rounds)``; NaN where a round has no sample.

    Both arguments have the shape ``(..., samples)``; `rounds` numbers the round of each sample from 0, and is negative
    or NaN where there is no sample. Only rounds that occur get a column, in order.
    """
    values = np.asarray(latency, float)
    numbers = np.nan_to_num(np.asarray(rounds, float), nan=-1).astype(np.intp)
    if not _are_columns(numbers):
        occurring, columns = np.unique(numbers, return_inverse=True)
        numbers = columns.reshape(numbers.shape) - np.count_nonzero(occurring < 0)
    lead, width = values.shape[:-1], values.shape[-1]
    values, numbers = values.reshape(-1, width), numbers.reshape(-1, width)
    total = int(numbers.max(initial=-1)) + 1
    row, column = np.nonzero((numbers >= 0) & ~np.isnan(values))
    cell = row * total + numbers[row, column]
    if np.any(np.diff(cell) < 0):
        order = np.argsort(cell, kind="stable")
        row, column, cell = row[order], column[order], cell[order]
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    sizes = np.diff(starts, append=len(cell))
    within = np.arange(len(cell)) - np.repeat(starts, sizes)
    grid = np.full((len(values) * total, int(sizes.max(initial=1))), np.nan)
    grid[cell, within] = values[row, column]
    return median(grid).reshape(*lead, total)


def list_rounds(rounds: ArrayLike) -> NDArray[np.intp]:
    """The number of the round of each column of `round_medians`."""
    numbers = np.nan_to_num(np.asarray(rounds, float), nan=-1).astype(np.intp)
    if _are_columns(numbers):
        return np.arange(numbers.max() + 1)
    occurring = np.unique(numbers)
    return np.asarray(occurring[occurring >= 0])


def _are_columns(numbers: NDArray[np.intp]) -> bool:
    """Return whether round numbers are column numbers: the rounds of a second session start at a million."""
    return bool(numbers.size and numbers.max() < 2 * numbers.shape[-1])


def paired_speedup(latency: ArrayLike, baseline: ArrayLike) -> Floats:
    """The median over rounds of the baseline's latency over the compiler's, round by round, of shape ``(...)``.

    Both arguments are `round_medians`, of shape ``(..., rounds)``. Drift between rounds affects both alike and cancels
    in each ratio. Where the two share no round, it is the ratio of their medians over rounds.
    """
    above, below = np.broadcast_arrays(np.asarray(baseline, float), np.asarray(latency, float))
    paired = median(ratio(above, below))
    return np.where(np.isnan(paired), ratio(median(above), median(below)), paired)


def slope(y: ArrayLike, x: ArrayLike, axis: int = -1) -> Floats:
    """The least-squares slope of `y` along `axis` over the one-dimensional `x`; NaN with fewer than two points."""
    values = np.moveaxis(np.asarray(y, float), axis, -1)
    finite = np.isfinite(values)
    count = finite.sum(axis=-1, keepdims=True)
    abscissae = np.where(finite, np.asarray(x, float), 0)
    ordinates = np.where(finite, values, 0)
    across = np.where(finite, abscissae - ratio(abscissae.sum(axis=-1, keepdims=True), count), 0)
    up = np.where(finite, ordinates - ratio(ordinates.sum(axis=-1, keepdims=True), count), 0)
    return ratio((across * up).sum(axis=-1), (across**2).sum(axis=-1))


def contradict(slope: ArrayLike, retention: ArrayLike) -> NDArray[np.bool_]:
    """Return whether slope and retention disagree on whether the speed-up grows: then the curve is not monotone."""
    slopes, retentions = np.asarray(slope, float), np.asarray(retention, float)
    return np.asarray(((slopes > 0) & (retentions < 1)) | ((slopes < 0) & (retentions > 1)))
