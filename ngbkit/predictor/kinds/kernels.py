"""The kind `kernels`: the time of each operator that a runtime executes, learned from a profiler, and summed up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ngbkit.errors import UsageError
from ngbkit.predictor import features
from ngbkit.predictor.graphs import Graph, Operator
from ngbkit.predictor.kinds.additive import fit_prices
from ngbkit.predictor.kinds.base import Arrays, Floats, Progress, compute_weights
from ngbkit.predictor.kinds.trees import Ensembles
from ngbkit.predictor.labels.example_set import Examples
from ngbkit.predictor.lowering.kernels import KERNEL

if TYPE_CHECKING:
    from typing import Self

# The least prediction for an operator, so that its logarithm exists: a tick of the profilers.
_LEAST_S = 1e-7


class Kernels:
    """LightGBM on the logarithm of an operator's seconds over its price, one ensemble of trees per runtime.

    A network of a hundred operators tells a hundred times as much as its latency alone, and another family consists of
    operators that are known. Their errors partly cancel out in the sum. It needs the operators that the runtime
    executes, and how long each took in its place: `Examples.operator_seconds`. A kernel that no network showed costs
    what others do: by its kind, if it multiplies, or else by its bytes.

    Parameters
    ----------
    rounds
        Trees.
    leaves
        Leaves per tree at most.
    learning_rate
        The weight of each tree.
    """

    kind: ClassVar[str] = "kernels"

    def __init__(self, rounds: int = 200, leaves: int = 31, learning_rate: float = 0.1) -> None:
        self._rounds, self._leaves, self._rate = rounds, leaves, learning_rate
        self._names: list[str] = []
        self._prices: Floats = np.empty((0, 0))
        self._movement: Floats = np.empty((0, 0))
        self._trees = Ensembles()

    def fit(self, examples: Examples, *, seed: int, progress: Progress) -> None:
        """Fit prices and trees to the operators of all networks that were profiled."""
        networks = examples.take(np.flatnonzero(~examples.isolated))
        if networks.operator_seconds is None or not any(np.isfinite(rows).any() for rows in networks.operator_seconds):
            raise UsageError(
                "no seconds of operators in these examples, which the kind 'kernels' is fitted to; expected examples "
                "of ngbkit.predictor.collect(ds, lowered=True, profiled=True), or examples(…) likewise."
            )
        seconds = np.concatenate(networks.operator_seconds)
        owner = np.repeat(np.arange(len(networks)), [len(graph.operators) for graph in networks.graphs])
        operators = [operator for graph in networks.graphs for operator in graph.operators]
        self._names = sorted({_name_kernel(operator) for operator in operators})
        table = np.concatenate([self._build_rows(graph) for graph in networks.graphs])
        amounts = _build_amounts(operators)
        label_weights = compute_weights(networks)
        movement = _build_movement(operators)
        runtimes = len(examples.runtimes)
        self._prices, self._movement = np.full((runtimes, amounts.shape[1]), np.nan), np.full((runtimes, 2), np.nan)
        self._trees = Ensembles()
        parameters = {"num_leaves": self._leaves, "learning_rate": self._rate, "min_data_in_leaf": 5}
        for runtime, column in enumerate(seconds.T):
            rows = np.flatnonzero(np.isfinite(column) & np.isfinite(networks.seconds[owner, runtime]))
            if not len(rows):
                continue
            values = np.maximum(column[rows], _LEAST_S)
            # What takes more of its network's time counts more, though not in proportion: it would rule the trees.
            shares = values / networks.seconds[owner[rows], runtime]
            weights = label_weights[owner[rows], runtime] * np.sqrt(shares)
            self._prices[runtime] = fit_prices(amounts[rows], values, weights)
            light = np.flatnonzero(~_are_heavy(operators)[rows])
            if len(light):
                self._movement[runtime] = fit_prices(movement[rows[light]], values[light], weights[light])
            logs = np.log(values / np.maximum(amounts[rows] @ self._prices[runtime], _LEAST_S))
            self._trees.train(runtime, table[rows], logs, weights, rounds=self._rounds, seed=seed, **parameters)
            progress((runtime + 1) / seconds.shape[1], f"{self.kind}: {examples.runtimes[runtime][1]}")

    def predict(self, graphs: Sequence[Graph]) -> Floats:
        totals = [self.compute_contributions(graph).sum(axis=0) for graph in graphs]
        return np.asarray(np.maximum(np.array(totals).reshape(len(graphs), len(self._prices)), _LEAST_S))

    def compute_contributions(self, graph: Graph) -> Floats:
        """Return the seconds of each operator, of shape ``(operators, runtimes)``."""
        seconds = np.full((len(graph.operators), len(self._prices)), np.nan)
        if not graph.operators:
            return seconds
        table, amounts = self._build_rows(graph), _build_amounts(graph.operators)
        names = set(self._names)
        is_known = np.array([_name_kernel(operator) in names for operator in graph.operators])
        is_movement = ~is_known & ~_are_heavy(graph.operators)
        for runtime in self._trees:
            # Trees would say of a kernel that was never timed what they say of others.
            logs = np.where(is_known, self._trees.predict(runtime, table), 0.0)
            prices = amounts @ self._prices[runtime]
            if np.isfinite(self._movement[runtime]).all():
                prices = np.where(is_movement, _build_movement(graph.operators) @ self._movement[runtime], prices)
            seconds[:, runtime] = np.maximum(prices, _LEAST_S) * np.exp(logs)
        return seconds

    def _build_rows(self, graph: Graph) -> NDArray[np.float32]:
        """Return a row per operator: its features, its kernel, and the kernels that compute its inputs."""
        places = {name: place for place, name in enumerate(self._names)}
        executed, producers = (np.zeros((len(graph.operators), len(self._names)), np.float32) for _ in range(2))
        columns = [places.get(_name_kernel(operator)) for operator in graph.operators]
        for row, place in enumerate(columns):
            if place is not None:
                executed[row, place] = 1
        for start, end in graph.edges:
            place = columns[start]
            if place is not None:
                producers[end, place] = 1
        return np.hstack([features.encode_operators(graph), executed, producers])

    def dump_settings(self) -> dict[str, Any]:
        settings = {"rounds": self._rounds, "leaves": self._leaves, "learning_rate": self._rate}
        return {"arguments": settings, "names": self._names}

    def dump_arrays(self) -> dict[str, NDArray[Any]]:
        return {"prices": self._prices, "movement": self._movement, **self._trees.dump()}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        model = cls(**settings["arguments"])
        model._names = [str(name) for name in settings["names"]]
        model._prices, model._movement = (np.asarray(arrays[name], float) for name in ("prices", "movement"))
        model._trees = Ensembles.restore(arrays, len(features.OPERATOR) + 2 * len(model._names), len(model._prices))
        if model._prices.ndim != 2 or model._prices.shape[1] != _COLUMNS:
            raise ValueError(f"prices of shape {model._prices.shape} are not those of operators")
        if model._movement.shape != (len(model._prices), 2):
            raise ValueError(f"prices of movement of shape {model._movement.shape} do not fit the others")
        return model


def _name_kernel(operator: Operator) -> str:
    """Return what executes an operator, as far as the runtime tells: an implementation, a fused activation."""
    parts = (operator.kind, operator.attributes.get(KERNEL, ""), operator.attributes.get("activation", ""))
    return " ".join(str(part) for part in parts if part)


# A price per operator, and one for each amount of `features.sum_amounts`.
_COLUMNS = 1 + len(features.sum_amounts([]))


def _build_amounts(operators: Sequence[Operator]) -> Floats:
    """Return a row of priced amounts per operator."""
    return np.array([[1.0, *features.sum_amounts([operator])] for operator in operators])


def _are_heavy(operators: Sequence[Operator]) -> NDArray[np.bool_]:
    """Return which operators multiply and accumulate; the others move data or work by element."""
    return np.array([bool(operator.macs) for operator in operators], dtype=bool)


def _build_movement(operators: Sequence[Operator]) -> Floats:
    """Return what an operator of any kind costs that moves data: a row of its count, 1, and its bytes."""
    return np.array([[1.0, operator.bytes] for operator in operators])
