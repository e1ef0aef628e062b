"""Every kind of model fits a rule that it can express, is the same for the same seed, and survives saving."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import lightgbm
import numpy as np
import pytest
from learned import build_examples

from ngbkit.errors import UnknownNameError
from ngbkit.predict import Examples, Graph
from ngbkit.predict.features import encode_graph
from ngbkit.predict.kinds import KINDS, boosting, find_kind
from ngbkit.predict.kinds.additive import fit_prices
from ngbkit.predict.kinds.base import Model, compute_weights, ignore_progress
from ngbkit.predict.scoring.splits import split_examples

SMALL = {"gnn": {"epochs": 40, "width": 32, "layers": 2}, "boosting": {"rounds": 200}}


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return build_examples(tmp_path_factory.mktemp("graphs"), alone=True)


def fit(name: str, examples: Examples, seed: int = 0, **settings: Any) -> Model:
    """Fit a model of a kind."""
    model = find_kind(name)(**settings)
    model.fit(examples, seed=seed, report=ignore_progress)
    return model


def compute_error(name: str, examples: Examples) -> np.ndarray:
    """Return the mean relative error of the first random fold, by runtime."""
    _, train, test = next(split_examples(examples, "random"))
    model = fit(name, examples.take(train), **SMALL.get(name, {}))
    test_examples = examples.take(test)
    return np.abs(model.predict(test_examples.graphs) / test_examples.seconds - 1).mean(axis=0)


def test_prices_of_what_adds_up_are_found(examples: Examples) -> None:
    """The rule is linear in the features of `linear`; FLOPs alone ignore bytes."""
    linear, flops = compute_error("linear", examples), compute_error("flops", examples)

    assert (linear < 0.02).all()
    assert flops[1] > 5 * linear[1]


def test_prices_ignore_a_few_wrong_labels() -> None:
    """Three of twenty labels are four times too high; the prices are those of the others."""
    table = np.random.default_rng(0).uniform(1, 9, (20, 2))
    seconds = table @ [2.0, 3.0]
    seconds[:3] *= 4

    np.testing.assert_allclose([2.0, 3.0], fit_prices(table, seconds), rtol=0.01)


def rename_activations(graph_: Graph) -> Graph:
    """Return a graph with another kind of operator in place of its activations."""
    operators = [replace(each, kind="Gather") if each.kind == "Relu" else each for each in graph_.operators]
    return replace(graph_, operators=tuple(operators))


def test_a_kind_of_a_single_network_does_not_pay_for_all_that_is_peculiar_about_it(examples: Examples) -> None:
    """A kind of operator in a single network costs what kinds with as many bytes cost."""
    networks = examples.take(np.flatnonzero(~examples.isolated))
    largest, smallest = np.argsort(networks.seconds[:, 0])[[-1, 0]]
    graphs, seconds = list(networks.graphs), networks.seconds.copy()
    graphs[largest] = rename_activations(graphs[largest])
    seconds[largest] *= 3
    model = fit("linear", replace(networks, graphs=tuple(graphs), seconds=seconds))
    expected, predicted = model.predict([graphs[smallest], rename_activations(graphs[smallest])])

    assert (predicted < 1.5 * expected).all()


def test_operators_measured_alone_tell_prices_that_networks_do_not(examples: Examples) -> None:
    """Operators that are measured alone improve the prediction of unseen networks."""
    networks = np.flatnonzero(~examples.isolated)
    narrow = [index for index in networks if examples.families[index] == "width8"]
    wide = [index for index in networks if examples.families[index] == "width32"]
    seconds = examples.seconds.copy()
    seconds[examples.isolated] += 5e-5
    data = replace(examples, seconds=seconds)
    graphs = [examples.graphs[index] for index in wide]
    errors = []
    for others in ([], np.flatnonzero(examples.isolated)):
        model = fit("linear", data.take([*narrow[:3], *others]))
        errors.append(np.abs(model.predict(graphs) / seconds[wide] - 1).mean())

    assert errors[1] < 0.2
    assert errors[1] < errors[0] / 2


def test_noisy_labels_count_less(examples: Examples) -> None:
    """A label of unknown noise counts like the usual one; without any known noise all count the same.

    An error is one value beside three of the usual error, 5 % here.
    """
    errors = np.full(examples.seconds.shape, np.nan)
    errors[:3, 0] = [0.0, 0.05, 1.0]
    weights = compute_weights(replace(examples, errors=errors))
    shrunk = np.array([3 / 4, 1, (3 + 400) / 4, 1])

    np.testing.assert_allclose((1 + shrunk) ** -0.5, weights[:4, 0])
    assert (weights[:, 1] == 1).all()
    assert (compute_weights(examples) == 1).all()
    table = np.ones((4, 1))
    assert (
        pytest.approx(2.0, rel=0.03) == fit_prices(table, np.array([2.0, 3, 3, 3]), np.array([1.0, 0.1, 0.1, 0.1]))[0]
    )


def test_a_network_that_helps_nobody_is_not_returned(examples: Examples) -> None:
    """The additive model is the result for a runtime where no epoch improves on it."""
    networks = examples.take(np.flatnonzero(~examples.isolated))
    seconds = 1000 * networks.seconds  # beside which the least cost of an operator is nothing
    seconds[:, 1] *= np.exp(np.random.default_rng(0).normal(0, 2, len(seconds)))
    model = fit("gnn", replace(networks, seconds=seconds), epochs=8, width=16, layers=1, learning_rate=1e-2)
    weights = model.dump_arrays()["factor.weight"]

    assert (weights[0] == 0).all()
    assert (weights[1] != 0).any()


def test_a_graph_network_learns_from_few(examples: Examples) -> None:
    """The error on 32 networks is as small as so few allow."""
    assert (compute_error("gnn", examples) < 0.2).all()


def test_a_graph_network_learns_from_operators_inside_networks(examples: Examples) -> None:
    """A network that is right as a sum of wrong operators has a loss; one whose operators are unknown has none."""
    import torch

    from ngbkit.predict.kinds.training import Labels

    networks = examples.take(np.flatnonzero(~examples.isolated)[:3])
    predicted = torch.from_numpy(np.log(networks.seconds)).float()
    parts = torch.from_numpy(np.log(np.concatenate(networks.operator_seconds))).float()
    wrong = parts.clone()
    wrong[0] += 1.0

    def compute_loss(parts: torch.Tensor, data: Examples = networks) -> float:
        return float(Labels.build(data).compute_loss(predicted, parts, [0, 1, 2]))

    assert pytest.approx(0.0, abs=1e-6) == compute_loss(parts)
    assert compute_loss(wrong) > 1e-3
    assert pytest.approx(0.0, abs=1e-6) == compute_loss(wrong, replace(networks, operator_seconds=None))
    blank = tuple(np.full_like(seconds, np.nan) for seconds in networks.operator_seconds)
    assert pytest.approx(0.0, abs=1e-6) == compute_loss(wrong, replace(networks, operator_seconds=blank))


def test_trees_fit_their_training_networks(examples: Examples) -> None:
    """The error on the training networks is small, though they are few."""
    model = fit("boosting", examples)
    networks = examples.take(np.flatnonzero(~examples.isolated))

    assert (np.abs(model.predict(networks.graphs) / networks.seconds - 1).mean(axis=0) < 0.05).all()


def test_trees_predict_networks_larger_than_all_that_they_were_fitted_to(examples: Examples) -> None:
    """Trees alone would predict the latency of the largest of these."""
    large = [index for index, family in enumerate(examples.families) if family == "width32"]
    others = [index for index in range(len(examples)) if index not in large]
    model = fit("boosting", examples.take(others), rounds=50)
    predicted = model.predict(examples.take(large).graphs)

    assert (np.abs(predicted / examples.seconds[large] - 1).mean(axis=0) < 0.15).all()


def test_trees_fit_a_runtime_with_a_single_network(examples: Examples) -> None:
    """Trees predict the latency of a runtime's single network, and a finite one for others."""
    seconds = examples.seconds.copy()
    first = int(np.flatnonzero(~examples.isolated)[0])
    seconds[np.arange(len(examples)) != first, 1] = np.nan
    model = fit("boosting", replace(examples, seconds=seconds), rounds=5)

    predicted = model.predict(examples.graphs)[:, 1]

    np.testing.assert_allclose(seconds[first, 1], predicted[first], rtol=0.01)
    assert (predicted > 0).all()


