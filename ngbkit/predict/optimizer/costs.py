"""Cost models, which guide the search: functions from graphs to numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ngbkit.errors import UsageError
from ngbkit.predict.graphs import UNPRUNED, Graph

if TYPE_CHECKING:
    from ngbkit.predict import Predictor

Cost = Callable[[Sequence[Graph]], NDArray[Any]]
"""The costs of graphs, one number each; only their order matters."""


def operations(graphs: Sequence[Graph]) -> NDArray[Any]:
    """Multiply-accumulate operations, the cost model of most graph optimisers; an unknown number counts as 0."""
    return np.array([float(sum(operator.macs or 0 for operator in graph.operators)) for graph in graphs])


def predicted(predictor: Predictor, compiler: str, device: str | None = None) -> Cost:
    """The latency that a predictor predicts for one runtime; infinity for a network beyond its labels.

    Parameters
    ----------
    predictor
        A predictor of any kind, such as a graph network or a sum of operators.
    compiler, device
        One of its runtimes; the device is optional if there is only one.

    Raises
    ------
    UnknownNameError, UsageError
        As `ngbkit.predict.Predictor.column`; or the predictor was fitted to lowered graphs.
    """
    column = predictor.column(compiler, device)
    if predictor.lowering not in ("", UNPRUNED):
        raise UsageError(
            f"invalid cost: this predictor is of the operators that {predictor.lowering} executes; a search compares "
            "thousands of rewritings before any runtime sees them. Fit one to the networks as they are exported."
        )

    def compute_costs(graphs: Sequence[Graph]) -> NDArray[Any]:
        beyond = predictor.find_beyond(graphs)[:, column]
        return np.where(beyond, np.inf, predictor.model.predict(graphs)[:, column])

    return compute_costs
