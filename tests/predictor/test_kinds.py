"""Every kind of model fits a rule that it can express, is the same for the same seed, and survives saving."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learned import build_examples
from onnxgraphs import Builder, graph

from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.predictor import Examples, Graph
from ngbkit.predictor.kinds import KINDS, find_kind
from ngbkit.predictor.kinds.additive import fit_prices
from ngbkit.predictor.kinds.base import compute_weights, ignore_progress
from ngbkit.predictor.kinds.gnn import Gnn
from ngbkit.predictor.scoring.splits import split_examples

SMALL = {"gnn": {"epochs": 40, "width": 32, "layers": 2}, "boosting": {"rounds": 200}, "kernels": {"rounds": 100}}


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return build_examples(tmp_path_factory.mktemp("graphs"), alone=True)


def compute_error(name: str, examples: Examples) -> np.ndarray:
    """Return the mean relative error of the first random fold, by runtime."""
    _, train, test = next(split_examples(examples, "random"))
    model = find_kind(name)(**SMALL.get(name, {}))
    model.fit(examples.take(train), seed=0, progress=ignore_progress)
    test_examples = examples.take(test)
    return np.abs(model.predict(test_examples.graphs) / test_examples.seconds - 1).mean(axis=0)


def test_prices_of_what_adds_up_are_found(examples: Examples) -> None:
    """The rule is linear in the features of `linear`; FLOPs alone ignore bytes."""
    linear, flops = compute_error("linear", examples), compute_error("flops", examples)

    assert (linear < 0.02).all()
    assert flops[1] > 5 * linear[1]


def test_operators_that_a_runtime_splits_or_drops_have_no_price_of_their_own(examples: Examples) -> None:
    """As lowered graphs of single operators may be: with a change of the layout before, or without anything to do."""
    single, another = np.flatnonzero(examples.isolated)[:2]
    network = next(graph for graph in examples.graphs if len(graph.operators) > 1)
    graphs = list(examples.graphs)
    graphs[single] = replace(network, digest="split")
    graphs[another] = replace(network, operators=(), edges=(), shared=(), digest="dropped")
    model = find_kind("operators")()
    model.fit(replace(examples, graphs=tuple(graphs), operator_seconds=None), seed=0, progress=ignore_progress)

    assert int(examples.isolated.sum()) - 2 == len(model.dump_settings()["known"])


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
    """It costs what other kinds cost that move as many bytes; such networks would be predicted wrong by a factor."""
    networks = examples.take(np.flatnonzero(~examples.isolated))
    largest, smallest = np.argsort(networks.seconds[:, 0])[[-1, 0]]
    graphs, seconds = list(networks.graphs), networks.seconds.copy()
    graphs[largest] = rename_activations(graphs[largest])
    seconds[largest] *= 3
    model = find_kind("linear")()
    model.fit(replace(networks, graphs=tuple(graphs), seconds=seconds), seed=0, progress=ignore_progress)
    expected, predicted = model.predict([graphs[smallest], rename_activations(graphs[smallest])])

    assert (predicted < 1.5 * expected).all()


def test_operators_measured_alone_tell_prices_that_networks_do_not(examples: Examples) -> None:
    """What a call and the change of its layout cost alone is not part of a network's prediction."""
    networks = np.flatnonzero(~examples.isolated)
    narrow = [index for index in networks if examples.families[index] == "width8"]
    wide = [index for index in networks if examples.families[index] == "width32"]
    seconds = examples.seconds.copy()
    seconds[examples.isolated] += 5e-5
    data = replace(examples, seconds=seconds)
    graphs = [examples.graphs[index] for index in wide]
    errors = []
    for others in ([], np.flatnonzero(examples.isolated)):
        model = find_kind("linear")()
        model.fit(data.take([*narrow[:3], *others]), seed=0, progress=ignore_progress)
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
    """Without an epoch that beats it on the networks held out, the additive model is the result, by runtime."""
    networks = examples.take(np.flatnonzero(~examples.isolated))
    seconds = 1000 * networks.seconds  # beside which the least cost of an operator is nothing
    seconds[:, 1] *= np.exp(np.random.default_rng(0).normal(0, 2, len(seconds)))
    model = Gnn(epochs=8, width=16, layers=1, learning_rate=1e-2)
    model.fit(replace(networks, seconds=seconds), seed=0, progress=ignore_progress)
    weights = model.dump_arrays()["0.factor.weight"]

    assert (weights[0] == 0).all()
    assert (weights[1] != 0).any()


