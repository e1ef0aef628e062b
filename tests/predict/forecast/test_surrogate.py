"""Unmeasured trials are predicted from similar measured ones."""

from __future__ import annotations

import numpy as np
import pytest
import synthetic
from asking import build_sweep, facts_of

from ngbkit.api import Sweep
from ngbkit.metrics import arrays
from ngbkit.predict.forecast import surrogate
from ngbkit.predict.forecast.surrogate import Predictions, Surrogate
from ngbkit.predict.forecast.trial_table import TrialTable
from ngbkit.sweep.records import Measurement


def measure_truth(sweep: Sweep) -> np.ndarray:
    records = {record.trial_id: record for record in synthetic.make_records(sweep) if isinstance(record, Measurement)}
    return np.array([arrays.median(records[trial.id].latency_s).item() for trial in sweep.trials()])


@pytest.fixture(scope="module")
def sweep() -> Sweep:
    return build_sweep()


@pytest.fixture(scope="module")
def table(sweep: Sweep) -> TrialTable:
    return TrialTable.build(sweep.trials(), facts_of)


@pytest.fixture(scope="module")
def truth(sweep: Sweep) -> np.ndarray:
    return measure_truth(sweep)


def fit_part(table: TrialTable, truth: np.ndarray, count: int) -> tuple[Surrogate, np.ndarray]:
    order = np.random.default_rng(1).permutation(len(table))
    model = surrogate.build_surrogate(table, [(int(index), truth[index]) for index in order[:count]])
    return model, np.sort(order[count:])


def test_a_table_knows_what_trials_have_in_common(sweep: Sweep, table: TrialTable) -> None:
    """Equal labels have equal codes; sizes are standardised logarithms, and unknown ones are the mean."""
    assert len(sweep) == len(table) == 108
    assert 4 == len(set(table.compiler.tolist()))
    assert {0} == set(table.network.tolist())
    assert np.allclose(0, table.numbers.mean(axis=0))
    unknown = table.numbers[:, 2]  # mult_adds, which were not counted
    assert (0 == unknown).all()


def test_more_measurements_predict_better(table: TrialTable, truth: np.ndarray) -> None:
    """From a third of the trials the error is a few per cent, and larger from a tenth."""
    errors = []
    for count in (10, 36):
        model, rest = fit_part(table, truth, count)
        mean, _ = model.predict(rest)
        errors.append(np.median(np.abs(np.exp(mean) / truth[rest] - 1)))

    assert errors[1] < errors[0]
    assert errors[1] < 0.1


def test_intervals_hold_what_was_left_out(table: TrialTable, truth: np.ndarray) -> None:
    """Intervals of 95 per cent contain most held-out latencies."""
    model, rest = fit_part(table, truth, 36)
    mean, deviation = model.predict(rest)
    inside = np.abs(np.log(truth[rest]) - mean) <= 1.96 * deviation

    assert inside.mean() > 0.8


def test_what_was_measured_is_predicted_as_it_was(table: TrialTable, truth: np.ndarray) -> None:
    """Measured trials are predicted up to noise, and more certainly than the rest."""
    model, rest = fit_part(table, truth, 36)
    mean, deviation = model.predict(model.indices)

    assert np.allclose(model.logs, mean, atol=0.1)
    assert deviation.mean() < model.predict(rest)[1].mean()


def test_nothing_measured_is_nothing_known(table: TrialTable) -> None:
    """The surrogate of no measurements has an interval that spans everything."""
    model = surrogate.build_surrogate(table, [])
    _, deviation = model.predict(np.arange(3))

    assert (deviation > 5).all()


def predict_by_another_model(logs: np.ndarray, deviation: float = 0.1, *, elsewhere: bool = False) -> Predictions:
    return Predictions(logs, logs - 0.5, logs + 0.5, np.full(len(logs), deviation), elsewhere)


def test_measurements_correct_another_model(table: TrialTable, truth: np.ndarray) -> None:
    """A predictor that is wrong by a factor of two is corrected by few measurements, also for other runtimes."""
    logs = np.log(2 * truth)
    logs[table.compiler == 3] = np.nan
    model = surrogate.build_surrogate(
        table, [(index, truth[index]) for index in (0, 41, 83)], predict_by_another_model(logs)
    )
    errors = np.abs(np.log(truth) - model.predict(np.arange(len(table)))[0])

    assert errors[table.compiler != 3].max() < 0.2
    assert np.median(errors[table.compiler == 3]) < 0.2


