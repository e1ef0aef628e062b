"""Cost models: what leads the search, each a function from graphs to numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngbkit.errors import UnknownNameError, UsageError
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
    UnknownNameError
        It has not learned from such a runtime.
    UsageError
        It has learned from several devices, and none was named.
    """
    fitting = [at for at, (_, one) in enumerate(predictor.runtimes) if one == compiler]
    if not fitting:
        raise UnknownNameError("compiler of this predictor", compiler, {one for _, one in predictor.runtimes})
    if device is not None:
        fitting = [at for at in fitting if predictor.runtimes[at][0] == device]
        if not fitting:
            raise UnknownNameError("device of this predictor", device, {one for one, _ in predictor.runtimes})
    if len(fitting) > 1:
        devices = ", ".join(predictor.runtimes[at][0] for at in fitting)
        raise UsageError(f"this predictor has learned {compiler} on several devices: {devices}. Name one: device=….")
    column = fitting[0]
    return lambda several: predictor.model.predict(several)[:, column]
