"""Which examples a model learns from and which it is judged by, such that nothing of the one is in the other.

All variants of a network are on one side. Isomorphic graphs are one example (see `ngbkit.predictor.examples.collect`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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

JOINED = "+"
"""Between the rules that made one variant."""

# Families or rules that a fold is called by.
_NAMED = 3


def folds(examples: Examples, split: Split = "random", seed: int = 0) -> Iterator[Fold]:
    """The folds of a split; single operators that were measured by themselves are in every training set.

    Parameters
    ----------
    examples
        What to split.
    split
        ``"random"``: a fifth of the networks at a time. ``"family"``: a fifth of the families, so that networks are
        unlike all that was learned from. ``"rule"``: what a fifth of the rules make, alone or with others, of half of
        the networks at a time, where neither those rules nor those networks were learned from.
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
    parents, families = (np.array(one, dtype=object) for one in (examples.parents, examples.families))
    if split == "random":
        for name, chosen in _parts(parents[whole], "networks", split, generator):
            held = np.isin(parents, chosen) & whole
            yield name, np.flatnonzero(~held), np.flatnonzero(held)
    elif split == "family":
        for name, chosen in _parts(families[whole], "families", split, generator):
            # A variant is of the family of its parent, whatever it is called.
            held = np.isin(parents, list(set(parents[whole & np.isin(families, chosen)]))) & whole
            yield name, np.flatnonzero(~held), np.flatnonzero(held & np.isin(families, chosen))
    else:
        applied = [set(one.split(JOINED)) - {""} for one in examples.rules]
        names = [rule for at in np.flatnonzero(whole) for rule in applied[at]]
        for name, chosen in _parts(names, "rules", split, generator):
            made = np.array([bool(one & set(chosen)) for one in applied]) & whole
            changed = generator.permutation(sorted(set(parents[made])))
            held = np.isin(parents, changed[: max(1, len(changed) // 2)]) & whole
            plain = np.array([not one for one in applied])
            yield name, np.flatnonzero(~held & ~made), np.flatnonzero(held & (made | plain))


def holdout(examples: Examples, share: float, seed: int) -> tuple[Places, Places]:
    """About that share of the networks, with all of their variants, apart from the others."""
    generator = np.random.default_rng(seed)
    whole = ~examples.isolated
    parents = np.array(examples.parents, dtype=object)
    names = sorted(set(parents[whole]))
    chosen = generator.permutation(len(names))[: round(share * len(names))]
    held = np.isin(parents, [names[place] for place in chosen]) & whole
    return np.flatnonzero(~held), np.flatnonzero(held)


def _parts(
    labels: Iterable[str], what: str, split: str, generator: np.random.Generator
) -> Iterator[tuple[str, Sequence[str]]]:
    """A fifth of the labels at a time, and what that part is called: by its labels, where these are few."""
    names = sorted(set(labels))
    _require(names, what, split)
    shuffled = generator.permutation(len(names))
    for number, places in enumerate(np.array_split(shuffled, min(FOLDS, len(names)))):
        chosen = sorted(names[place] for place in places)
        said = ", ".join(chosen) if split != "random" and len(chosen) <= _NAMED else f"fold {number + 1}"
        yield said, chosen


def _require(names: Sequence[str], what: str, split: str) -> None:
    if len(names) < 2:
        there = f"only {names[0]!r}" if names else "none"
        raise UsageError(f"split={split!r} leaves out some {what} to judge by, and there is {there}; measure more.")
