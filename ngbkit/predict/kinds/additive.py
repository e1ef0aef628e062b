"""Models that add up: seconds are a sum of amounts of work, each at a price that is never negative.

The prices minimise absolute relative errors, so that an error of a tenth counts the same for a small network, and a few
networks that do not add up have no more say than the others. Errors of logarithms would punish too high predictions
less, and did worse on families that were left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ngbkit.predict import features
from ngbkit.predict.graphs import Graph
from ngbkit.predict.kinds.base import Arrays, Floats, Progress, compute_weights, iterate_columns
from ngbkit.predict.labels.example_set import Examples

if TYPE_CHECKING:
    from typing import Self

# The least prediction, so that its logarithm exists.
_LEAST_S = 1e-7
# By kind that moves data or works by element, the columns of its count and of its bytes.
_MOVEMENT = np.array(
    [(1 + 3 * place, 3 + 3 * place) for place, name in enumerate(features.PRICED) if name in features.MOVEMENT]
)
# The bytes of a small and of a large operator of such a kind, and the weight of either beside a network. Weights from
# 0.01 to 1 did alike (errors within a point), and far better than none.
_SIZES, _PRIOR = (1e4, 1e6), 0.03


class Additive:
    """A price for each column of a table, by runtime."""

    kind: ClassVar[str]
    #: How much an operator that was measured alone counts, relative to a network.
    alone: ClassVar[float] = 0.0

    def __init__(self) -> None:
        self._prices: Floats = np.empty((0, 0))

    @property
    def prices(self) -> Floats:
        """The price of each column, a row per runtime; NaN for a runtime without a label."""
        return self._prices

    @staticmethod
    def build_columns(graphs: Sequence[Graph]) -> Floats:
        """Return the priced amounts, a row per graph, none below 0."""
        raise NotImplementedError

    def fit(self, examples: Examples, *, seed: int, report: Progress) -> None:  # noqa: ARG002  nothing is random
        """Find the prices, none of them negative."""
        self._prices = self.find_prices(examples)
        report(1.0, f"{self.kind}: {len(self._prices)} runtimes")

    @classmethod
    def find_prices(cls, examples: Examples) -> Floats:
        """Return the prices, a row per runtime; NaN for a runtime without the latency of a network.

        An operator that was measured alone pays prices of its own on top: of a call, and of the values that enter and
        leave it, which a runtime brings into its own layout once in a whole network.
        """
        isolated = examples.isolated[:, None]
        values = [[1.0, sum(tensor.size for tensor in (*graph.inputs, *graph.outputs))] for graph in examples.graphs]
        table = cls.build_columns(examples.graphs)
        amounts = np.hstack([table, np.array(values) * isolated])
        weights = compute_weights(examples) * np.where(isolated, cls.alone, 1.0)
        prices = np.full((len(examples.runtimes), table.shape[1]), np.nan)
        for runtime, _ in iterate_columns(np.where(isolated, np.nan, examples.seconds)):
            rows = np.flatnonzero(np.isfinite(examples.seconds[:, runtime]) & (weights[:, runtime] > 0))
            seconds, label_weights = examples.seconds[rows, runtime], weights[rows, runtime]
            prior, prior_seconds = cls.build_prior(amounts[rows], seconds, label_weights)
            fitted = fit_prices(
                np.vstack([amounts[rows], prior]),
                np.concatenate([seconds, prior_seconds]),
                np.concatenate([label_weights, np.full(len(prior), _PRIOR)]),
            )
            prices[runtime] = fitted[: table.shape[1]]
        return prices

    @classmethod
    def build_prior(cls, amounts: Floats, seconds: Floats, weights: Floats) -> tuple[Floats, Floats]:  # noqa: ARG003
        """Return amounts, and the seconds that prices are drawn to give for them where networks do not settle these."""
        return np.empty((0, amounts.shape[1])), np.empty(0)

    def predict(self, graphs: Sequence[Graph]) -> Floats:
        return np.maximum(self.build_columns(graphs) @ self._prices.T, _LEAST_S)

    def compute_contributions(self, graph: Graph) -> Floats:
        single_operators = [replace(graph, operators=(operator,), edges=(), shared=()) for operator in graph.operators]
        # The price of a call belongs to no operator.
        return np.asarray(self.build_columns(single_operators)[:, 1:] @ self._prices[:, 1:].T)

    def dump_settings(self) -> dict[str, Any]:
        return {}

    def dump_arrays(self) -> dict[str, NDArray[Any]]:
        return {"prices": self._prices}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        model = cls(**settings)
        model._prices = np.asarray(arrays["prices"], float)
        return model


class Flops(Additive):
    """A price per multiply-accumulate operation, and one per call: the cost model of most graph optimisers."""

    kind = "flops"

    @staticmethod
    def build_columns(graphs: Sequence[Graph]) -> Floats:
        return np.array([[1.0, sum(operator.macs or 0 for operator in graph.operators)] for graph in graphs])


class Linear(Additive):
    """A price per operator, per operation and per moved byte, by what the operator is: `features.PRICED`."""

    kind = "linear"
    alone = 0.3

    @staticmethod
    def build_columns(graphs: Sequence[Graph]) -> Floats:
        return np.array([[1.0, *features.encode_amounts(graph)] for graph in graphs])

    @classmethod
    def build_prior(cls, amounts: Floats, seconds: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """Return an operator of each kind that moves data, small and large, at the prices of all such kinds together.

        A kind that a single network has would otherwise pay for all that is peculiar about that network: prices of
        families that were left out were wrong by factors.
        """
        counts, moved = _MOVEMENT.T
        common = np.stack([amounts[:, columns].sum(axis=1) for columns in (counts, moved)], axis=1)
        others = np.delete(amounts, _MOVEMENT.ravel(), axis=1)
        count_price, byte_price = fit_prices(np.hstack([common, others]), seconds, weights)[:2]
        places = np.arange(len(_MOVEMENT))
        rows = np.zeros((len(_SIZES), len(places), amounts.shape[1]))
        rows[:, places, counts] = 1.0
        rows[:, places, moved] = np.array(_SIZES)[:, None]
        prior = np.repeat(count_price + byte_price * np.array(_SIZES), len(places))
        return rows.reshape(-1, amounts.shape[1]), np.maximum(prior, _LEAST_S)


def fit_prices(table: Floats, seconds: Floats, weights: Floats | None = None) -> Floats:
    """Return the non-negative prices with the least weighted sum of absolute relative errors, by reweighted squares."""
    from scipy.optimize import nnls

    relative = table / seconds[:, None]
    scale = np.maximum(np.abs(relative).max(axis=0), 1e-300)  # or small columns would vanish beside columns of billions
    relative = relative / scale
    weights = np.ones(len(seconds)) if weights is None else weights
    importance, best, least = weights, np.zeros(table.shape[1]), np.inf
    # An amount that no row has needs no price, and costs time in each round.
    present = np.flatnonzero(relative.any(axis=0))
    for _ in range(_ITERATIONS):
        root = np.sqrt(importance)
        prices = np.zeros(table.shape[1])
        prices[present], _ = nnls(relative[:, present] * root[:, None], root, maxiter=50 * table.shape[1])
        errors = np.abs(relative @ prices - 1)
        total = float(weights @ np.where(errors < _SMALL, errors**2 / (2 * _SMALL), errors - _SMALL / 2))
        if total < least:
            best, least = prices, total
        importance = weights / np.maximum(errors, _SMALL)
    return np.asarray(best / scale)


# Rounds of reweighting; each costs as much as a fit without weights.
_ITERATIONS = 15
# Relative errors below this size count quadratically: fitting them exactly would fit their noise.
_SMALL = 0.1
