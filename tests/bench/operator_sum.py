"""The sum of operators that were measured alone: the cost model of optimisers such as TASO, as a kind of model.

It ignores fusion, layouts that a runtime keeps between operators, and warm caches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ngbkit.predict import features
from ngbkit.predict.graphs import Graph, Operator
from ngbkit.predict.kinds import KINDS
from ngbkit.predict.kinds.additive import fit_prices
from ngbkit.predict.kinds.base import Arrays, Floats, Progress, compute_weights, iterate_columns
from ngbkit.predict.labels.example_set import Examples

if TYPE_CHECKING:
    from typing import Self


class OperatorSum:
    """The measured seconds of each operator; an unmeasured one is estimated from others of its kind."""

    kind: ClassVar[str] = "operators"

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._seconds: Floats = np.empty((0, 0))
        self._prices: Floats = np.empty((0, 0))

    def fit(self, examples: Examples, *, seed: int, report: Progress) -> None:
        """Keep the seconds of single operators and ignore networks; without single operators the model predicts NaN."""
        # A runtime may execute several operators for one, or none: their seconds are those of no operator.
        is_single = np.array([len(graph.operators) == 1 for graph in examples.graphs], dtype=bool)
        singles = examples.take(np.flatnonzero(examples.isolated & is_single))
        self._rows = {graph.operators[0].digest: index for index, graph in enumerate(singles.graphs)}
        self._seconds = singles.seconds
        table = np.array([_build_amounts(graph.operators[0]) for graph in singles.graphs]).reshape(
            len(singles), _COLUMNS
        )
        self._prices = np.full((len(examples.runtimes), table.shape[1]), np.nan)
        weights = compute_weights(singles)
        for runtime, rows in iterate_columns(singles.seconds):
            self._prices[runtime] = fit_prices(table[rows], singles.seconds[rows, runtime], weights[rows, runtime])
        report(1.0, f"{self.kind}: {len(singles)} operators")

    def predict(self, graphs: Sequence[Graph]) -> Floats:
        seconds = [np.sum([self._estimate_cost(operator) for operator in graph.operators], axis=0) for graph in graphs]
        return np.array(seconds).reshape(len(graphs), -1)

    def compute_contributions(self, graph: Graph) -> Floats:
        return np.array([self._estimate_cost(operator) for operator in graph.operators]).reshape(
            len(graph.operators), -1
        )

    def _estimate_cost(self, operator: Operator) -> Floats:
        estimate = (
            _build_amounts(operator) @ self._prices.T if self._prices.size else np.full(len(self._prices), np.nan)
        )
        row = self._rows.get(operator.digest)
        if row is None:
            return np.asarray(estimate)
        return np.where(np.isfinite(self._seconds[row]), self._seconds[row], estimate)

    def dump_settings(self) -> dict[str, Any]:
        return {"known": list(self._rows)}

    def dump_arrays(self) -> dict[str, NDArray[Any]]:
        return {"seconds": self._seconds, "prices": self._prices}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        model = cls()
        model._rows = {digest: index for index, digest in enumerate(settings["known"])}
        model._seconds, model._prices = np.asarray(arrays["seconds"], float), np.asarray(arrays["prices"], float)
        runtimes = len(model._prices)
        if model._seconds.shape != (len(model._rows), runtimes) or model._prices.shape != (runtimes, _COLUMNS):
            raise ValueError(f"seconds of shape {model._seconds.shape} do not fit prices of {model._prices.shape}")
        return model


# A price per call, and one for each amount of `features.sum_amounts`.
_COLUMNS = 1 + len(features.sum_amounts([]))


def _build_amounts(operator: Operator) -> Floats:
    return np.array([1.0, *features.sum_amounts([operator])])


KINDS[OperatorSum.kind] = OperatorSum
