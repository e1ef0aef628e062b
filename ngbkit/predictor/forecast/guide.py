"""A run with a budget: what to measure next, when to stop, and what to say of the rest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ngbkit.dataset.storage import Data
from ngbkit.errors import UnsupportedError
from ngbkit.metrics import arrays
from ngbkit.predictor.forecast import acquisition, surrogate
from ngbkit.predictor.forecast.acquisition import Flags
from ngbkit.predictor.forecast.expected import Costs, Seen
from ngbkit.predictor.forecast.imputation import Key, Prediction, fill, key_of
from ngbkit.predictor.forecast.surrogate import Places
from ngbkit.predictor.forecast.table import FactsOf, Floats, Table, counted
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.records import Measurement, Record
from ngbkit.sweep.trials import Trial

if TYPE_CHECKING:
    from ngbkit.predictor import Graph, Predictor
    from ngbkit.runs import Run

# Of an interval of 95 %.
_WIDTH = 1.96
# Groups that are measured whole at first, as unlike each other as can be.
_FIRST = 2
# What is chosen at once: more would be chosen without having heard of the others, fewer take longer.
_AT_ONCE = 0.1
# Trials that are weighed against each other at most; of more, groups are drawn at random.
_MOST = 1200
# What is supposed before a trial of a compiler has been tried: it works more often than not.
_WORKING, _TRIED = 0.9, 1.0
_USUAL_S = 5.0


class Guide:
    """Chooses what a run measures within a budget, and predicts what it leaves out.

    Parameters
    ----------
    sweep
        What is asked for.
    seconds, trials
        The budget: how long it may take, how many trials it may measure. At least one of them is given.
    predictor
        What is known of its networks beforehand.
    earlier
        What earlier runs measured of its compilers on its devices: see `ngbkit.predictor.forecast.expected.earlier`.
    facts_of
        What is known of the networks; by default they are built here and counted.
    """

    def __init__(
        self,
        sweep: Sweep,
        *,
        seconds: float | None = None,
        trials: int | None = None,
        predictor: Predictor | None = None,
        earlier: Iterable[Seen] = (),
        facts_of: FactsOf | None = None,
    ) -> None:
        self._sweep, self._trials = sweep, trials
        self._seconds = seconds
        self._until: float | None = None
        own = sweep.trials()
        self._number = len(own)
        columns = {(one.device, one.compiler) for one in own}
        seen = [one for one in earlier if (one.trial.device, one.trial.compiler) in columns]
        if predictor is not None:
            # Of other networks there is no graph here, and nothing to say by how much the predictor was off.
            seen = [one for one in seen if one.trial.workload_id in {each.id for each in sweep.workloads}]
        facts = facts_of or counted(sweep)
        before = {(one.trial.workload_id, one.trial.factors): one.facts for one in seen}

        def known_of(trial: Trial) -> Mapping[str, float | None]:
            found = before.get((trial.workload_id, trial.factors))
            return found if found else facts(trial)

        self._table = Table.of([*own, *(one.trial for one in seen)], known_of)
        self._places = {trial.id: at for at, trial in enumerate(own)}
        self._groups = _numbers(own)
        self._before = [
            (at, arrays.median(one.record.latency_s).item()) for at, one in enumerate(seen, start=self._number)
        ]
        self._costs_before = [(one.trial, one.record) for one in seen]
        self._prior = None if predictor is None else _prior(predictor, sweep, self._table)

    @property
    def key(self) -> str:
        """The budget, as a part of a file's name."""
        return f"{self._trials}-trials" if self._seconds is None else f"{self._seconds:g}-s"

    def choose(self, run: Run) -> Collection[str]:
        """The ids of the trials to measure next; none where the budget is spent or nothing is missing."""
        return self.next(run.records())

    def next(self, records: Sequence[Record]) -> list[str]:
        """As `choose`, from what was recorded so far."""
        if self._until is None and self._seconds is not None:
            self._until = time.monotonic() + self._seconds
        known = [one for one in records if one.trial_id in self._places]
        left = len(self._table) if self._trials is None else self._trials - len(known)
        open_ = np.ones(self._number, dtype=bool)
        open_[[self._places[one.trial_id] for one in known]] = False
        if left <= 0 or not open_.any():
            return []
        works = self._works(known)
        if self._unheard(known, works).any() and not known:
            wanted = self._first(open_, works, left)
        else:
            wanted = self._telling(open_, works, known, left)
        return self._within(wanted, known)

    def left_s(self) -> float | None:
        """How long it will still go on at most; None where the budget is a number of trials."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def complete(self, run: Run, data: Data) -> Data:
        """The dataset of the run, with predictions for what it left out."""
        return fill(data, self.predictions(run.records()))

    def predictions(self, records: Sequence[Record] = ()) -> dict[Key, Prediction]:
        """What the trials are likely to take that have no record and whose compiler something is known of."""
        model = self._model(records)
        known = {one.trial_id for one in records}
        columns = {self._column(at) for at in (*model.places.tolist(), *self._foretold)}
        wanted = [
            (at, trial)
            for at, trial in enumerate(self._table.trials[: self._number])
            if trial.id not in known and self._column(at) in columns
        ]
        found: dict[Key, Prediction] = {}
        for start in range(0, len(wanted), _MOST):
            part = wanted[start : start + _MOST]
            mean, deviation = model.predict(np.array([at for at, _ in part], dtype=np.intp))
            low, high = np.exp(mean - _WIDTH * deviation), np.exp(mean + _WIDTH * deviation)
            for (_, trial), *values in zip(part, np.exp(mean), low, high, strict=True):
                found[key_of(trial)] = (float(values[0]), float(values[1]), float(values[2]))
        return found

    @property
    def _foretold(self) -> list[int]:
        """The trials that the predictor says something of."""
        return [] if self._prior is None else np.flatnonzero(np.isfinite(self._prior)).tolist()

    def _column(self, at: int) -> tuple[int, int]:
        return int(self._table.device[at]), int(self._table.compiler[at])

    def _model(self, records: Sequence[Record]) -> surrogate.Surrogate:
        own = [
            (self._places[one.trial_id], arrays.median(one.latency_s).item())
            for one in records
            if isinstance(one, Measurement) and one.trial_id in self._places
        ]
        return surrogate.of(self._table, [*own, *self._before], self._prior)

    def _works(self, known: Sequence[Record]) -> Floats:
        """How likely each trial is to give a result, by those of its compiler on its device."""
        tried, good = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        for one in known:
            column = self._column(self._places[one.trial_id])
            tried[column] += 1
            good[column] += isinstance(one, Measurement)
        for at, _ in self._before:
            tried[self._column(at)] += 1
            good[self._column(at)] += 1
        columns = [self._column(at) for at in range(self._number)]
        found = np.array([(good[one] + _WORKING) / (tried[one] + _TRIED) for one in columns])
        # One that has never worked and was tried in both of the first groups is given up.
        found[[not good[one] and tried[one] >= _FIRST for one in columns]] = 0.0
        failed = [self._places[one.trial_id] for one in known if not isinstance(one, Measurement)]
        found[failed] = 0.0
        return np.asarray(found)

    def _unheard(self, known: Sequence[Record], works: Floats) -> Flags:
        """Of which trials no other of their column was measured, here or before, and none is predicted."""
        own = (self._places[one.trial_id] for one in known)
        heard = {self._column(at) for at in (*(at for at, _ in self._before), *own, *self._foretold)}
        return np.array([self._column(at) not in heard for at in range(self._number)]) & (works > 0)

    def _first(self, open_: Flags, works: Floats, left: int) -> list[int]:
        """Whole groups of each device, as unlike each other as can be; where the budget is too small for two, one."""
        found: list[int] = []
        devices = np.unique(self._table.device[: self._number])
        each = self._number // len(np.unique(self._groups))
        count = _FIRST if left >= 2 * _FIRST * each * len(devices) else 1
        for device in devices:
            own = np.flatnonzero(self._table.device[: self._number] == device)
            chosen = acquisition.spread(self._table.numbers[own], self._groups[own], count)
            found += [int(at) for at in own[np.isin(self._groups[own], chosen)] if open_[at] and works[at] > 0]
        return found[:left]

    def _telling(self, open_: Flags, works: Floats, known: Sequence[Record], left: int) -> list[int]:
        costs = self._costs(known)
        seconds = np.array([costs.of(one, self._sweep.repeats) or _USUAL_S for one in self._own])
        places = self._looked_at(len(known))
        # Failed trials and those of compilers that do not work are worth nothing, and are no one's best.
        worth = works / (seconds if self._seconds is not None else np.ones_like(seconds))
        count = max(1, min(left, round(_AT_ONCE * (self._trials or len(known) + left)), 12))
        chosen = acquisition.choose(
            self._model(known), places, self._groups[places], open_[places], worth[places], count
        )
        return [int(places[at]) for at in chosen]

    def _looked_at(self, seed: int) -> Places:
        """The trials of all groups, or of as many groups as can be weighed against each other."""
        own = np.arange(self._number)
        if self._number <= _MOST:
            return own
        names = np.random.default_rng(seed).permutation(np.unique(self._groups))
        size = self._number / len(names)
        return own[np.isin(self._groups, names[: max(1, int(_MOST / size))])]

    @property
    def _own(self) -> Sequence[Trial]:
        return self._table.trials[: self._number]

    def _costs(self, known: Sequence[Record]) -> Costs:
        own = [(self._own[self._places[one.trial_id]], one) for one in known]
        return Costs([*self._costs_before, *own])

    def _within(self, wanted: Sequence[int], known: Sequence[Record]) -> list[str]:
        """Of these as many as there is time for."""
        if self._until is None:
            return [self._own[at].id for at in wanted]
        left, costs = self._until - time.monotonic(), self._costs(known)
        found: list[str] = []
        for at in wanted:
            left -= costs.of(self._own[at], self._sweep.repeats) or _USUAL_S
            if left > 0 or not (known or found):  # something is always measured
                found.append(self._own[at].id)
        return found


def _numbers(trials: Sequence[Trial]) -> Places:
    """Which group each trial is of."""
    known: dict[tuple[object, ...], int] = {}
    keys = [(one.workload_id, one.factors, one.device, one.batch_size) for one in trials]
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.intp)


def _prior(predictor: Predictor, sweep: Sweep, table: Table) -> Floats:
    """The logarithm of what a predictor says of every trial.

    NaN of runtimes that it has not learned from, and of networks without an ONNX form.
    """
    from ngbkit.predictor import graph

    workloads = {one.id: one for one in sweep.workloads}
    graphs: dict[tuple[object, ...], Graph | None] = {}
    for one in table.trials:
        key = (one.workload_id, one.factors, one.batch_size)
        if key not in graphs:
            try:
                graphs[key] = graph(workloads[one.workload_id], one.batch_size, dict(one.factors))
            except UnsupportedError:
                graphs[key] = None
    known = {key: found for key, found in graphs.items() if found is not None}
    rows = dict(zip(known, np.log(predictor.model.predict(list(known.values()))), strict=True))
    runtimes = {runtime: column for column, runtime in enumerate(predictor.runtimes)}
    found = np.full(len(table), np.nan)
    for at, one in enumerate(table.trials):
        column, key = runtimes.get((one.device, one.compiler)), (one.workload_id, one.factors, one.batch_size)
        if column is not None and key in rows:
            found[at] = rows[key][column]
    return found
