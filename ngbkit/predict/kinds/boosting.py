"""Gradient-boosted trees on features of the whole graph, on top of prices: the baseline of the graph network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ngbkit.errors import import_optional
from ngbkit.predict import features
from ngbkit.predict.graphs import Graph
from ngbkit.predict.kinds.additive import Linear
from ngbkit.predict.kinds.base import Arrays, Floats, Progress, compute_weights, ignore_progress, iterate_columns
from ngbkit.predict.labels.example_set import Examples

if TYPE_CHECKING:
    from typing import Self

Integers = NDArray[np.int64]

# More threads than one gain little on so few rows, and wait for each other without end where other work has the cores.
_TRAINING: dict[str, Any] = {
    **{"objective": "regression_l1", "bagging_fraction": 0.8, "bagging_freq": 1, "feature_fraction": 0.5},
    **{"min_data_in_leaf": 3, "lambda_l2": 1.0},
    **{"deterministic": True, "force_col_wise": True, "num_threads": 1, "verbosity": -1},
}
_LEAF = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """The trees of a runtime as arrays, a row per node: a file with hostile numbers is refused before it is followed.

    `roots` are the first nodes of the trees. A node compares a `column` of the table with a `threshold`, and continues
    at its `left` node if it is not larger, else at its `right` node; both come after it. The column of a leaf is -1,
    and its threshold is its value.
    """

    roots: Integers
    columns: Integers
    thresholds: Floats
    left: Integers
    right: Integers

    @classmethod
    def train(cls, table: NDArray[np.float32], logs: Floats, weights: Floats, rounds: int, **parameters: float) -> Self:
        """Fit trees to logarithms by absolute errors, with LightGBM's `parameters` beside the usual ones."""
        # LightGBM rejects a bagging fraction of a single row.
        single = {"bagging_fraction": 1.0} if len(table) == 1 else {}
        lightgbm = import_optional("lightgbm", "lightgbm", "predict")
        data = lightgbm.Dataset(table, label=logs, weight=weights)
        booster = lightgbm.train({**_TRAINING, **single, **parameters}, data, num_boost_round=rounds)
        rows: list[tuple[int, float, int, int]] = []
        roots = [_add_node(rows, tree["tree_structure"]) for tree in booster.dump_model()["tree_info"]]
        columns, thresholds, left, right = zip(*rows, strict=True)
        return cls(
            roots=np.array(roots, np.int64),
            columns=np.array(columns, np.int64),
            thresholds=np.array(thresholds, np.float64),
            left=np.array(left, np.int64),
            right=np.array(right, np.int64),
        )

    def check(self, columns: int) -> None:
        """Raise a ValueError unless every path ends in a leaf, over columns of a table with so many."""
        count = len(self.columns)
        numbers = np.arange(count)
        inner = self.columns != _LEAF
        shapes = [getattr(self, part.name).shape for part in fields(self)][1:]
        if shapes != [(count,)] * len(shapes) or not all(np.issubdtype(side.dtype, np.integer) for side in self._sides):
            raise ValueError(f"trees of nodes of shapes {shapes}")
        for side in (self.left, self.right):
            if not ((numbers[inner] < side[inner]) & (side[inner] < count)).all():
                raise ValueError("a tree leads outside of itself")
        if not ((self.columns >= _LEAF) & (self.columns < columns)).all():
            raise ValueError("a tree splits on a column that does not exist")
        if self.roots.ndim != 1 or not ((self.roots >= 0) & (self.roots < count)).all():
            raise ValueError("a tree begins outside of the nodes")

    @property
    def _sides(self) -> tuple[Integers, ...]:
        return self.roots, self.columns, self.left, self.right

    def predict(self, table: NDArray[np.float32]) -> Floats:
        """Return a logarithm per row."""
        rows = np.arange(len(table))[:, None]
        nodes = np.broadcast_to(self.roots, (len(table), len(self.roots)))
        while (inner := self.columns[nodes] != _LEAF).any():
            is_left = table[rows, self.columns[nodes]] <= self.thresholds[nodes]
            nodes = np.where(inner, np.where(is_left, self.left[nodes], self.right[nodes]), nodes)
        return np.asarray(self.thresholds[nodes].sum(axis=1))


class Boosting:
    """LightGBM on the logarithm of the seconds over those of an additive model, the trees of each runtime their own.

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
        self._forests: dict[int, Forest] = {}
        self._runtimes = 0

    def fit(self, examples: Examples, *, seed: int, report: Progress) -> None:
        self._prices.fit(examples, seed=seed, report=ignore_progress)
        networks = examples.take(np.flatnonzero(~examples.isolated))
        logs = np.log(networks.seconds / self._prices.predict(networks.graphs))
        table, weights = _build_table(networks.graphs), compute_weights(networks)
        self._forests, self._runtimes = {}, len(examples.runtimes)
        parameters = {"num_leaves": self._leaves, "learning_rate": self._rate, "seed": seed}
        for number, (runtime, rows) in enumerate(iterate_columns(networks.seconds)):
            labels, label_weights = logs[rows, runtime], weights[rows, runtime]
            self._forests[runtime] = Forest.train(table[rows], labels, label_weights, self._rounds, **parameters)
            report((number + 1) / self._runtimes, f"{self.kind}: {examples.runtimes[runtime][1]}")

    def predict(self, graphs: Sequence[Graph]) -> Floats:
        table = _build_table(graphs)
        logs = np.full((len(graphs), self._runtimes), np.nan)
        for runtime, forest in self._forests.items():
            logs[:, runtime] = forest.predict(table)
        return np.asarray(self._prices.predict(graphs) * np.exp(logs))

    def compute_contributions(self, graph: Graph) -> Floats:
        """Return those of the prices, scaled to the prediction: the trees correct the graph as a whole."""
        prices = self._prices.predict([graph])
        return np.asarray(self._prices.compute_contributions(graph) * (self.predict([graph]) / prices))

    def dump_settings(self) -> dict[str, Any]:
        return {"rounds": self._rounds, "leaves": self._leaves, "learning_rate": self._rate}

    def dump_arrays(self) -> dict[str, NDArray[Any]]:
        arrays = {
            f"{runtime}.{part.name}": getattr(forest, part.name)
            for runtime, forest in self._forests.items()
            for part in fields(forest)
        }
        return {**self._prices.dump_arrays(), **arrays}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        model = cls(**settings)
        model._prices = Linear.restore({}, arrays)
        model._runtimes = len(arrays["prices"])
        for runtime in sorted({int(name.partition(".")[0]) for name in arrays if name != "prices"}):
            if not 0 <= runtime < model._runtimes:
                raise ValueError(f"{model._runtimes} runtimes do not fit trees of the runtime {runtime}")
            forest = Forest(**{part.name: arrays[f"{runtime}.{part.name}"] for part in fields(Forest)})
            forest.check(len(features.WHOLE))
            model._forests[runtime] = forest
        return model


def _add_node(rows: list[tuple[int, float, int, int]], node: Mapping[str, Any]) -> int:
    """Append a node of LightGBM's JSON and all below it, and return its number."""
    number = len(rows)
    if "split_feature" not in node:
        rows.append((_LEAF, float(node["leaf_value"]), number, number))
        return number
    rows.append((0, 0.0, 0, 0))
    left, right = (_add_node(rows, node[f"{side}_child"]) for side in ("left", "right"))
    rows[number] = (int(node["split_feature"]), float(node["threshold"]), left, right)
    return number


def _build_table(graphs: Sequence[Graph]) -> NDArray[np.float32]:
    return np.stack([features.encode_graph(graph) for graph in graphs])
