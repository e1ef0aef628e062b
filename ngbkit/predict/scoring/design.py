"""Chooses the networks whose latencies tell most about those of all others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngbkit.predict.graphs import Graph
from ngbkit.predict.kinds.additive import Linear
from ngbkit.predict.kinds.base import Floats

# The deviation of a label, as a share of that of an unknown latency.
_NOISE = 0.05


def choose_informative(graphs: Sequence[Graph], seconds: Floats, count: int) -> tuple[list[int], list[float]]:
    """Return the indices of up to `count` graphs, and the share of the variance of all that is left after each.

    A latency is a sum of amounts at unknown prices, all of them as uncertain: a Gaussian process whose covariance is
    that of the shares of the amounts in the expected `seconds` of each graph.
    """
    if not len(graphs):
        return [], []
    amounts = Linear.build_columns(graphs)
    shares = (
        amounts[:, amounts.max(axis=0) > 0] / np.where(np.isfinite(seconds), seconds, np.nanmedian(seconds))[:, None]
    )
    return choose_rows(shares / np.sqrt((shares**2).mean(axis=0)), count)


def choose_rows(table: Floats, count: int) -> tuple[list[int], list[float]]:
    """Choose rows, whose numbers have one scale, one after the other: each leaves the least variance of all rows."""
    covariance = table @ table.T / table.shape[1]
    total = float(np.trace(covariance))
    chosen: list[int] = []
    left: list[float] = []
    for _ in range(min(count, len(table))):
        variances = np.diag(covariance) + _NOISE**2
        gains = (covariance**2).sum(axis=0) / variances
        gains[chosen] = -1.0
        index = int(np.argmax(gains))
        chosen.append(index)
        covariance = covariance - np.outer(covariance[index], covariance[index]) / variances[index]
        left.append(float(np.trace(covariance)) / total)
    return chosen, left
