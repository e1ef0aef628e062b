"""Gradient-boosted trees on numbers of the whole graph: the baseline that a graph network has to beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ngbkit.errors import MissingDependencyError
from ngbkit.predictor import features
from ngbkit.predictor.examples import Examples
from ngbkit.predictor.graphs import Graph
from ngbkit.predictor.kinds.base import Arrays, Floats, Progress, by_runtime

if TYPE_CHECKING:
    from typing import Self

    import lightgbm


class Boosting:
    """LightGBM, one ensemble of trees a runtime, on the logarithm of the seconds.

    Parameters
    ----------
    rounds
        Trees.
    leaves
        Of a tree, at most.
    learning_rate
        How much each tree adds.
    """

    kind: ClassVar[str] = "boosting"

    def __init__(self, rounds: int = 800, leaves: int = 15, learning_rate: float = 0.04) -> None:
        self._rounds, self._leaves, self._rate = rounds, leaves, learning_rate
        self._trees: dict[int, str] = {}
        self._runtimes = 0
        self._loaded: dict[int, lightgbm.Booster] = {}

    def fit(self, examples: Examples, *, seed: int, progress: Progress) -> None:
        lightgbm = _library()
        whole = examples.take(np.flatnonzero(~examples.isolated))
        table = _table(whole.graphs)
        self._trees, self._runtimes, self._loaded = {}, len(examples.runtimes), {}
        wanted = {
            **{"objective": "regression", "num_leaves": self._leaves, "learning_rate": self._rate},
            **{"min_data_in_leaf": 3, "feature_fraction": 0.5, "bagging_fraction": 0.8, "bagging_freq": 1},
            **{"lambda_l2": 1.0, "seed": seed, "deterministic": True, "force_col_wise": True, "verbosity": -1},
        }
        for number, (runtime, rows) in enumerate(by_runtime(whole.seconds)):
            data = lightgbm.Dataset(table[rows], label=np.log(whole.seconds[rows, runtime]))
            # A share of a single network would be none, which LightGBM refuses.
            share = wanted if len(rows) > 1 else {**wanted, "bagging_fraction": 1.0}
            booster = lightgbm.train(share, data, num_boost_round=self._rounds)
            self._trees[runtime] = booster.model_to_string()
            progress((number + 1) / self._runtimes, f"{self.kind}: {examples.runtimes[runtime][1]}")

    def predict(self, graphs: Sequence[Graph]) -> Floats:
        lightgbm = _library()
        table = _table(graphs)
        found = np.full((len(graphs), self._runtimes), np.nan)
        for runtime, text in self._trees.items():
            booster = self._loaded.setdefault(runtime, lightgbm.Booster(model_str=text))
            found[:, runtime] = np.exp(booster.predict(table))
        return found

    def contributions(self, graph: Graph) -> None:
        """It sees the graph as a whole."""

    def settings(self) -> dict[str, Any]:
        return {"rounds": self._rounds, "leaves": self._leaves, "learning_rate": self._rate}

    def arrays(self) -> dict[str, NDArray[Any]]:
        trees = {f"trees_{runtime}": np.frombuffer(text.encode(), np.uint8) for runtime, text in self._trees.items()}
        return {"runtimes": np.array([self._runtimes]), **trees}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        found = cls(**settings)
        found._runtimes = int(arrays["runtimes"][0])
        kept = {name: value for name, value in arrays.items() if name.startswith("trees_")}
        found._trees = {int(name.removeprefix("trees_")): value.tobytes().decode() for name, value in kept.items()}
        return found


def _library() -> Any:
    """LightGBM, where it is installed.

    Raises
    ------
    MissingDependencyError
        It is not.
    """
    try:
        import lightgbm
    except ImportError as error:
        raise MissingDependencyError("lightgbm", "predict") from error
    return lightgbm


def _table(graphs: Sequence[Graph]) -> NDArray[np.float32]:
    return np.stack([features.of_graph(graph) for graph in graphs])
