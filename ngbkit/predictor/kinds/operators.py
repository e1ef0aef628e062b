"""The sum of operators that were measured by themselves: the cost model of optimisers such as TASO.

It knows nothing of what a runtime fuses, of layouts that are kept from one operator to the next, nor of warm caches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ngbkit.predictor import features
from ngbkit.predictor.examples import Examples
from ngbkit.predictor.graphs import Graph, Operator
from ngbkit.predictor.kinds.additive import prices
from ngbkit.predictor.kinds.base import Arrays, Floats, Progress, by_runtime

if TYPE_CHECKING:
    from typing import Self


class OperatorSum:
    """What each operator took by itself; one that was not measured costs what the others of its kind say."""

    kind: ClassVar[str] = "operators"

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._seconds: Floats = np.empty((0, 0))
        self._prices: Floats = np.empty((0, 0))

    def fit(self, examples: Examples, *, seed: int, progress: Progress) -> None:  # noqa: ARG002  nothing is by chance
        """Keep what single operators took; whole networks teach it nothing.

        Without any single operator it predicts NaN.
        """
        alone = examples.take(np.flatnonzero(examples.isolated))
        self._known = {graph.operators[0].digest: at for at, graph in enumerate(alone.graphs)}
        self._seconds = alone.seconds
        table = np.array([_amounts(graph.operators[0]) for graph in alone.graphs]).reshape(len(alone), _COLUMNS)
        self._prices = np.full((len(examples.runtimes), table.shape[1]), np.nan)
        for runtime, rows in by_runtime(alone.seconds):
            self._prices[runtime] = prices(table[rows], alone.seconds[rows, runtime])
        progress(1.0, f"{self.kind}: {len(alone)} operators")

    def predict(self, graphs: Sequence[Graph]) -> Floats:
        found = [np.sum([self._cost(one) for one in graph.operators], axis=0) for graph in graphs]
        return np.array(found).reshape(len(graphs), -1)

    def contributions(self, graph: Graph) -> Floats:
        return np.array([self._cost(one) for one in graph.operators]).reshape(len(graph.operators), -1)

    def _cost(self, one: Operator) -> Floats:
        guessed = _amounts(one) @ self._prices.T if self._prices.size else np.full(len(self._prices), np.nan)
        at = self._known.get(one.digest)
        if at is None:
            return np.asarray(guessed)
        return np.where(np.isfinite(self._seconds[at]), self._seconds[at], guessed)

    def settings(self) -> dict[str, Any]:
        return {"known": list(self._known)}

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"seconds": self._seconds, "prices": self._prices}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        found = cls()
        found._known = {digest: at for at, digest in enumerate(settings["known"])}
        found._seconds, found._prices = (np.asarray(arrays[name], float) for name in ("seconds", "prices"))
        return found


# A price for being called, and one for each number that `features.amounts` gives.
_COLUMNS = 1 + len(features.amounts([]))


def _amounts(one: Operator) -> Floats:
    return np.array([1.0, *features.amounts([one])])
