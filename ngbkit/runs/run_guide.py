"""Guides of runs: they choose what is measured, and complete the dataset.

The `run` that they guide is an `ngbkit.runs.Run`, whose module imports this one.
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


class Replay:
    """The guide of a replayed run: it measures nothing, and completes the dataset as the original guide did."""

    key = "replay"

    def __init__(self, guide: RunGuide | None) -> None:
        self._guide = guide

    def choose(self, run: Any) -> Collection[str]:
        """Return no trial, so that the run ends."""
        del run
        return ()

    def left_s(self) -> float | None:
        """Return None: there is nothing to wait for."""
        return None

    def complete(self, run: Any, data: xr.Dataset | xr.DataTree) -> xr.Dataset | xr.DataTree:
        """Complete the dataset with the original guide, if there was one."""
        return data if self._guide is None else self._guide.complete(run, data)