def test_a_graph_network_learns_from_few(examples: Examples) -> None:
    """The error on 32 networks is as small as so few allow."""
    assert (compute_error("gnn", examples) < 0.2).all()


def test_a_graph_network_learns_from_operators_inside_networks(examples: Examples) -> None:
    """A network that is right as a sum of wrong operators has a loss; one whose operators are unknown has none."""
    import torch

    from ngbkit.predictor.kinds.training import Labels

    networks = examples.take(np.flatnonzero(~examples.isolated)[:3])
    assert networks.operator_seconds is not None
    predicted = torch.from_numpy(np.log(networks.seconds)).float()
    parts = torch.from_numpy(np.log(np.concatenate(networks.operator_seconds))).float()
    wrong = parts.clone()
    wrong[0] += 1.0

    def compute_loss(parts: torch.Tensor, inside: float, data: Examples = networks) -> float:
        return float(Labels.build(data, 1.0, inside).compute_loss(predicted, parts, [0, 1, 2]))

    assert pytest.approx(0.0, abs=1e-6) == compute_loss(parts, 1.0)
    assert compute_loss(wrong, 1.0) > 1e-3
    assert pytest.approx(0.0, abs=1e-6) == compute_loss(wrong, 0.0)
    assert pytest.approx(0.0, abs=1e-6) == compute_loss(wrong, 1.0, replace(networks, operator_seconds=None))
    blank = tuple(np.full_like(seconds, np.nan) for seconds in networks.operator_seconds)
    assert pytest.approx(0.0, abs=1e-6) == compute_loss(wrong, 1.0, replace(networks, operator_seconds=blank))


def test_trees_fit_their_training_networks(examples: Examples) -> None:
    """The error on the training networks is small, though they are few."""
    model = find_kind("boosting")()
    model.fit(examples, seed=0, progress=ignore_progress)
    networks = examples.take(np.flatnonzero(~examples.isolated))

    assert (np.abs(model.predict(networks.graphs) / networks.seconds - 1).mean(axis=0) < 0.05).all()


def test_trees_predict_networks_larger_than_all_that_they_were_fitted_to(examples: Examples) -> None:
    """Trees alone would predict the latency of the largest of these."""
    large = [index for index, family in enumerate(examples.families) if family == "width32"]
    others = [index for index in range(len(examples)) if index not in large]
    model = find_kind("boosting")(rounds=50)
    model.fit(examples.take(others), seed=0, progress=ignore_progress)
    predicted = model.predict(examples.take(large).graphs)

    assert (np.abs(predicted / examples.seconds[large] - 1).mean(axis=0) < 0.15).all()


def test_operators_of_another_family_are_known(examples: Examples) -> None:
    """A family that was left out is predicted by what its operators cost in others; networks need no latency."""
    large = [index for index, family in enumerate(examples.families) if family == "width32"]
    others = [index for index, family in enumerate(examples.families) if family not in ("width32", "operator")]
    model = find_kind("kernels")()
    model.fit(examples.take(others), seed=0, progress=ignore_progress)
    parts = model.compute_contributions(examples.graphs[large[0]])

    assert (np.abs(model.predict(examples.take(large).graphs) / examples.seconds[large] - 1).mean(axis=0) < 0.15).all()
    assert examples.operator_seconds is not None
    np.testing.assert_allclose(examples.operator_seconds[large[0]].sum(axis=0), parts.sum(axis=0), rtol=0.3)


def test_a_kernel_that_no_network_showed_costs_what_others_cost(examples: Examples) -> None:
    """By its kind if it multiplies, or else by its bytes."""
    networks = examples.take(np.flatnonzero(~examples.isolated))
    model = find_kind("kernels")()
    model.fit(networks, seed=0, progress=ignore_progress)
    graph = networks.graphs[0]
    renamed = tuple(
        replace(operator, attributes={**operator.attributes, "kernel": "new"})
        if operator.macs
        else replace(operator, kind="NeverSeen")
        for operator in graph.operators
    )
    expected, seconds = (model.predict([each])[0] for each in (graph, replace(graph, operators=renamed)))

    np.testing.assert_allclose(expected, seconds, rtol=0.25)


def test_kernels_need_the_seconds_of_operators(examples: Examples) -> None:
    """The error says how to get them."""
    with pytest.raises(UsageError, match=r"no seconds of operators .* profiled=True"):
        find_kind("kernels")().fit(replace(examples, operator_seconds=None), seed=0, progress=ignore_progress)