@pytest.mark.parametrize("name", KINDS)
def test_the_same_seed_gives_the_same_model(name: str, examples: Examples) -> None:
    """The restored model predicts the same."""
    first, again = (fit(name, examples, seed=3, **SMALL.get(name, {})) for _ in range(2))
    restored = KINDS[name].restore(first.dump_settings(), first.dump_arrays())
    expected = first.predict(examples.graphs)

    np.testing.assert_array_equal(expected, again.predict(examples.graphs))
    np.testing.assert_array_equal(expected, restored.predict(examples.graphs))
    assert np.isfinite(expected).all()
    assert (expected > 0).all()


@pytest.mark.parametrize("name", KINDS)
def test_a_runtime_with_gaps_is_fitted_to_its_measurements(name: str, examples: Examples) -> None:
    """Gaps are not zeros; a runtime without any latency may be NaN."""
    seconds = examples.seconds.copy()
    seconds[::2, 1] = np.nan
    model = fit(name, replace(examples, seconds=seconds), **SMALL.get(name, {}))
    predictions = model.predict(examples.graphs)

    finite = np.isfinite(predictions)
    assert finite[:, 0].all()
    assert (np.abs(np.log(predictions[finite] / examples.seconds[finite])) < 2).all()


def test_progress_is_reported(examples: Examples) -> None:
    """The shares rise to 1."""
    for name in KINDS:
        shares: list[float] = []
        model = find_kind(name)(**SMALL.get(name, {}))
        model.fit(examples, seed=0, report=lambda share, text, report=shares: report.append(share))
        assert 1.0 == shares[-1]
        assert shares == sorted(shares)


