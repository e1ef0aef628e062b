"""What is learned from and what is judged by have nothing in common."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from learned import examples

from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.predictor import Examples
from ngbkit.predictor.splits import folds, holdout


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return examples(tmp_path_factory.mktemp("graphs"), alone=True)


@pytest.mark.parametrize("split", ["random", "family", "rule"])
def test_variants_of_a_network_stay_together(known: Examples, split: str) -> None:
    """No parent is on both sides, and single operators are always there to learn from."""
    for left_out, learned, held in folds(known, split, seed=1):
        assert len(held), left_out
        assert not {known.parents[at] for at in learned} & {known.parents[at] for at in held}
        assert set(np.flatnonzero(known.isolated)) <= set(learned)
        assert not known.isolated[held].any()


def test_every_network_is_judged_once_by_random_folds(known: Examples) -> None:
    """The folds cover all, and do not overlap."""
    held = np.concatenate([held for _, _, held in folds(known, "random")])

    assert sorted(held) == np.flatnonzero(~known.isolated).tolist()


def test_a_family_is_left_out_whole(known: Examples) -> None:
    """Nothing of that family is learned from."""
    for left_out, learned, held in folds(known, "family"):
        assert {left_out} == {known.families[at] for at in held}
        assert left_out not in {known.families[at] for at in learned}


def test_a_rule_is_left_out_with_the_networks_that_it_is_judged_on(known: Examples) -> None:
    """It is judged by what that rule makes and what it was made of; neither was learned from."""
    for left_out, learned, held in folds(known, "rule"):
        assert left_out not in {known.rules[at] for at in learned}
        assert {left_out, ""} == {known.rules[at] for at in held}


def test_a_rule_is_left_out_with_all_that_it_helped_to_make(known: Examples) -> None:
    """What two rules made together is learned from where neither of them is left out."""
    both = ["deeper2+deeper3" if rule == "deeper4" else rule for rule in known.rules]
    joined = replace(known, rules=tuple(both))
    parts = {left_out: (learned, held) for left_out, learned, held in folds(joined, "rule")}

    assert {"deeper2", "deeper3"} == set(parts)
    for name, (learned, held) in parts.items():
        assert not any(name in joined.rules[at] for at in learned)
        assert {"", name, "deeper2+deeper3"} == {joined.rules[at] for at in held}


def test_many_families_are_left_out_a_fifth_at_a_time(known: Examples) -> None:
    """Each is judged once, and by what has learned nothing of any that stands in its part."""
    several = [one if one == "operator" else f"{one}-{at % 3}" for at, one in enumerate(known.families)]
    many = replace(known, families=tuple(several))
    parts = list(folds(many, "family"))

    assert 5 == len(parts)
    for _, learned, held in parts:
        assert not {many.families[at] for at in learned} & {many.families[at] for at in held}
        assert len(held)
    assert [2] * 5 == [name.count(", ") for name, _, _ in parts]


def test_the_seed_decides(known: Examples) -> None:
    """The same seed gives the same folds, another one others."""
    first, again, other = ([held.tolist() for _, _, held in folds(known, "random", seed)] for seed in (0, 0, 1))

    assert first == again
    assert first != other


def test_a_share_is_held_out(known: Examples) -> None:
    """Whole networks with their variants."""
    learned, held = holdout(known, 0.2, seed=0)

    assert 2 == len({known.parents[at] for at in held})
    assert len(known) == len(learned) + len(held)
    assert not {known.parents[at] for at in learned} & {known.parents[at] for at in held}


def test_what_cannot_be_split_is_an_error(known: Examples) -> None:
    """It says what there is too little of, and which splits there are."""
    one = known.take([0])
    for split, what in (("random", "networks"), ("family", "families"), ("rule", "rules")):
        with pytest.raises(UsageError, match=f"leaves out some {what}"):
            list(folds(one, split))
    with pytest.raises(UnknownNameError, match="family"):
        list(folds(known, "famly"))
