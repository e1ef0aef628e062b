"""Estimates the duration and the results of a sweep before it is measured."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ngbkit.cluster import machines
from ngbkit.commands.run import answer_estimate
from ngbkit.dataset.assembly import assemble
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.predict.forecast.costs import Costs
from ngbkit.predict.forecast.earlier import load_earlier_trials
from ngbkit.predict.forecast.guide import Guide
from ngbkit.predict.forecast.imputation import best, fill, list_best
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.json_values import to_json_value
from ngbkit.user_text import format_count, format_duration, parse_duration

if TYPE_CHECKING:
    import pandas as pd

    from ngbkit.predict import Predictor


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SweepEstimate:
    """The expected duration and results of a sweep.

    Parameters
    ----------
    seconds
        The expected duration; None without earlier runs of its compilers.
    text
        The number of trials and groups, and the expected duration.
    data
        A dataset like that of the sweep: trials with a prediction are ``predicted``, the others are ``pending``. It
        holds no measurements.
    """

    seconds: float | None
    text: str
    data: Data

    def __repr__(self) -> str:
        return f"<SweepEstimate: {self.text}>"

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return answer_estimate(self)._repr_html_()

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(repr(answer_estimate(self)))

    def best(self) -> pd.DataFrame:
        """The predicted best compiler of each group: see `ngbkit.predict.forecast.best`."""
        return best(self.data)

    def list_best(self) -> list[dict[str, Any]]:
        """As `best`, as rows of plain values, each with the ends of the interval of the latency: ``low``, ``high``."""
        return [to_json_value(row) for row in list_best(self.data)]


def estimate(
    sweep: Grid,
    predictor: Predictor | str | os.PathLike[str] | None = None,
    earlier: Data | str | os.PathLike[str] | None = None,
) -> SweepEstimate:
    """The expected duration and results of a sweep, from earlier measurements and a predictor.

    Parameters
    ----------
    sweep
        The sweep, which is not measured.
    predictor
        The result of `ngbkit.predict.fit`, or the file that it was saved to.
    earlier
        A dataset of measurements of these devices or of ones like them, under the same labels, or its file; in
        addition to the latest runs that are stored here.

    Raises
    ------
    UsageError
        The file is not a predictor, or `earlier` is not a dataset of runs.
    """
    measured = list(load_earlier_trials(earlier, devices=sweep.devices))
    seconds = estimate_seconds(sweep, Costs((trial.trial, trial.cost) for trial in measured))
    guide = Guide(sweep, trials=0, predictor=load_predictor(predictor), earlier=measured)
    data = fill(assemble(sweep, []), guide.predictions())
    return SweepEstimate(seconds=seconds, text=describe(sweep, seconds), data=data)


def describe_duration(sweep: Grid) -> str:
    """Return the number of trials and groups, and the duration that the latest runs let expect."""
    return describe(sweep, estimate_seconds(sweep))


def describe(sweep: Grid, expected: float | None) -> str:
    """Return the number of trials and groups, and the expected duration where it is known.

    >>> describe(sweep, estimate_seconds(sweep))  # doctest: +SKIP
    '24 trials in 8 groups, about 3 min 20 s'
    """
    groups = sum(1 for _ in sweep.groups())
    text = f"{format_count(len(sweep), 'trial')} in {format_count(groups, 'group')}"
    if expected is None:
        return f"{text}; the duration is unknown without an earlier run"
    # Where a race ends is not known before.
    return f"{text}, {'at most' if sweep.race else 'about'} {format_duration(expected)}"


def estimate_seconds(sweep: Grid, costs: Costs | None = None) -> float | None:
    """Return the expected seconds of a sweep's slowest device, from the latest runs; None if these tell nothing."""
    costs = costs or Costs((earlier.trial, earlier.cost) for earlier in load_earlier_trials())
    if not any(map(costs.knows, sweep.compilers)):
        return None
    seconds, repeats = dict.fromkeys(sweep.devices, 0.0), sweep.to_wave().repeats
    for trial in sweep.trials():
        seconds[trial.device] += sweep.waves * (costs.estimate_s(trial, repeats) or 0.0)
    return max(sum(seconds[label] for label in turns) for turns in machines.group_by_cores(sweep.devices))


def guide_of(
    sweep: Grid,
    budget: str | float,
    predictor: Predictor | str | os.PathLike[str] | None = None,
    earlier: Data | str | os.PathLike[str] | None = None,
    run_id: str | None = None,
) -> Guide:
    """The guide of a run with a budget.

    Parameters
    ----------
    sweep
        The sweep to measure.
    budget
        Seconds; or a text: ``"20min"``, ``"90s"``, ``"1.5h"``, or a share of the trials, ``"10%"``.
    predictor, earlier
        As for `estimate`.
    run_id
        The run that is resumed, whose own trials are none of an earlier run.

    Raises
    ------
    UsageError
        The budget is invalid, the file is not a predictor, or `earlier` is not a dataset of runs.
    """
    seconds, share = _parse_budget(budget)
    trials = None if share is None else max(1, round(share * len(sweep)))
    return Guide(
        sweep,
        seconds=seconds,
        trials=trials,
        predictor=load_predictor(predictor),
        earlier=load_earlier_trials(earlier, devices=sweep.devices, except_run=run_id),
    )


def load_predictor(predictor: Predictor | str | os.PathLike[str] | None) -> Predictor | None:
    """Return a predictor, loaded if it is given as a file."""
    if not isinstance(predictor, (str, os.PathLike)):
        return predictor
    from ngbkit.predict import load

    return load(os.fspath(predictor))


def _parse_budget(budget: str | float) -> tuple[float | None, float | None]:
    """Parse a budget into seconds or a share of the trials; the other is None."""
    with suppress(UsageError, ValueError):
        if not isinstance(budget, str) or not budget.strip().endswith("%"):
            return parse_duration(budget, "budget"), None
        share = float(budget.strip().removesuffix("%")) / 100
        if 0 < share <= 1:
            return None, share
    raise UsageError(
        f"invalid budget: got {budget!r}; expected a number of seconds, a time such as '20min', '90s' or '1.5h', or a "
        "share of the trials such as '10%'."
    )