def test_contributions_are_positive_and_part_of_the_whole(examples: Examples) -> None:
    """The contributions of operators sum up to at most the latency of the graph."""
    model = fit("gnn", examples, **SMALL["gnn"])
    parts = model.compute_contributions(examples.graphs[0])

    assert (len(examples.graphs[0].operators), 2) == parts.shape
    assert (parts > 0).all()
    assert (parts.sum(axis=0) < model.predict(examples.graphs[:1])[0] * 1.0001).all()


def test_an_unknown_kind_is_an_error() -> None:
    """The error lists the kinds."""
    with pytest.raises(UnknownNameError, match="gnn"):
        find_kind("gmm")


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("left", 0, "leads outside of itself"),
        ("right", 10**6, "leads outside of itself"),
        ("right", -99, "leads outside of itself"),
        ("columns", 10**6, "a column that does not exist"),
        ("columns", -2, "a column that does not exist"),
        ("roots", -1, "begins outside of the nodes"),
    ],
)
def test_a_tree_that_leads_elsewhere_is_refused(name: str, change: int, reason: str, examples: Examples) -> None:
    """A hostile file would walk in a circle, or read another column."""
    model = fit("boosting", examples, rounds=5, leaves=4)
    arrays = {key: array.copy() for key, array in model.dump_arrays().items()}
    arrays[f"0.{name}"][0] = change

    with pytest.raises(ValueError, match=reason):
        KINDS["boosting"].restore(model.dump_settings(), arrays)


def test_trees_predict_as_lightgbm_does(examples: Examples) -> None:
    """The arrays hold the very trees that were trained."""
    table = np.stack([encode_graph(graph) for graph in examples.graphs])
    logs, weights = np.log(examples.seconds[:, 0]), np.ones(len(examples))
    parameters = {"num_leaves": 6, "seed": 1}
    booster = lightgbm.train(
        {**boosting._TRAINING, **parameters}, lightgbm.Dataset(table, label=logs, weight=weights), num_boost_round=20
    )

    forest = boosting.Forest.train(table, logs, weights, 20, **parameters)

    np.testing.assert_allclose(booster.predict(table), forest.predict(table), rtol=1e-12)
