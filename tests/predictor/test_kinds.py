"""Every kind of model learns a rule that it can express, is the same for the same seed, and comes back as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from learned import examples
from onnxgraphs import Builder, graph

from ngbkit.errors import UnknownNameError
from ngbkit.predictor import Examples
from ngbkit.predictor.kinds import KINDS, kind
from ngbkit.predictor.kinds.base import silent
from ngbkit.predictor.kinds.gnn import Gnn
from ngbkit.predictor.splits import folds

SMALL = {"gnn": {"epochs": 40, "width": 32, "layers": 2}, "boosting": {"rounds": 200}}


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return examples(tmp_path_factory.mktemp("graphs"), alone=True)


def error(name: str, known: Examples) -> np.ndarray:
    """By runtime, the mean relative error of the first random fold."""
    _, learned, held = next(folds(known, "random"))
    model = kind(name)(**SMALL.get(name, {}))
    model.fit(known.take(learned), seed=0, progress=silent)
    judged = known.take(held)
    return np.abs(model.predict(judged.graphs) / judged.seconds - 1).mean(axis=0)


def test_prices_of_what_adds_up_are_found(known: Examples) -> None:
    """The rule is linear in what `linear` counts; FLOPs alone do not tell bytes."""
    linear, flops = error("linear", known), error("flops", known)

    assert (linear < 0.02).all()
    assert flops[1] > 5 * linear[1]


def test_a_graph_network_learns_from_few(known: Examples) -> None:
    """Of 32 networks, within what so few allow."""
    assert (error("gnn", known) < 0.2).all()


def test_trees_learn_what_they_have_seen(known: Examples) -> None:
    """Few networks are no reason to be off on those very ones."""
    model = kind("boosting")()
    model.fit(known, seed=0, progress=silent)
    whole = known.take(np.flatnonzero(~known.isolated))

    assert (np.abs(model.predict(whole.graphs) / whole.seconds - 1).mean(axis=0) < 0.05).all()


def test_trees_of_a_runtime_with_a_single_network_say_what_that_took(known: Examples) -> None:
    """They know nothing else."""
    seconds = known.seconds.copy()
    first = int(np.flatnonzero(~known.isolated)[0])
    seconds[np.arange(len(known)) != first, 1] = np.nan
    model = kind("boosting")(rounds=5)
    model.fit(replace(known, seconds=seconds), seed=0, progress=silent)

    np.testing.assert_allclose(model.predict(known.graphs[:3])[:, 1], seconds[first, 1])


def test_a_sum_of_operators_is_that_sum(known: Examples, tmp_path: Path) -> None:
    """Two convolutions that were measured by themselves cost what both took."""
    model = kind("operators")()
    model.fit(known, seed=0, progress=silent)
    build = Builder(16)
    two = graph(build.model(build.conv(build.conv("x", 16, 3), 16, 1)), tmp_path)
    alone = {known.graphs[at].operators[0].digest: known.seconds[at] for at in np.flatnonzero(known.isolated)}

    np.testing.assert_allclose(model.predict([two])[0], sum(alone[one.digest] for one in two.operators))


def test_without_single_operators_there_is_no_sum(known: Examples) -> None:
    """It says NaN, and not zero."""
    model = kind("operators")()
    whole = known.take(np.flatnonzero(~known.isolated))
    model.fit(whole, seed=0, progress=silent)

    assert np.isnan(model.predict(whole.graphs)).all()


@pytest.mark.parametrize("name", KINDS)
def test_the_same_seed_gives_the_same_model(name: str, known: Examples) -> None:
    """And what is restored from its numbers predicts the same."""
    first, again = (kind(name)(**SMALL.get(name, {})) for _ in range(2))
    for model in (first, again):
        model.fit(known, seed=3, progress=silent)
    restored = KINDS[name].restore(first.settings(), first.arrays())
    expected = first.predict(known.graphs)

    np.testing.assert_array_equal(expected, again.predict(known.graphs))
    np.testing.assert_array_equal(expected, restored.predict(known.graphs))
    assert np.isfinite(expected).all()
    assert (expected > 0).all()


@pytest.mark.parametrize("name", KINDS)
def test_a_runtime_that_measured_less_is_learned_from_what_it_has(name: str, known: Examples) -> None:
    """Gaps are no zeros; a column without any number is NaN for what learns a runtime at a time."""
    seconds = known.seconds.copy()
    seconds[::2, 1] = np.nan
    gappy = Examples(**{**{each: getattr(known, each) for each in known.__dataclass_fields__}, "seconds": seconds})
    model = kind(name)(**SMALL.get(name, {}))
    model.fit(gappy, seed=0, progress=silent)
    found = model.predict(known.graphs)

    there = np.isfinite(found)
    assert there[:, 0].all()
    assert (np.abs(np.log(found[there] / known.seconds[there])) < 2).all()


def test_progress_is_told(known: Examples) -> None:
    """From a little to all of it, in order."""
    for name in KINDS:
        shares: list[float] = []
        model = kind(name)(**SMALL.get(name, {}))
        model.fit(known, seed=0, progress=lambda share, text, told=shares: told.append(share))
        assert 1.0 == shares[-1]
        assert shares == sorted(shares)


class Ended(Exception):
    """What a test ends training with."""


def test_training_goes_on_where_it_was_ended(known: Examples, tmp_path: Path) -> None:
    """What was ended and gone on with is what was never ended, and the rest alone is trained."""
    settings = {"epochs": 30, "width": 16, "layers": 1}
    whole = Gnn(**settings)
    whole.fit(known, seed=0, progress=silent)

    def end(share: float, text: str) -> None:
        if share > 0.75:
            raise Ended

    with pytest.raises(Ended):
        Gnn(**settings, folder=tmp_path).fit(known, seed=0, progress=end)
    told: list[str] = []
    rest = Gnn(**settings, folder=tmp_path)
    rest.fit(known, seed=0, progress=lambda share, text: told.append(text))

    assert told[0].startswith("epoch 21 of 30")
    np.testing.assert_array_equal(whole.predict(known.graphs), rest.predict(known.graphs))


def test_contributions_are_positive_and_part_of_the_whole(known: Examples) -> None:
    """What operators add is at most what the graph takes."""
    model = Gnn(**SMALL["gnn"])
    model.fit(known, seed=0, progress=silent)
    parts = model.contributions(known.graphs[0])

    assert (len(known.graphs[0].operators), 2) == parts.shape
    assert (parts > 0).all()
    assert (parts.sum(axis=0) < model.predict(known.graphs[:1])[0] * 1.0001).all()


def test_an_unknown_kind_is_an_error() -> None:
    """It names those that there are."""
    with pytest.raises(UnknownNameError, match="gnn"):
        kind("gmm")
