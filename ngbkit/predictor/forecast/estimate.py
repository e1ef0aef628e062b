"""What a sweep is likely to take and to give, before anything of it is measured."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ngbkit.dataset.assembly import assemble
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.predictor.forecast.expected import Costs, describe, earlier, expected_s
from ngbkit.predictor.forecast.guide import Guide
from ngbkit.predictor.forecast.imputation import best, fill
from ngbkit.sweep.grid import Sweep

if TYPE_CHECKING:
    import pandas as pd

    from ngbkit.predictor import Predictor


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """What a sweep is likely to take and to give.

    Parameters
    ----------
    seconds
        How long it is likely to take; None where no earlier run tells.
    text
        How many trials, in how many groups, and about how long.
    data
        A dataset as the sweep would give it: each trial that something is known of is ``predicted``, and the others
        are ``pending``. Nothing in it is measured.
    """

    seconds: float | None
    text: str
    data: Data

    def __str__(self) -> str:
        return self.text

    def best(self) -> pd.DataFrame:
        """What is likely to be the best compiler of each group: see `ngbkit.predictor.forecast.best`."""
        return best(self.data)


def estimate(sweep: Sweep, predictor: Predictor | str | os.PathLike[str] | None = None) -> Estimate:
    """What a sweep is likely to take and to give: by what earlier runs measured, and by a predictor.

    Parameters
    ----------
    sweep
        What would be measured.
    predictor
        One of `ngbkit.predictor.fit`, or the file that it was saved to.

    Raises
    ------
    UsageError
        The file holds no predictor.
    """
    seen = list(earlier())
    seconds = expected_s(sweep, Costs((one.trial, one.record) for one in seen))
    guide = Guide(sweep, trials=0, predictor=loaded(predictor), earlier=seen)
    data = fill(assemble(sweep, []), guide.predictions())
    return Estimate(seconds=seconds, text=describe(sweep, seconds), data=data)


def guide_of(sweep: Sweep, budget: str | float, predictor: Predictor | str | os.PathLike[str] | None = None) -> Guide:
    """What guides a run with a budget.

    Parameters
    ----------
    sweep
        What is asked for.
    budget
        Seconds; or a text: ``"20min"``, ``"90s"``, ``"1.5h"``, or a share of the trials, ``"10%"``.
    predictor
        As for `estimate`.

    Raises
    ------
    UsageError
        No such budget; or the file holds no predictor.
    """
    seconds, share = _read(budget)
    trials = None if share is None else max(1, round(share * len(sweep)))
    return Guide(sweep, seconds=seconds, trials=trials, predictor=loaded(predictor), earlier=earlier())


def loaded(predictor: Predictor | str | os.PathLike[str] | None) -> Predictor | None:
    """A predictor, or the one that is in a file."""
    if not isinstance(predictor, (str, os.PathLike)):
        return predictor
    from ngbkit.predictor import load

    return load(os.fspath(predictor))


_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def _read(budget: str | float) -> tuple[float | None, float | None]:
    """A budget in seconds, or as a share of the trials."""
    found: tuple[float | None, float | None] = (None, None)
    if isinstance(budget, str):
        text = budget.strip()
        unit = next((one for one in ("%", "min", "h", "s") if text.endswith(one)), "s")
        try:
            number = float(text.removesuffix(unit))
        except ValueError:
            number = float("nan")
        found = (None, number / 100) if unit == "%" else (number * _UNITS[unit], None)
    elif isinstance(budget, (int, float)) and not isinstance(budget, bool):
        found = (float(budget), None)
    seconds, share = found
    if (seconds is not None and 0 < seconds < float("inf")) or (share is not None and 0 < share <= 1):
        return found
    raise UsageError(
        f"budget {budget!r} does not fit; valid is a number of seconds, a time such as '20min', '90s' or '1.5h', or a "
        "share of the trials such as '10%'."
    )
