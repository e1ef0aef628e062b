"""Which examples a model learns from and which it is judged by, such that nothing of the one is in the other.

All variants of a network are on one side. Isomorphic graphs are one example (see `ngbkit.predictor.examples.collect`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.predictor.examples import Examples

Split = Literal["random", "family", "rule"]
Places = NDArray[np.intp]
Fold = tuple[str, Places, Places]
"""What is left out, the places of the examples to learn from, and those of the examples to judge by."""

FOLDS = 5


def folds(examples: Examples, split: Split = "random", seed: int = 0) -> Iterator[Fold]:
    """The folds of a split; single operators that were measured by themselves are in every training set.

    Parameters
    ----------
    examples
        What to split.
    split
        ``"random"``: a fifth of the networks at a time. ``"family"``: one family at a time, so that its networks are
        unlike all that was learned from. ``"rule"``: what one rule makes of half of the networks at a time, where
        neither that rule nor those networks were learned from.
    seed
        Of what is random.

    Raises
    ------
    UnknownNameError
        There is no such split.
    UsageError
        There is nothing to leave out: fewer than two networks, families or rules.
    """
    if split not in get_args(Split):
        raise UnknownNameError("split", split, get_args(Split))
    generator = np.random.default_rng(seed)
    whole = ~examples.isolated
    parents, families, rules = (np.array(one, dtype=object) for one in _groups(examples))
    if split == "random":
        names = sorted(set(parents[whole]))
        _require(names, "networks", split)
        shuffled = generator.permutation(len(names))
        for number, places in enumerate(np.array_split(shuffled, min(FOLDS, len(names)))):
            held = np.isin(parents, [names[place] for place in places]) & whole
            yield f"fold {number + 1}", np.flatnonzero(~held), np.flatnonzero(held)
    elif split == "family":
        names = sorted(set(families[whole]))
        _require(names, "families", split)
        for name in names:
            # A variant is of the family of its parent, whatever it is called.
            held = np.isin(parents, list(set(parents[whole & (families == name)]))) & whole
            yield str(name), np.flatnonzero(~held), np.flatnonzero(held & (families == name))
    else:
        names = sorted(set(rules[whole]) - {""})
        _require(names, "rules", split)
        for name in names:
            made = sorted(set(parents[rules == name]))
            chosen = generator.permutation(len(made))[: max(1, len(made) // 2)]
            held = np.isin(parents, [made[place] for place in chosen]) & whole
            judged = held & ((rules == name) | (rules == ""))
            yield str(name), np.flatnonzero(~held & (rules != name)), np.flatnonzero(judged)


def holdout(examples: Examples, share: float, seed: int) -> tuple[Places, Places]:
    """About that share of the networks, with all of their variants, apart from the others."""
    generator = np.random.default_rng(seed)
    whole = ~examples.isolated
    parents = np.array(examples.parents, dtype=object)
    names = sorted(set(parents[whole]))
    chosen = generator.permutation(len(names))[: round(share * len(names))]
    held = np.isin(parents, [names[place] for place in chosen]) & whole
    return np.flatnonzero(~held), np.flatnonzero(held)


def _groups(examples: Examples) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    return examples.parents, examples.families, examples.rules


def _require(names: Sequence[str], what: str, split: str) -> None:
    if len(names) < 2:
        there = f"only {names[0]!r}" if names else "none"
        raise UsageError(f"split={split!r} leaves out some {what} to judge by, and there is {there}; measure more.")
