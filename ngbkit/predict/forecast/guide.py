"""Guides a run with a budget: chooses the next trials, stops the run, and predicts the trials that it leaves out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL, find_quantile
from ngbkit.errors import UnsupportedError
from ngbkit.metrics import arrays
from ngbkit.predict.forecast import surrogate
from ngbkit.predict.forecast.costs import Costs, compute_cost
from ngbkit.predict.forecast.earlier import EarlierTrial
from ngbkit.predict.forecast.imputation import Key, Prediction, build_key, fill
from ngbkit.predict.forecast.surrogate import Flags, Indices
from ngbkit.predict.forecast.trial_table import FactsOf, Floats, TrialTable, count_facts
from ngbkit.predict.scoring.design import choose_informative
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.records import Measurement, Record
from ngbkit.sweep.settling import is_conclusive, select_latency
from ngbkit.sweep.trials import Trial

if TYPE_CHECKING:
    from ngbkit.predict import Graph, Predictor
    from ngbkit.runs import Run

# The number of dissimilar groups whose trials are all measured first.
_FIRST = 2
# The share of trials chosen at once: a larger batch ignores more results, a smaller one costs more time.
_BATCH_SHARE = 0.1
# The most trials that are compared at once; beyond it, groups are sampled at random.
_MOST = 1200
# Prior successes and attempts of an untried compiler: it probably works.
_SUCCESSES, _ATTEMPTS = 0.9, 1.0
_USUAL_S = 5.0
# The interval of a predictor's usual errors: few networks with far larger ones make the others' wide.
_USUAL_LEVEL = 0.8


class Guide:
    """Chooses the trials of a run within a budget, and predicts the others.

    Parameters
    ----------
    sweep
        The sweep to measure.
    seconds, trials
        The budget: the duration, the number of trials; at least one of them.
    predictor
        A predictor of the networks.
    earlier
        Trials of earlier runs: see `ngbkit.predict.forecast.earlier.load_earlier_trials`.
    facts_of
        Returns the facts of the network of a trial; by default networks are built here and counted.
    """

    def __init__(
        self,
        sweep: Grid,
        *,
        seconds: float | None = None,
        trials: int | None = None,
        predictor: Predictor | None = None,
        earlier: Iterable[EarlierTrial] = (),
        facts_of: FactsOf | None = None,
    ) -> None:
        self._sweep, self._trials = sweep, trials
        self._seconds = seconds
        self._deadline: float | None = None
        sweep_trials = sweep.trials()
        self._number = len(sweep_trials)
        columns = {(trial.device, trial.compiler) for trial in sweep_trials}
        measured = [entry for entry in earlier if (entry.trial.device, entry.trial.compiler) in columns]
        if predictor is not None:
            # Other networks have no graph here, so that the error of the predictor on them is unknown.
            ids = {workload.id for workload in sweep.workloads}
            measured = [entry for entry in measured if entry.trial.workload_id in ids]
        facts = facts_of or count_facts(sweep)
        facts_by_network = {(entry.trial.workload_id, entry.trial.factors): entry.facts for entry in measured}

        def find_facts(trial: Trial) -> Mapping[str, float | None]:
            return facts_by_network.get((trial.workload_id, trial.factors)) or facts(trial)

        self._table = TrialTable.build([*sweep_trials, *(entry.trial for entry in measured)], find_facts)
        self._indices = {trial.id: index for index, trial in enumerate(sweep_trials)}
        self._groups = _number_groups(sweep_trials)
        self._earlier = [(index, entry.seconds, entry.conclusive) for index, entry in enumerate(measured, self._number)]
        self._earlier_costs = [(entry.trial, entry.cost) for entry in measured]
        self._graphs = {} if predictor is None else _build_graphs(predictor, sweep, self._table)
        self._predictor = predictor
        self._predictions = None if predictor is None else _predict_trials(predictor, self._graphs, self._table)

    @property
    def key(self) -> str:
        """The budget, as a part of a file name."""
        return f"{self._trials}-trials" if self._seconds is None else f"{self._seconds:g}-s"

    def choose(self, run: Run) -> Collection[str]:
        """The ids of the trials to measure next; none if the budget is spent or every trial has a record."""
        return self.next(run.records())

    def next(self, records: Sequence[Record]) -> list[str]:
        """As `choose`, from the records so far."""
        if self._deadline is None and self._seconds is not None:
            self._deadline = time.monotonic() + self._seconds
        recorded = [record for record in records if record.trial_id in self._indices]
        remaining = len(self._table) if self._trials is None else self._trials - len(recorded)
        available = np.ones(self._number, dtype=bool)
        available[[self._indices[record.trial_id] for record in recorded]] = False
        if remaining <= 0 or not available.any():
            return []
        success = self._estimate_success(recorded)
        if self._find_unknown_columns(recorded, success).any() and not recorded:
            indices = self._choose_groups(available, success, remaining)
        else:
            indices = self._choose_informative(available, success, recorded, remaining)
        return self._fit_budget(indices, recorded)

    def left_s(self) -> float | None:
        """The most seconds that remain; None if the budget is a number of trials."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def complete(self, run: Run, data: Data) -> Data:
        """The dataset of the run, with predictions for the trials that it left out."""
        return fill(data, self.predictions(run.records()))

    def predictions(self, records: Sequence[Record] = ()) -> dict[Key, Prediction]:
        """Predictions of the trials without a record, of each compiler and device with a measurement or a predictor."""
        model = self._fit_surrogate(records)
        recorded = {record.trial_id for record in records}
        columns = {self._find_column(index) for index in (*model.indices.tolist(), *self._predicted_indices)}
        unmeasured = [
            (index, trial)
            for index, trial in enumerate(self._table.trials[: self._number])
            if trial.id not in recorded and self._find_column(index) in columns
        ]
        predictions: dict[Key, Prediction] = {}
        for start in range(0, len(unmeasured), _MOST):
            chunk = unmeasured[start : start + _MOST]
            for (_, trial), *values in zip(chunk, *self._estimate(model, [index for index, _ in chunk]), strict=True):
                if np.isfinite(values[0]):
                    predictions[build_key(trial)] = (float(values[0]), float(values[1]), float(values[2]))
        return predictions

    def _estimate(self, model: surrogate.Surrogate, rows: Sequence[int]) -> tuple[Floats, Floats, Floats]:
        """Return the seconds of trials, and of both ends of their intervals; the predictor's before any measurement."""
        indices, others = np.array(rows, dtype=np.intp), self._predictions
        if others is not None and not len(model.indices):
            return np.exp(others.logs[indices]), np.exp(others.low[indices]), np.exp(others.high[indices])
        mean, deviation = model.predict(indices)
        width = find_quantile(LEVEL) * deviation
        return np.exp(mean), np.exp(mean - width), np.exp(mean + width)

    @property
    def _predicted_indices(self) -> list[int]:
        """The trials that the predictor predicts."""
        return [] if self._predictions is None or self._predictions.elsewhere else self._predictions.indices.tolist()

    def _find_column(self, index: int) -> tuple[int, int]:
        return int(self._table.device[index]), int(self._table.compiler[index])

    def _fit_surrogate(self, records: Sequence[Record]) -> surrogate.Surrogate:
        recorded = [
            (self._indices[record.trial_id], arrays.median(select_latency(record)).item(), is_conclusive(record))
            for record in records
            if isinstance(record, Measurement) and record.trial_id in self._indices
        ]
        measured = [*recorded, *self._earlier]
        # One trial that other work slowed would widen the interval of every prediction.
        conclusive = {self._find_column(index) for index, _, quiet in measured if quiet}
        chosen = [
            (index, seconds)
            for index, seconds, quiet in measured
            if quiet or self._find_column(index) not in conclusive
        ]
        return surrogate.build_surrogate(self._table, chosen, self._predictions)

    def _estimate_success(self, records: Sequence[Record]) -> Floats:
        """Estimate the probability that each trial gives a result, from the trials of its compiler on its device."""
        attempts, successes = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        for record in records:
            column = self._find_column(self._indices[record.trial_id])
            attempts[column] += 1
            successes[column] += isinstance(record, Measurement)
        for index, *_ in self._earlier:
            attempts[self._find_column(index)] += 1
            successes[self._find_column(index)] += 1
        columns = [self._find_column(index) for index in range(self._number)]
        success = np.array([(successes[column] + _SUCCESSES) / (attempts[column] + _ATTEMPTS) for column in columns])
        # A compiler that failed in both of the first groups is given up.
        success[[not successes[column] and attempts[column] >= _FIRST for column in columns]] = 0.0
        failed = [self._indices[record.trial_id] for record in records if not isinstance(record, Measurement)]
        success[failed] = 0.0
        return np.asarray(success)

    def _find_unknown_columns(self, records: Sequence[Record], success: Floats) -> Flags:
        """Return the working trials whose compiler and device have neither a measurement nor a prediction."""
        recorded = (self._indices[record.trial_id] for record in records)
        indices = (*(index for index, *_ in self._earlier), *recorded, *self._predicted_indices)
        columns = {self._find_column(index) for index in indices}
        return np.array([self._find_column(index) not in columns for index in range(self._number)]) & (success > 0)

    def _choose_groups(self, available: Flags, success: Floats, remaining: int) -> list[int]:
        """Choose all trials of two dissimilar groups on each device, or of one if the budget is too small."""
        chosen: list[int] = []
        devices = np.unique(self._table.device[: self._number])
        group_size = self._number // len(np.unique(self._groups))
        count = _FIRST if remaining >= 2 * _FIRST * group_size * len(devices) else 1
        for device in devices:
            members = np.flatnonzero(self._table.device[: self._number] == device)
            members = members[np.isin(self._groups[members], self._suggest_groups(members, count))]
            chosen += [int(index) for index in members if available[index] and success[index] > 0]
        return chosen[:remaining]

    def _suggest_groups(self, members: Indices, count: int) -> list[int]:
        """Suggest the groups of these trials to begin with: by the work in their networks, if all are predicted."""
        names, firsts = np.unique(self._groups[members], return_index=True)
        predicted = np.empty(0) if self._predictions is None else np.intersect1d(members, self._predictions.indices)
        if self._predictor is None or len(np.unique(self._groups[predicted.astype(np.intp)])) < len(names):
            return surrogate.spread_groups(self._table.numbers[members], self._groups[members], count)
        graphs = [self._graphs[_build_graph_key(self._table.trials[index])] for index in members[firsts]]
        seconds = np.nanmedian(self._predictor.model.predict(graphs), axis=1)
        chosen, _ = choose_informative(graphs, seconds, count)
        return [int(names[index]) for index in chosen]

    def _choose_informative(
        self, available: Flags, success: Floats, records: Sequence[Record], remaining: int
    ) -> list[int]:
        costs = self._build_costs(records)
        seconds = np.array([costs.estimate_s(trial, self._sweep.repeats) or _USUAL_S for trial in self._sweep_trials])
        indices = self._select_indices(len(records))
        # Failed trials and trials of failing compilers are worth nothing, and are the best of no group.
        worth = success / (seconds if self._seconds is not None else np.ones_like(seconds))
        count = max(1, min(remaining, round(_BATCH_SHARE * (self._trials or len(records) + remaining)), 12))
        chosen = surrogate.choose(
            self._fit_surrogate(records), indices, self._groups[indices], available[indices], worth[indices], count
        )
        return [int(indices[position]) for position in chosen]

    def _select_indices(self, seed: int) -> Indices:
        """Return the trials of all groups, or of a random part of the groups if there are too many to compare."""
        indices = np.arange(self._number)
        if self._number <= _MOST:
            return indices
        groups = np.random.default_rng(seed).permutation(np.unique(self._groups))
        size = self._number / len(groups)
        return indices[np.isin(self._groups, groups[: max(1, int(_MOST / size))])]

    @property
    def _sweep_trials(self) -> Sequence[Trial]:
        return self._table.trials[: self._number]

    def _build_costs(self, records: Sequence[Record]) -> Costs:
        pairs = [
            (self._sweep_trials[self._indices[record.trial_id]], compute_cost(record))
            for record in records
            if isinstance(record, Measurement)
        ]
        return Costs([*self._earlier_costs, *pairs])

    def _fit_budget(self, indices: Sequence[int], records: Sequence[Record]) -> list[str]:
        """Return the ids of the leading trials that fit into the remaining time."""
        if self._deadline is None:
            return [self._sweep_trials[index].id for index in indices]
        remaining_s, costs = self._deadline - time.monotonic(), self._build_costs(records)
        chosen: list[str] = []
        for index in indices:
            remaining_s -= costs.estimate_s(self._sweep_trials[index], self._sweep.repeats) or _USUAL_S
            if remaining_s > 0 or not (records or chosen):  # at least one trial is measured
                chosen.append(self._sweep_trials[index].id)
        return chosen


