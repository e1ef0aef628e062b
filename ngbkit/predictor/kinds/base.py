"""What every kind of model is: it learns seconds from graphs, predicts them, and is kept as plain numbers and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ngbkit.predictor.examples import Examples
from ngbkit.predictor.graphs import Graph

Floats = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]

Progress = Callable[[float, str], None]
"""Told the share that is done, from 0 to 1, and a line on it."""


def silent(share: float, text: str) -> None:
    """A `Progress` that nobody sees."""


class Model(Protocol):
    """A kind of model. What it is made with are its settings, all of them optional.

    A runtime is a column of `Examples.seconds`; a model that has seen no latency of one predicts NaN for it.
    """

    kind: ClassVar[str]

    def fit(self, examples: Examples, *, seed: int, progress: Progress) -> None:
        """Learn from all of the examples; the same examples, settings and seed give the same model."""

    def predict(self, graphs: Sequence[Graph]) -> Floats:
        """Seconds, of shape ``(graphs, runtimes)``."""

    def contributions(self, graph: Graph) -> Floats | None:
        """Seconds that each operator adds, of shape ``(operators, runtimes)``; None of a model that is no sum."""

    def settings(self) -> dict[str, Any]:
        """Plain JSON."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that was learned."""

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Model:
        """The model that had these."""


def by_runtime(seconds: Floats) -> list[tuple[int, NDArray[np.intp]]]:
    """Of each column that has any, its place and the rows that have a number."""
    return [
        (at, np.flatnonzero(np.isfinite(column))) for at, column in enumerate(seconds.T) if np.isfinite(column).any()
    ]