def test_trees_fit_a_runtime_with_a_single_network(examples: Examples) -> None:
    """They predict its latency, and a finite one for others."""
    seconds = examples.seconds.copy()
    first = int(np.flatnonzero(~examples.isolated)[0])
    seconds[np.arange(len(examples)) != first, 1] = np.nan
    model = find_kind("boosting")(rounds=5)
    model.fit(replace(examples, seconds=seconds), seed=0, progress=ignore_progress)

    predicted = model.predict(examples.graphs)[:, 1]

    np.testing.assert_allclose(seconds[first, 1], predicted[first], rtol=0.01)
    assert (predicted > 0).all()


def test_a_sum_of_operators_is_that_sum(examples: Examples, tmp_path: Path) -> None:
    """Two convolutions that were measured alone cost the sum of both."""
    model = find_kind("operators")()
    model.fit(examples, seed=0, progress=ignore_progress)
    build = Builder(16)
    pair = graph(build.model(build.conv(build.conv("x", 16, 3), 16, 1)), tmp_path)
    seconds = {
        examples.graphs[index].operators[0].digest: examples.seconds[index]
        for index in np.flatnonzero(examples.isolated)
    }

    np.testing.assert_allclose(model.predict([pair])[0], sum(seconds[operator.digest] for operator in pair.operators))


def test_without_single_operators_there_is_no_sum(examples: Examples) -> None:
    """The prediction is NaN, and not zero."""
    model = find_kind("operators")()
    networks = examples.take(np.flatnonzero(~examples.isolated))
    model.fit(networks, seed=0, progress=ignore_progress)

    assert np.isnan(model.predict(networks.graphs)).all()


@pytest.mark.parametrize("name", KINDS)
def test_the_same_seed_gives_the_same_model(name: str, examples: Examples) -> None:
    """The restored model predicts the same."""
    first, again = (find_kind(name)(**SMALL.get(name, {})) for _ in range(2))
    for model in (first, again):
        model.fit(examples, seed=3, progress=ignore_progress)
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
    sparse = Examples(
        **{**{field: getattr(examples, field) for field in examples.__dataclass_fields__}, "seconds": seconds}
    )
    model = find_kind(name)(**SMALL.get(name, {}))
    model.fit(sparse, seed=0, progress=ignore_progress)
    predictions = model.predict(examples.graphs)

    finite = np.isfinite(predictions)
    assert finite[:, 0].all()
    assert (np.abs(np.log(predictions[finite] / examples.seconds[finite])) < 2).all()


def test_progress_is_reported(examples: Examples) -> None:
    """The shares rise to 1."""
    for name in KINDS:
        shares: list[float] = []
        model = find_kind(name)(**SMALL.get(name, {}))
        model.fit(examples, seed=0, progress=lambda share, text, report=shares: report.append(share))
        assert 1.0 == shares[-1]
        assert shares == sorted(shares)


class InterruptedTraining(Exception):
    """Interrupts training in a test."""


def test_interrupted_training_resumes(examples: Examples, tmp_path: Path) -> None:
    """Resumed training gives the same model as uninterrupted training, and repeats no finished epochs."""
    settings = {"epochs": 30, "width": 16, "layers": 1}
    uninterrupted = Gnn(**settings)
    uninterrupted.fit(examples, seed=0, progress=ignore_progress)

    def interrupt(share: float, text: str) -> None:
        if share > 0.75:
            raise InterruptedTraining

    with pytest.raises(InterruptedTraining):
        Gnn(**settings, folder=tmp_path).fit(examples, seed=0, progress=interrupt)
    messages: list[str] = []
    resumed = Gnn(**settings, folder=tmp_path)
    resumed.fit(examples, seed=0, progress=lambda share, text: messages.append(text))

    assert messages[0].startswith("epoch 21 of 30")
    np.testing.assert_array_equal(uninterrupted.predict(examples.graphs), resumed.predict(examples.graphs))


def test_contributions_are_positive_and_part_of_the_whole(examples: Examples) -> None:
    """The contributions of operators sum up to at most the latency of the graph."""
    model = Gnn(**SMALL["gnn"])
    model.fit(examples, seed=0, progress=ignore_progress)
    parts = model.compute_contributions(examples.graphs[0])

    assert (len(examples.graphs[0].operators), 2) == parts.shape
    assert (parts > 0).all()
    assert (parts.sum(axis=0) < model.predict(examples.graphs[:1])[0] * 1.0001).all()


def test_an_unknown_kind_is_an_error() -> None:
    """The error lists the kinds."""
    with pytest.raises(UnknownNameError, match="gnn"):
        find_kind("gmm")