def _number_groups(trials: Sequence[Trial]) -> Indices:
    """Number the group of each trial."""
    numbers: dict[tuple[object, ...], int] = {}
    keys = [(trial.workload_id, trial.factors, trial.device, trial.batch_size) for trial in trials]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.intp)


def _build_graph_key(trial: Trial) -> tuple[object, ...]:
    return trial.workload_id, trial.factors, trial.batch_size


def _build_graphs(predictor: Predictor, sweep: Grid, table: TrialTable) -> dict[tuple[object, ...], Graph]:
    """Build the graph of every network that has an ONNX form."""
    from ngbkit.predict import graph

    workloads = {workload.id: workload for workload in sweep.workloads}
    graphs: dict[tuple[object, ...], Graph | None] = {}
    for trial in table.trials:
        key = _build_graph_key(trial)
        if key not in graphs:
            try:
                graphs[key] = graph(
                    workloads[trial.workload_id],
                    trial.batch_size,
                    dict(trial.factors),
                    lowering=predictor.lowering,
                )
            except UnsupportedError:
                graphs[key] = None
    return {key: exported for key, exported in graphs.items() if exported is not None}


def _predict_trials(
    predictor: Predictor, graphs: Mapping[tuple[object, ...], Graph], table: TrialTable
) -> surrogate.Predictions | None:
    """Predict every trial; None for the predictor of other compilers.

    NaN for runtimes that the predictor was not fitted to, for networks without an ONNX form, and beyond its labels. Of
    devices that it does not know at all, its predictions for the same compiler elsewhere give the ratios.
    """
    exported = list(graphs.values())
    seconds, low, high, _ = predictor.compute_intervals(exported, LEVEL)
    _, usual_low, usual_high, _ = predictor.compute_intervals(exported, _USUAL_LEVEL)
    with np.errstate(divide="ignore"):  # an infinite interval begins at 0
        logs = np.log(np.stack([seconds, low, high, usual_low, usual_high], axis=-1))
    logs[predictor.find_beyond(exported)] = np.nan
    rows = dict(zip(graphs, logs, strict=True))
    for elsewhere in (False, True):
        values = np.full((len(table), logs.shape[-1]), np.nan)
        for index, trial in enumerate(table.trials):
            columns = [
                column
                for column, (device, compiler) in enumerate(predictor.runtimes)
                if compiler == trial.compiler and (elsewhere or device == trial.device)
            ]
            key = _build_graph_key(trial)
            if columns and key in rows:
                values[index] = np.mean(rows[key][columns], axis=0)
        if np.isfinite(values[:, 0]).any():
            mean, low, high, usual_low, usual_high = values.T
            deviations = (usual_high - usual_low) / (2 * find_quantile(_USUAL_LEVEL))
            return surrogate.Predictions(mean, low, high, deviations, elsewhere)
    return None
