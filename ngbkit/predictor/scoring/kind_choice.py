"""Chooses the kind of model by the labels: the cheapest whose errors on networks left out are those of the best."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ngbkit.errors import MissingDependencyError
from ngbkit.predictor.kinds import find_kind
from ngbkit.predictor.kinds.base import Floats, Progress, ignore_progress
from ngbkit.predictor.labels.example_set import Examples
from ngbkit.predictor.scoring.splits import Fold, Split, split_examples

AUTO = "auto"
"""The name that leaves the kind to the labels."""

# From the cheapest to the dearest: seconds, ten seconds, minutes.
_CHEAP, _DEAR = ("linear", "boosting"), "gnn"
# The fewest networks from which minutes of training may be worth their time.
_FEWEST = 100
# A kind is as good as the best up to this ratio of their errors; up to the second, if their difference may be noise.
_EQUAL, _CLOSE = 1.03, 1.1
# Standard errors of a difference that is no noise.
_ERRORS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KindChoice:
    """The kind that was chosen, and the error of each candidate on the networks that a split left out."""

    kind: str
    split: Split
    errors: dict[str, float]

    def __str__(self) -> str:
        listed = ", ".join(f"{kind} {error:.1%}".replace("%", " %") for kind, error in self.errors.items())
        parts = "families" if self.split == "family" else "networks"
        return f"{self.kind} is the cheapest of the best kinds: errors on {parts} that were left out are {listed}"


def choose_kind(examples: Examples, seed: int, report: Progress) -> KindChoice:
    """Cross-validate the cheap kinds, and train the graph network on one fold: it has to be better by a tenth there.

    Families are left out where there are several, else networks.
    """
    networks = np.flatnonzero(~examples.isolated)
    parents = {examples.parents[index] for index in networks}
    families = {examples.families[index] for index in networks}
    split: Split = "family" if 1 < len(families) < len(parents) else "random"
    folds = list(split_examples(examples, split, seed))
    scores: dict[str, list[Floats]] = {}
    for number, kind in enumerate(_CHEAP):
        report(number / 3, f"{kind} without a part of the {'families' if split == 'family' else 'networks'}")
        with suppress(MissingDependencyError):
            scores[kind] = [_score(kind, examples, fold, seed) for fold in folds]
    chosen = choose_cheapest({kind: np.concatenate(parts) for kind, parts in scores.items()})
    errors = {kind: _average(np.concatenate(parts)) for kind, parts in scores.items()}
    if len(parents) >= _FEWEST:
        largest = max(range(len(folds)), key=lambda index: len(folds[index][2]))
        report(2 / 3, f"{_DEAR} without {folds[largest][0]}")
        try:
            trial = _score(_DEAR, examples, folds[largest], seed)
        except MissingDependencyError:
            return KindChoice(kind=chosen, split=split, errors=errors)
        same = scores[chosen][largest]
        # The error of one fold, as a share of that of the chosen kind there.
        errors[_DEAR] = errors[chosen] * _average(trial) / _average(same)
        if errors[_DEAR] * _CLOSE < errors[chosen] and _is_different(trial, same):
            chosen = _DEAR
    return KindChoice(kind=chosen, split=split, errors=errors)


def choose_cheapest(errors: dict[str, Floats]) -> str:
    """Choose the first kind whose errors are those of the best, but for noise; kinds are ordered by their cost."""
    best = min(errors, key=lambda kind: _average(errors[kind]))
    for kind, values in errors.items():
        ratio = _average(values) / max(_average(errors[best]), 1e-12)
        if ratio <= _EQUAL or (ratio <= _CLOSE and not _is_different(values, errors[best])):
            return kind
    return best


def _score(kind: str, examples: Examples, fold: Fold, seed: int) -> Floats:
    """Return the absolute relative errors of the networks that a fold leaves out, by runtime."""
    _, train, test = fold
    model = find_kind(kind)()
    model.fit(examples.take(train), seed=seed, report=ignore_progress)
    return np.asarray(np.abs(model.predict([examples.graphs[index] for index in test]) / examples.seconds[test] - 1))


def _average(errors: Floats) -> float:
    return float(np.nanmean(errors)) if np.isfinite(errors).any() else float("inf")


def _is_different(first: Floats, second: Floats) -> bool:
    difference = (first - second)[np.isfinite(first - second)]
    if len(difference) < _ERRORS:
        return False
    return bool(abs(difference.mean()) > _ERRORS * difference.std(ddof=1) / np.sqrt(len(difference)))
