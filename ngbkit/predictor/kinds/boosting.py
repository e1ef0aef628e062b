"""Gradient-boosted trees on features of the whole graph, on top of prices: the baseline of the graph network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ngbkit.predictor import features
from ngbkit.predictor.graphs import Graph
from ngbkit.predictor.kinds.additive import Linear
from ngbkit.predictor.kinds.base import Arrays, Floats, Progress, compute_weights, ignore_progress, iterate_columns
from ngbkit.predictor.kinds.trees import Ensembles
from ngbkit.predictor.labels.example_set import Examples

if TYPE_CHECKING:
    from typing import Self


class Boosting:
    """LightGBM on the logarithm of the seconds over those of an additive model, one ensemble of trees per runtime.

    Trees alone predict no network beyond the training networks, and prices do. The trees minimise absolute errors;
    fewer trees by networks that are held out did worse than all trees from all networks.

    Parameters
    ----------
    rounds
        Trees.
    leaves
        Leaves per tree at most.
    learning_rate
        The weight of each tree.
    """

    kind: ClassVar[str] = "boosting"

    def __init__(self, rounds: int = 800, leaves: int = 15, learning_rate: float = 0.04) -> None:
        self._rounds, self._leaves, self._rate = rounds, leaves, learning_rate
        self._prices = Linear()
        self._trees = Ensembles()
        self._runtimes = 0

    def fit(self, examples: Examples, *, seed: int, progress: Progress) -> None:
        self._prices.fit(examples, seed=seed, progress=ignore_progress)
        networks = examples.take(np.flatnonzero(~examples.isolated))
        logs = np.log(networks.seconds / self._prices.predict(networks.graphs))
        table, weights = _build_table(networks.graphs), compute_weights(networks)
        self._trees, self._runtimes = Ensembles(), len(examples.runtimes)
        parameters = {"num_leaves": self._leaves, "learning_rate": self._rate, "min_data_in_leaf": 3, "lambda_l2": 1.0}
        for number, (runtime, rows) in enumerate(iterate_columns(networks.seconds)):
            labels, label_weights = logs[rows, runtime], weights[rows, runtime]
            self._trees.train(runtime, table[rows], labels, label_weights, rounds=self._rounds, seed=seed, **parameters)
            progress((number + 1) / self._runtimes, f"{self.kind}: {examples.runtimes[runtime][1]}")

    def predict(self, graphs: Sequence[Graph]) -> Floats:
        table = _build_table(graphs)
        logs = np.full((len(graphs), self._runtimes), np.nan)
        for runtime in self._trees:
            logs[:, runtime] = self._trees.predict(runtime, table)
        return np.asarray(self._prices.predict(graphs) * np.exp(logs))

    def compute_contributions(self, graph: Graph) -> None:
        """Return None: the model encodes the graph as a whole."""

    def dump_settings(self) -> dict[str, Any]:
        return {"rounds": self._rounds, "leaves": self._leaves, "learning_rate": self._rate}

    def dump_arrays(self) -> dict[str, NDArray[Any]]:
        return {**self._prices.dump_arrays(), **self._trees.dump()}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        model = cls(**settings)
        model._prices = Linear.restore({}, arrays)
        model._runtimes = len(arrays["prices"])
        model._trees = Ensembles.restore(arrays, len(features.WHOLE), model._runtimes)
        return model


def _build_table(graphs: Sequence[Graph]) -> NDArray[np.float32]:
    return np.stack([features.encode_graph(graph) for graph in graphs])
