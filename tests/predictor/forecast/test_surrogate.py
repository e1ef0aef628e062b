"""What is predicted of trials that were not measured: from what has something in common with them."""

from __future__ import annotations

import numpy as np
import pytest
from asking import facts_of, sweep

from ngbkit.dataset import synthetic
from ngbkit.metrics import arrays
from ngbkit.predictor.forecast import acquisition, surrogate
from ngbkit.predictor.forecast.surrogate import Surrogate
from ngbkit.predictor.forecast.table import Table
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.records import Measurement


def truth_of(asked: Sweep) -> np.ndarray:
    found = {one.trial_id: one for one in synthetic.records(asked) if isinstance(one, Measurement)}
    return np.array([arrays.median(found[trial.id].latency_s).item() for trial in asked.trials()])


@pytest.fixture(scope="module")
def asked() -> Sweep:
    return sweep()


@pytest.fixture(scope="module")
def table(asked: Sweep) -> Table:
    return Table.of(asked.trials(), facts_of)


@pytest.fixture(scope="module")
def truth(asked: Sweep) -> np.ndarray:
    return truth_of(asked)


def learned(table: Table, truth: np.ndarray, count: int) -> tuple[Surrogate, np.ndarray]:
    places = np.random.default_rng(1).permutation(len(table))
    model = surrogate.of(table, [(int(at), truth[at]) for at in places[:count]])
    return model, np.sort(places[count:])


def test_a_table_knows_what_trials_have_in_common(asked: Sweep, table: Table) -> None:
    """The same compiler, the same network; sizes are standardised logarithms, and what is unknown is in the middle."""
    assert len(asked) == len(table) == 108
    assert 4 == len(set(table.compiler.tolist()))
    assert {0} == set(table.network.tolist())
    assert np.allclose(0, table.numbers.mean(axis=0))
    unknown = table.numbers[:, 2]  # mult_adds, which nobody counted
    assert (0 == unknown).all()


def test_more_measurements_predict_better(table: Table, truth: np.ndarray) -> None:
    """Of a third of the trials the others are known to a few per cent, and less of a tenth."""
    errors = []
    for count in (10, 36):
        model, rest = learned(table, truth, count)
        mean, _ = model.predict(rest)
        errors.append(np.median(np.abs(np.exp(mean) / truth[rest] - 1)))

    assert errors[1] < errors[0]
    assert errors[1] < 0.1


def test_intervals_hold_what_was_left_out(table: Table, truth: np.ndarray) -> None:
    """Most of it: they are of 95 per cent."""
    model, rest = learned(table, truth, 36)
    mean, deviation = model.predict(rest)
    inside = np.abs(np.log(truth[rest]) - mean) <= 1.96 * deviation

    assert inside.mean() > 0.8


def test_what_was_measured_is_predicted_as_it_was(table: Table, truth: np.ndarray) -> None:
    """But for noise; and is better known than the rest."""
    model, rest = learned(table, truth, 36)
    mean, deviation = model.predict(model.places)

    assert np.allclose(model.logs, mean, atol=0.1)
    assert deviation.mean() < model.predict(rest)[1].mean()


def test_nothing_measured_is_nothing_known(table: Table) -> None:
    """The interval spans everything."""
    model = surrogate.of(table, [])
    _, deviation = model.predict(np.arange(3))

    assert (deviation > 5).all()


def test_what_another_model_says_is_where_it_begins(table: Table, truth: np.ndarray) -> None:
    """A predictor that is twice off everywhere is put right by a few measurements; a runtime that it does not know is
    taken for the mean of the others."""
    prior = np.log(2 * truth)
    prior[table.compiler == 3] = np.nan
    before = surrogate.of(table, [], prior)
    after = surrogate.of(table, [(at, truth[at]) for at in (0, 41, 82)], prior)
    known = np.flatnonzero(table.compiler != 3)

    assert np.allclose(prior[known], before.predict(known)[0])
    assert np.allclose(np.log(truth[known]), after.predict(known)[0], atol=0.2)
    assert np.isclose(prior[[0, 1, 2]].mean(), before.predict(np.array([3]))[0][0])


def test_a_trial_is_worth_what_it_may_decide() -> None:
    """Two compilers that are close, and one that is far behind: it is one of the two that is asked for; and never what
    was measured, nor what is worth nothing."""
    model = _Known(mean=[0.0, 0.02, 2.0], deviation=[0.1, 0.1, 0.1])
    groups, worth, every = np.zeros(3, dtype=int), np.ones(3), np.ones(3, dtype=bool)
    first = acquisition.choose(model, np.arange(3), groups, every, worth, 1)

    assert first[0] in (0, 1)
    assert [1] == acquisition.choose(model, np.arange(3), groups, np.array([False, True, True]), worth, 1)
    assert [1] == acquisition.choose(model, np.arange(3), groups, every, np.array([0.0, 1.0, 1.0]), 1)
    assert [0, 1, 2] == sorted(acquisition.choose(model, np.arange(3), groups, every, worth, 9))


def test_of_one_compiler_the_least_known_is_asked_for() -> None:
    """There is nothing to decide, and still something to predict."""
    model = _Known(mean=[0.0, 0.0], deviation=[0.1, 0.5])

    assert [1, 0] == acquisition.choose(model, np.arange(2), np.arange(2), np.ones(2, bool), np.ones(2), 2)


def test_the_first_groups_are_unlike() -> None:
    """The middle, and then the farthest from it."""
    numbers = np.array([[0.0], [0.0], [1.0], [1.0], [5.0], [5.0]])

    assert [1, 2] == acquisition.spread(numbers, np.array([0, 0, 1, 1, 2, 2]), 2)
    assert [0] == acquisition.spread(numbers[:2], np.array([0, 0]), 2)


class _Known:
    """A surrogate of trials that have nothing in common."""

    noise = 1e-4

    def __init__(self, mean: list[float], deviation: list[float]) -> None:
        self._mean, self._deviation = np.array(mean), np.array(deviation)

    def joint(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._mean[places], np.diag(self._deviation[places] ** 2)
