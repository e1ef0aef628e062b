"""The guide of a run: it chooses what is measured, and completes the dataset.

The `run` that it guides is an `ngbkit.runs.Run`, whose module imports this one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import xarray as xr


class RunGuide(Protocol):
    """Chooses what a run measures and completes its dataset: see `ngbkit.predictor.forecast.Guide`."""

    @property
    def key(self) -> str:
        """Identifies the guide in the name of a recording; equal budgets have equal keys."""

    def choose(self, run: Any) -> Collection[str]:
        """Choose the ids of the trials to measure next; called again once they are recorded. None end the run."""

    def left_s(self) -> float | None:
        """Return how many seconds the guide will go on; None where that depends on the measurements."""

    def complete(self, run: Any, data: xr.Dataset | xr.DataTree) -> xr.Dataset | xr.DataTree:
        """Complete the dataset of the run for its user."""
