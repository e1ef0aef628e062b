"""Models that add up: seconds are a sum of what there is to do, each part at a price that is never negative.

The prices are those with the least squares of relative errors: a tenth too much counts the same for a small network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ngbkit.predictor import features
from ngbkit.predictor.examples import Examples
from ngbkit.predictor.graphs import Graph
from ngbkit.predictor.kinds.base import Arrays, Floats, Progress, by_runtime

if TYPE_CHECKING:
    from typing import Self

# Nothing takes less: the logarithm of a prediction must exist.
_LEAST_S = 1e-7


class Additive:
    """A price for each column of a table, by runtime."""

    kind: ClassVar[str]

    def __init__(self) -> None:
        self._prices: Floats = np.empty((0, 0))

    @staticmethod
    def columns(graphs: Sequence[Graph]) -> Floats:
        """What is paid for, a row a graph: nothing below 0."""
        raise NotImplementedError

    def fit(self, examples: Examples, *, seed: int, progress: Progress) -> None:  # noqa: ARG002  nothing is by chance
        """Find the prices by non-negative least squares, from whole networks alone."""
        whole = examples.take(np.flatnonzero(~examples.isolated))
        table = self.columns(whole.graphs)
        self._prices = np.full((len(examples.runtimes), table.shape[1]), np.nan)
        for number, (runtime, rows) in enumerate(by_runtime(whole.seconds)):
            self._prices[runtime] = prices(table[rows], whole.seconds[rows, runtime])
            progress((number + 1) / len(examples.runtimes), f"{self.kind}: {examples.runtimes[runtime][1]}")

    def predict(self, graphs: Sequence[Graph]) -> Floats:
        return np.maximum(self.columns(graphs) @ self._prices.T, _LEAST_S)

    def contributions(self, graph: Graph) -> Floats:
        alone = [replace(graph, operators=(one,), edges=(), shared=()) for one in graph.operators]
        # What a call costs is no operator's.
        return np.asarray(self.columns(alone)[:, 1:] @ self._prices[:, 1:].T)

    def settings(self) -> dict[str, Any]:
        return {}

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"prices": self._prices}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        found = cls(**settings)
        found._prices = np.asarray(arrays["prices"], float)
        return found


class Flops(Additive):
    """A price for each multiply-accumulate operation, and one for a call: what most graph optimisers go by."""

    kind = "flops"

    @staticmethod
    def columns(graphs: Sequence[Graph]) -> Floats:
        return np.array([[1.0, sum(one.macs or 0 for one in graph.operators)] for graph in graphs])


class Linear(Additive):
    """A price for each operator, each of its operations and each byte that it moves, by the kind of the operator."""

    kind = "linear"

    @staticmethod
    def columns(graphs: Sequence[Graph]) -> Floats:
        return np.array([[1.0, *features.amounts(graph.operators)] for graph in graphs])


def prices(table: Floats, seconds: Floats) -> Floats:
    """The prices, none negative, with the least sum of squared relative errors."""
    from scipy.optimize import nnls

    weighted = table / seconds[:, None]
    scale = np.maximum(np.abs(weighted).max(axis=0), 1e-300)  # or columns of a few would be lost beside billions
    found, _ = nnls(weighted / scale, np.ones(len(seconds)), maxiter=50 * table.shape[1])
    return np.asarray(found / scale)
