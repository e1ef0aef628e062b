"""Splits examples into a training and a test set that share no network.

All variants of a network are in one set. Isomorphic graphs are one example (see `ngbkit.predict.collect`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ngbkit.errors import NgbkitWarning, UnknownNameError, UsageError
from ngbkit.predict.labels.example_set import Examples

Split = Literal["random", "family"]
Indices = NDArray[np.intp]
Fold = tuple[str, Indices, Indices]
"""A title of what is left out, the indices of the training examples, and the indices of the test examples."""

FOLDS = 5

HOLDOUT = 0.1
"""The share of the networks that a model is not fitted to, and that decides when its training ends."""

# The most families that the title of a fold lists.
_LISTED = 3


def split_examples(examples: Examples, split: Split = "random", seed: int = 0) -> Iterator[Fold]:
    """Yield the folds of a split; every training set contains all single operators.

    ``"random"`` leaves out a fifth of the networks at a time; ``"family"`` a fifth of the families, so that the test
    networks are unlike all training networks.
    """
    if split not in get_args(Split):
        raise UnknownNameError("split", split, get_args(Split))
    generator = np.random.default_rng(seed)
    networks = ~examples.isolated
    parents, families = (np.array(labels, dtype=object) for labels in (examples.parents, examples.families))
    if split == "random":
        for name, chosen in _split_names(parents[networks], "networks", split, generator):
            test = np.isin(parents, chosen) & networks
            yield name, np.flatnonzero(~test), np.flatnonzero(test)
    else:
        _warn_of_single(families[networks], parents[networks])
        for name, chosen in _split_names(families[networks], "families", split, generator):
            # A variant belongs to the family of its parent, whatever its name.
            test = np.isin(parents, list(set(parents[networks & np.isin(families, chosen)]))) & networks
            yield name, np.flatnonzero(~test), np.flatnonzero(test & np.isin(families, chosen))


def split_holdout(examples: Examples, share: float, seed: int) -> tuple[Indices, Indices]:
    """Return the training indices, and those of a test set: about a `share` of the networks, with their variants."""
    generator = np.random.default_rng(seed)
    networks = ~examples.isolated
    parents = np.array(examples.parents, dtype=object)
    names = sorted(set(parents[networks]))
    chosen = generator.permutation(len(names))[: max(round(share * len(names)), int(len(names) > 1))]
    test = np.isin(parents, [names[index] for index in chosen]) & networks
    return np.flatnonzero(~test), np.flatnonzero(test)


def split_folds(examples: Examples, count: int, seed: int) -> Iterator[tuple[Indices, Indices]]:
    """Yield the training and the test indices of each of `count` folds: each network is in one test set."""
    generator = np.random.default_rng(seed)
    networks = ~examples.isolated
    parents = np.array(examples.parents, dtype=object)
    names = sorted(set(parents[networks]))
    for indices in np.array_split(generator.permutation(len(names)), count):
        test = np.isin(parents, [names[index] for index in indices]) & networks
        yield np.flatnonzero(~test), np.flatnonzero(test)


def _split_names(
    labels: Iterable[str], kind: str, split: str, generator: np.random.Generator
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield a title and a fifth of the names at a time; the title lists the names if there are few."""
    names = sorted(set(labels))
    _check_count(names, kind, split)
    shuffled = generator.permutation(len(names))
    for number, indices in enumerate(np.array_split(shuffled, min(FOLDS, len(names)))):
        chosen = sorted(names[index] for index in indices)
        title = ", ".join(chosen) if split != "random" and len(chosen) <= _LISTED else f"fold {number + 1}"
        yield title, chosen


def _warn_of_single(families: NDArray[np.object_], parents: NDArray[np.object_]) -> None:
    """Warn if no family has a second network: leaving out families is then a random split."""
    count = len(set(families))
    if 1 < count == len(set(parents)):
        warnings.warn(
            f"each of the {count} networks is a family of its own, so that split='family' is a random split. Name "
            "families by a column 'family', family=[…] or a folder for each.",
            NgbkitWarning,
            stacklevel=4,
        )


def _check_count(names: Sequence[str], kind: str, split: str) -> None:
    if len(names) < 2:
        available = f"only {names[0]!r}" if names else "none"
        hint = ", or name families by a column 'family', family=[…] or a folder for each" if kind == "families" else ""
        raise UsageError(
            f"invalid split={split!r}: got {available} of its {kind}; expected two or more. Measure more{hint}."
        )
