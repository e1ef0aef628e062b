"""Cost models: what leads the search, each a function from graphs to numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngbkit.optimizer.search import Cost
from ngbkit.predictor import Predictor
from ngbkit.predictor.graphs import Graph


def operations(several: Sequence[Graph]) -> NDArray[Any]:
    """Multiply-accumulate operations: what most graph optimisers count. They know no runtime."""
    return np.array([float(sum(one.macs or 0 for one in graph.operators)) for graph in several])


def predicted(predictor: Predictor, compiler: str, device: str | None = None) -> Cost:
    """What a predictor says of one runtime.

    Parameters
    ----------
    predictor
        Of any kind: a graph network, or a sum of operators.
    compiler, device
        One of its runtimes; the device may be left out where it has one only.

    Raises
    ------
    UnknownNameError, UsageError
        As `ngbkit.predictor.Predictor.column`.
    """
    column = predictor.column(compiler, device)
    return lambda several: predictor.model.predict(several)[:, column]
