"""The guide of a run, which chooses what is measured and completes the dataset, and the add-on that builds it.

The `run` that it guides is an `ngbkit.runs.Run`, whose module imports this one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol, cast

from ngbkit import registry
from ngbkit.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from ngbkit.sweep.grid import Grid


class RunGuide(Protocol):
    """Chooses what a run measures and completes its dataset."""

    @property
    def key(self) -> str:
        """Identifies the guide in the name of a recording; equal budgets have equal keys."""

    def choose(self, run: Any) -> Collection[str]:
        """Choose the ids of the trials to measure next; called again once they are recorded. None end the run."""

    def left_s(self) -> float | None:
        """Return how many seconds the guide will go on; None where that depends on the measurements."""

    def complete(self, run: Any, data: xr.Dataset | xr.DataTree) -> xr.Dataset | xr.DataTree:
        """Complete the dataset of the run for its user."""


class Outlook(Protocol):
    """The expected duration of a sweep in seconds, None where it is unknown, and its likely results."""

    @property
    def seconds(self) -> float | None: ...

    @property
    def data(self) -> xr.Dataset | xr.DataTree: ...

    def best(self) -> pd.DataFrame:
        """The likely best compiler of each group."""

    def list_best(self) -> list[dict[str, Any]]:
        """As `best`, as rows of plain values."""


class Forecast(Protocol):
    """Estimates sweeps, and builds the guides of budgets; a predictor is an object of the same add-on, or a file."""

    def estimate(self, sweep: Grid, predictor: Any, earlier: Any) -> Outlook:
        """Outlook the duration and the results of a sweep."""

    def describe_duration(self, sweep: Grid) -> str:
        """Return the number of trials and groups, and the expected duration."""

    def guide_of(self, sweep: Grid, budget: str | float, predictor: Any, earlier: Any, run_id: str | None) -> RunGuide:
        """Build the guide of a budget."""


def load_forecast() -> Forecast:
    """Load the add-on that estimates sweeps, or raise `UsageError` where it is missing."""
    forecast = registry.find(registry.GUIDES, "forecast")
    if forecast is None:
        raise UsageError(
            "invalid call: got a budget or an estimate; expected none, since this ngbkit lacks its add-on predict. "
            "Install ngbkit whole, or leave it out."
        )
    return cast("Forecast", forecast)
