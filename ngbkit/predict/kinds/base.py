"""The protocol of the kinds of models: they are fitted to the seconds of graphs, predict them, and are saved."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ngbkit.predict.graphs import Graph
from ngbkit.predict.labels.example_set import Examples

Floats = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]

# The time between two lines of progress.
_LOG_EVERY_S = 10.0

Progress = Callable[[float, str], None]
"""Called with the share that is complete, from 0 to 1, and a message."""


def ignore_progress(share: float, text: str) -> None:
    """Ignore progress."""


def to_progress(report: Callable[[str], None] | None) -> Progress:
    """Report progress as lines of text; None reports nothing."""
    return ignore_progress if report is None else lambda share, text: report(f"{share:.0%}: {text}")


def log_progress() -> Progress:
    """Build a progress that writes a line to the standard error every ten seconds: nothing for quick work."""
    logged_s = time.monotonic()

    def log(share: float, text: str) -> None:
        nonlocal logged_s
        if time.monotonic() - logged_s >= _LOG_EVERY_S:
            logged_s = time.monotonic()
            with suppress(OSError):  # a full disk behind stderr ends no fit
                sys.stderr.write(f"{share:.0%}: {text}\n")
                sys.stderr.flush()

    return log


class Model(Protocol):
    """A kind of model; its settings are the arguments of its constructor, all of them optional.

    A runtime is a column of `Examples.seconds`; the model predicts NaN for a runtime without any latency.
    """

    kind: ClassVar[str]

    def fit(self, examples: Examples, *, seed: int, report: Progress) -> None:
        """Fit the model to all examples; the same examples, settings and seed give the same model."""

    def predict(self, graphs: Sequence[Graph]) -> Floats:
        """Return seconds, of shape ``(graphs, runtimes)``."""

    def compute_contributions(self, graph: Graph) -> Floats:
        """Return the seconds of each operator, of shape ``(operators, runtimes)``."""

    def dump_settings(self) -> dict[str, Any]:
        """Return the settings as plain JSON."""

    def dump_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all fitted parameters."""

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Model:
        """Build the model from its settings and its fitted parameters."""


def iterate_columns(seconds: Floats) -> list[tuple[int, NDArray[np.intp]]]:
    """Return the index of each runtime with a latency, and the rows that have one."""
    columns = enumerate(np.isfinite(seconds).T)
    return [(index, np.flatnonzero(finite)) for index, finite in columns if finite.any()]


TOLERANCE = 0.05
"""The usual error of models, beside which a much smaller error of a label is irrelevant."""


# An error that few repetitions show is itself uncertain: it counts like one value beside so many of the usual error.
_PRIOR = 3


def compute_weights(examples: Examples) -> Floats:
    """Return how much each label counts, ``(graphs, runtimes)``: 1 if it is exact, less the noisier it is."""
    errors = np.full(examples.seconds.shape, np.nan) if examples.errors is None else examples.errors
    finite = [column[np.isfinite(column)] for column in errors.T]
    usual = np.array([float(np.median(column)) if len(column) else 0.0 for column in finite])
    squares = (_PRIOR * usual**2 + np.where(np.isfinite(errors), errors, usual) ** 2) / (_PRIOR + 1)
    return np.asarray(TOLERANCE / np.sqrt(TOLERANCE**2 + squares))
