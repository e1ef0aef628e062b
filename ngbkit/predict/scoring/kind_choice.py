"""Chooses the kind of model by the labels: the cheapest whose errors on networks left out are those of the best.

A dearer kind is tried only where it can earn its time: no model has a smaller error than the noise of the labels, so
none is tried after a kind within a tenth of that; and the graph network, which takes minutes, needs a hundred networks,
and is left after one part of them unless it is better there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ngbkit.errors import MissingDependencyError
from ngbkit.predict.kinds import find_kind
from ngbkit.predict.kinds.base import Floats, Progress
from ngbkit.predict.labels.example_set import Examples
from ngbkit.predict.scoring.scores import noise_floor
from ngbkit.predict.scoring.splits import Fold, Split, split_examples
from ngbkit.user_text import clean_line, format_share

if TYPE_CHECKING:
    from typing import Self

AUTO = "auto"
"""The name that leaves the kind to the labels."""

# From the cheapest to the dearest: seconds, ten seconds, minutes.
_CHEAP, _DEAR = ("linear", "boosting"), "gnn"
# The fewest networks from which minutes of training may be worth their time.
_FEWEST = 100
# A kind is as good as the best up to this ratio of their errors; up to the second, if their difference may be noise:
# with all labels, of which the comparison leaves out a fifth, the lead of a dearer kind is larger.
_EQUAL, _CLOSE = 1.03, 1.05
# An error is that of the labels up to this ratio to their noise.
_NOISY = 1.1
# Standard errors of a difference that is no noise.
_ERRORS = 2.0
# The largest error of a network: beyond it, all are wrong.
_WRONG = 1.0
# The least share of the labels whose noise is known: those of repeated networks alone tell nothing about the others.
_KNOWN = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class KindChoice:
    """The kind that was chosen, and what decided.

    Parameters
    ----------
    kind
        The chosen kind.
    split
        What was left out: families, or networks where families tell nothing.
    errors
        The mean absolute relative error of each candidate on all that was left out, from the cheapest; that of one
        network counts at most 1. Of a graph network that was left after one part, the error is that of the best other
        kind, times their ratio on this part.
    seconds
        The time of fitting each candidate to all but what was left out.
    floor
        The error of a perfect predictor by the noise of these labels; NaN if that of most labels is unknown.
    skipped
        The reason for which dearer kinds were not tried, empty if all were.
    """

    kind: str
    split: Split
    errors: dict[str, float]
    seconds: dict[str, float]
    floor: float
    skipped: str

    def __str__(self) -> str:
        listed = ", ".join(
            f"{kind} {format_share(error, '.1f')} ({self.seconds[kind]:.0f} s)" for kind, error in self.errors.items()
        )
        parts = "families" if self.split == "family" else "networks"
        floor = f"; the noise of the labels is {format_share(self.floor, '.1f')}" if math.isfinite(self.floor) else ""
        skipped = f". {self.skipped}" if self.skipped else ""
        return (
            f"{self.kind} is the cheapest of the best kinds: errors on {parts} that were left out are "
            f"{listed}{floor}{skipped}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON."""
        return asdict(self) | {"floor": self.floor if math.isfinite(self.floor) else None}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Build what `to_json` returned; any exception about something else."""
        numbers = {
            name: {clean_line(kind): float(value) for kind, value in fields[name].items()}
            for name in ("errors", "seconds")
        }
        if numbers["errors"].keys() != numbers["seconds"].keys():
            raise ValueError("errors and seconds of different kinds")
        split: Split = "family" if fields["split"] == "family" else "random"
        return cls(
            kind=clean_line(fields["kind"]),
            split=split,
            floor=math.nan if fields["floor"] is None else float(fields["floor"]),
            skipped=clean_line(fields["skipped"]),
            **numbers,
        )


class _Comparison:
    """The errors of the candidates on the parts that a split leaves out in turn."""

    def __init__(self, examples: Examples, seed: int, report: Progress) -> None:
        networks = np.flatnonzero(~examples.isolated)
        self.networks = len({examples.parents[index] for index in networks})
        families = {examples.families[index] for index in networks}
        self.split: Split = "family" if 1 < len(families) < self.networks else "random"
        self._examples, self._seed, self._report = examples, seed, report
        self._folds = list(split_examples(examples, self.split, seed))
        self.sizes = [len(test) for _, _, test in self._folds]
        groups = examples.families if self.split == "family" else examples.parents
        self._groups = [np.array(groups, dtype=object)[test] for _, _, test in self._folds]
        self._errors: dict[str, dict[int, Floats]] = {}
        self.seconds: dict[str, float] = {}
        self._repeated = _find_repeated(examples)
        self.floor = math.nan
        tested = np.concatenate([test for _, _, test in self._folds])
        if self._repeated[tested].sum() >= _KNOWN * np.isfinite(examples.seconds[tested]).sum():
            self.floor = noise_floor(np.array(examples.errors)[tested][self._repeated[tested]])

    def run(self, kind: str, parts: Sequence[int]) -> None:
        """Fit a kind without each of these parts, and keep its errors on them; MissingDependencyError."""
        for number in parts:
            fold = self._folds[number]
            title = f"choice of a kind: {kind} without {fold[0]}"

            def report_share(share: float, text: str, title: str = title, number: int = number) -> None:
                total = sum(self.seconds.values())
                share = (number + share) / len(self._folds)
                self._report(share, f"{title}, {text} ({total:.0f} s so far)")

            started_s = time.monotonic()
            errors = _score(kind, self._examples, fold, self._seed, report_share)
            self._errors.setdefault(kind, {})[number] = errors
            self.seconds[kind] = self.seconds.get(kind, 0.0) + time.monotonic() - started_s

    @property
    def parts(self) -> range:
        """The number of each part."""
        return range(len(self._folds))

    @property
    def complete(self) -> dict[str, Floats]:
        """The mean error of each family or network that was left out, by kind; of the kinds with every part."""
        return {
            kind: self.average_groups(kind, self.parts)
            for kind, errors in self._errors.items()
            if len(errors) == len(self._folds)
        }

    def average_groups(self, kind: str, parts: Sequence[int]) -> Floats:
        """Return the mean error of each family or network of these parts: those of a family are no independent ones."""
        means = []
        for number in parts:
            errors, groups = self._errors[kind][number], self._groups[number]
            means += [_compute_mean(errors[groups == group]) for group in dict.fromkeys(groups)]
        return np.array(means)

    def average_repeated(self, kind: str) -> float:
        """Return the mean error on the labels whose noise is known, beside which `floor` is."""
        errors = [self._errors[kind][number][self._repeated[self._folds[number][2]]] for number in self.parts]
        return _compute_mean(np.concatenate(errors))

    def average(self, kind: str, parts: Sequence[int]) -> float:
        """Return the mean error of the networks of these parts."""
        mean = _compute_mean(np.concatenate([self._errors[kind][number].ravel() for number in parts]))
        return mean if math.isfinite(mean) else math.inf


def choose_kind(examples: Examples, seed: int, report: Progress) -> KindChoice:
    """Cross-validate the kinds, from the cheapest on, as long as a dearer one can earn its time."""
    comparison = _Comparison(examples, seed, report)
    skipped = ""
    for kind in _CHEAP:
        if skipped := _find_limit(comparison):
            break
        with suppress(MissingDependencyError):
            comparison.run(kind, comparison.parts)
    averages = {kind: comparison.average(kind, comparison.parts) for kind in comparison.complete}
    skipped = skipped or _find_limit(comparison)
    if not skipped and comparison.networks < _FEWEST:
        skipped = f"The graph network was not tried: {comparison.networks} networks are fewer than {_FEWEST}"
    if not skipped:
        skipped = _try_dear(comparison, averages)
    return KindChoice(
        kind=choose_cheapest(comparison.complete, {kind: averages[kind] for kind in comparison.complete}),
        split=comparison.split,
        errors=averages,
        seconds=comparison.seconds,
        floor=comparison.floor,
        skipped=skipped,
    )


def _find_limit(comparison: _Comparison) -> str:
    """Return the reason for which no further kind can be better by a tenth; empty if one can be."""
    errors = [comparison.average_repeated(kind) for kind in comparison.complete]
    if not errors or not min(errors) <= _NOISY * comparison.floor:
        return ""
    return "No dearer kind was tried: the error is within a tenth of the noise of the labels"


def _try_dear(comparison: _Comparison, averages: dict[str, float]) -> str:
    """Train the graph network without the largest part, and without the others if it is better there.

    Its error is added to those of the others; return the reason for which it was left, empty if it was not.
    """
    best = min(averages, key=lambda kind: averages[kind])
    largest = int(np.argmax(comparison.sizes))
    try:
        comparison.run(_DEAR, [largest])
    except MissingDependencyError:
        return "The graph network was not tried: it needs torch, pip install 'ngbkit[predict]'"
    ratio = comparison.average(_DEAR, [largest]) / max(comparison.average(best, [largest]), 1e-12)
    if ratio >= 1:
        averages[_DEAR] = averages[best] * ratio
        return "The graph network was left after one part, on which it is no better"
    comparison.run(_DEAR, [number for number in comparison.parts if number != largest])
    averages[_DEAR] = comparison.average(_DEAR, comparison.parts)
    return ""


def choose_cheapest(errors: Mapping[str, Floats], averages: Mapping[str, float]) -> str:
    """Choose the first kind whose error is that of the best, but for noise; kinds are ordered by their cost."""
    best = min(averages, key=lambda kind: averages[kind])
    for kind, average in averages.items():
        ratio = average / max(averages[best], 1e-12)
        if ratio <= _EQUAL or (ratio <= _CLOSE and not _is_different(errors[kind], errors[best])):
            return kind
    return best


def _score(kind: str, examples: Examples, fold: Fold, seed: int, report: Progress) -> Floats:
    """Return the absolute relative errors of the networks that a fold leaves out, by runtime."""
    _, train, test = fold
    model = find_kind(kind)()
    model.fit(examples.take(train), seed=seed, report=report)
    errors = np.abs(model.predict([examples.graphs[index] for index in test]) / examples.seconds[test] - 1)
    return np.minimum(errors, _WRONG)


def _find_repeated(examples: Examples) -> NDArray[np.bool_]:
    """Return which labels of original networks have a known noise: of shape ``(graphs, runtimes)``."""
    if examples.errors is None:
        return np.zeros(examples.seconds.shape, dtype=bool)
    original = np.array([not rule for rule in examples.rules], dtype=bool)[:, None]
    return original & np.isfinite(examples.errors) & np.isfinite(examples.seconds)


def _compute_mean(errors: Floats) -> float:
    """Return the mean of the errors that are known; NaN if none is."""
    finite = errors[np.isfinite(errors)]
    return float(finite.mean()) if len(finite) else math.nan


def _is_different(first: Floats, second: Floats) -> bool:
    difference = (first - second)[np.isfinite(first - second)]
    if len(difference) < _ERRORS:
        return False
    return bool(abs(difference.mean()) > _ERRORS * difference.std(ddof=1) / np.sqrt(len(difference)))