def test_few_measurements_leave_another_model_its_accuracy(table: TrialTable, truth: np.ndarray) -> None:
    """Errors of a tenth stay so beside five measurements, though a part of the trials is not predicted."""
    random = np.random.default_rng(0)
    logs = np.log(truth) + random.normal(0, 0.1, len(truth))
    logs[random.permutation(len(truth))[:5]] = np.nan
    measured = [(int(index), truth[index]) for index in random.permutation(len(truth))[:5]]
    model = surrogate.build_surrogate(table, measured, predict_by_another_model(logs))
    predicted = np.setdiff1d(np.flatnonzero(np.isfinite(logs)), model.indices)
    errors, before = (np.abs(each[predicted] - np.log(truth[predicted])) for each in (expect(model), logs))

    assert errors.mean() < 1.2 * before.mean()


def test_measurements_tell_the_level_of_a_device_that_another_model_predicts_elsewhere(
    table: TrialTable, truth: np.ndarray
) -> None:
    """A device a hundred times as fast as the predicted one is known to a tenth from three trials."""
    measured = [(index, truth[index]) for index in (0, 41, 82)]
    model = surrogate.build_surrogate(table, measured, predict_by_another_model(np.log(100 * truth), elsewhere=True))

    assert np.abs(np.log(truth) - expect(model)).mean() < 0.1


def test_a_part_of_many_predictions_is_enough(
    table: TrialTable, truth: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial is predicted by its own prediction, up to its deviation, though the scales are fitted to others."""
    monkeypatch.setattr(surrogate, "_MOST_PREDICTED", 20)
    model = surrogate.build_surrogate(
        table, [(0, truth[0]), (41, truth[41]), (82, truth[82])], predict_by_another_model(np.log(truth))
    )

    assert 23 == len(model._sample.rows)
    assert np.allclose(np.log(truth), expect(model), atol=0.15)


def expect(model: Surrogate) -> np.ndarray:
    """Return the expected logarithms of the seconds of all trials."""
    return model.predict(np.arange(len(model.table)))[0]


def test_a_trial_is_worth_what_it_may_decide() -> None:
    """The chosen trial is one of two close compilers, never a measured or worthless one."""
    model = _Independent(mean=[0.0, 0.02, 2.0], deviation=[0.1, 0.1, 0.1])
    groups, worth, every = np.zeros(3, dtype=int), np.ones(3), np.ones(3, dtype=bool)
    first = surrogate.choose(model, np.arange(3), groups, every, worth, 1)

    assert first[0] in (0, 1)
    assert [1] == surrogate.choose(model, np.arange(3), groups, np.array([False, True, True]), worth, 1)
    assert [1] == surrogate.choose(model, np.arange(3), groups, every, np.array([0.0, 1.0, 1.0]), 1)
    assert [0, 1, 2] == sorted(surrogate.choose(model, np.arange(3), groups, every, worth, 9))


def test_without_a_choice_the_most_uncertain_trial_is_chosen() -> None:
    """The most uncertain trial is chosen if there is no decision to make."""
    model = _Independent(mean=[0.0, 0.0], deviation=[0.1, 0.5])

    assert [1, 0] == surrogate.choose(model, np.arange(2), np.arange(2), np.ones(2, bool), np.ones(2), 2)


def test_the_first_groups_are_dissimilar() -> None:
    """The most central group is first, and then the farthest from it."""
    numbers = np.array([[0.0], [0.0], [1.0], [1.0], [5.0], [5.0]])

    assert [1, 2] == surrogate.spread_groups(numbers, np.array([0, 0, 1, 1, 2, 2]), 2)
    assert [0] == surrogate.spread_groups(numbers[:2], np.array([0, 0]), 2)


class _Independent:
    """A surrogate of uncorrelated trials."""

    noise = 1e-4

    def __init__(self, mean: list[float], deviation: list[float]) -> None:
        self._mean, self._deviation = np.array(mean), np.array(deviation)

    def predict_joint(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._mean[indices], np.diag(self._deviation[indices] ** 2)
