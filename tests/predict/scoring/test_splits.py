"""Training and test sets share no network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from learned import build_examples

from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.predict import Examples
from ngbkit.predict.scoring.splits import split_examples, split_folds, split_holdout


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return build_examples(tmp_path_factory.mktemp("graphs"), alone=True)


@pytest.mark.parametrize("split", ["random", "family"])
def test_variants_of_a_network_stay_together(examples: Examples, split: str) -> None:
    """No parent is in both sets, and every training set contains the single operators."""
    for left_out, train, test in split_examples(examples, split, seed=1):
        assert len(test), left_out
        assert not {examples.parents[index] for index in train} & {examples.parents[index] for index in test}
        assert set(np.flatnonzero(examples.isolated)) <= set(train)
        assert not examples.isolated[test].any()


def test_every_network_is_in_one_random_test_set(examples: Examples) -> None:
    """The test sets cover all networks, and do not overlap."""
    test = np.concatenate([test for _, _, test in split_examples(examples, "random")])

    assert sorted(test) == np.flatnonzero(~examples.isolated).tolist()


def test_a_family_is_left_out_whole(examples: Examples) -> None:
    """The training set has no network of that family."""
    for left_out, train, test in split_examples(examples, "family"):
        assert {left_out} == {examples.families[index] for index in test}
        assert left_out not in {examples.families[index] for index in train}


def test_many_families_are_left_out_a_fifth_at_a_time(examples: Examples) -> None:
    """Each family is in one test set and not in its training set."""
    families = [name if name == "operator" else f"{name}-{index % 3}" for index, name in enumerate(examples.families)]
    many = replace(examples, families=tuple(families))
    parts = list(split_examples(many, "family"))

    assert 5 == len(parts)
    for _, train, test in parts:
        assert not {many.families[index] for index in train} & {many.families[index] for index in test}
        assert len(test)
    assert [2] * 5 == [name.count(", ") for name, _, _ in parts]


def test_the_seed_decides(examples: Examples) -> None:
    """The same seed gives the same folds, another seed others."""
    first, again, other = (
        [test.tolist() for _, _, test in split_examples(examples, "random", seed)] for seed in (0, 0, 1)
    )

    assert first == again
    assert first != other


def test_a_share_is_held_out(examples: Examples) -> None:
    """Whole networks are held out, with their variants."""
    train, test = split_holdout(examples, 0.2, seed=0)

    assert 2 == len({examples.parents[index] for index in test})
    assert len(examples) == len(train) + len(test)
    assert not {examples.parents[index] for index in train} & {examples.parents[index] for index in test}


def test_too_few_networks_to_split_are_an_error(examples: Examples) -> None:
    """The error names what is too few, or lists the splits."""
    single = examples.take([0])
    for split, noun in (("random", "networks"), ("family", "families")):
        with pytest.raises(UsageError, match=f"of its {noun}; expected two or more"):
            list(split_examples(single, split))
    with pytest.raises(UnknownNameError, match="family"):
        list(split_examples(examples, "famly"))


def test_folds_hold_every_network_out_once(examples: Examples) -> None:
    """Folds hold out every network once, with its variants, and train on all single operators."""
    folds = list(split_folds(examples, 3, seed=0))

    assert 3 == len(folds)
    assert sorted(np.concatenate([test for _, test in folds])) == np.flatnonzero(~examples.isolated).tolist()
    for train, test in folds:
        assert not {examples.parents[index] for index in train} & {examples.parents[index] for index in test}
        assert set(np.flatnonzero(examples.isolated)) <= set(train)


def test_at_least_one_network_is_held_out_of_two(examples: Examples) -> None:
    """A single network is not held out."""
    two = examples.take([0, examples.parents.index("8x3")])

    assert 1 == len(split_holdout(two, 0.1, seed=0)[1])
    assert 0 == len(split_holdout(two.take([0]), 0.1, seed=0)[1])
