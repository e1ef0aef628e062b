"""Chooses the kind of model by the labels: the cheapest whose errors on networks left out are those of the best.

A dearer kind has to earn its time: it is left after the largest part of the networks unless it is better there, and the
graph network, which takes minutes, needs a hundred networks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.errors import MissingDependencyError
from ngbkit.predict.kinds import find_kind
from ngbkit.predict.kinds.base import Floats, Progress
from ngbkit.predict.labels.example_set import Examples
from ngbkit.predict.scoring.splits import Fold, Split, split_examples
from ngbkit.user_text import clean_line, format_share

if TYPE_CHECKING:
    from typing import Self

AUTO = "auto"
"""The name that leaves the kind to the labels."""

# From the cheapest to the dearest: seconds, ten seconds, minutes; and the fewest networks for each.
_FEWEST = {"linear": 0, "boosting": 0, "gnn": 100}
# A kind is as good as the best up to this ratio of their errors; up to the second, if their difference may be noise:
# with all labels, of which the comparison leaves out a fifth, the lead of a dearer kind is larger.
_EQUAL, _CLOSE = 1.03, 1.05
# Standard errors of a difference that is no noise.
_ERRORS = 2.0
# The largest error of a network: beyond it, all are wrong.
_WRONG = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KindChoice:
    """The kind that was chosen, and what decided.

    `split` is what was left out: families, or networks where families tell nothing. `errors` has the mean absolute
    relative error of each candidate on these, and `seconds` the time that it took. A kind that was left after one part
    has the error of the best before it, times their ratio on this part. `skipped` has the reasons for leaving kinds.
    """

    kind: str
    split: Split
    errors: dict[str, float]
    seconds: dict[str, float]
    skipped: str

    def __str__(self) -> str:
        listed = ", ".join(
            f"{kind} {format_share(error, '.1f')} ({self.seconds[kind]:.0f} s)" for kind, error in self.errors.items()
        )
        parts = "families" if self.split == "family" else "networks"
        skipped = f". {self.skipped}" if self.skipped else ""
        return (
            f"{self.kind} is the cheapest of the best kinds: errors on {parts} that were left out are {listed}{skipped}"
        )

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Build one from its fields; any exception about others."""
        errors, seconds = (
            {clean_line(kind): float(value) for kind, value in fields[name].items()} for name in ("errors", "seconds")
        )
        if errors.keys() != seconds.keys():
            raise ValueError("errors and seconds of different kinds")
        return cls(
            kind=clean_line(fields["kind"]),
            split="family" if fields["split"] == "family" else "random",
            errors=errors,
            seconds=seconds,
            skipped=clean_line(fields["skipped"]),
        )


def choose_kind(examples: Examples, seed: int, report: Progress) -> KindChoice:
    """Compare the kinds by leaving out families, or networks where each is a family of its own, in turn."""
    networks = np.flatnonzero(~examples.isolated)
    count = len({examples.parents[index] for index in networks})
    split: Split = "family" if 1 < len({examples.families[index] for index in networks}) < count else "random"
    # The largest part first.
    folds = sorted(split_examples(examples, split, seed), key=lambda fold: -len(fold[2]))
    tested = np.concatenate([test for _, _, test in folds])
    groups = np.array(examples.families if split == "family" else examples.parents, dtype=object)[tested]
    complete: dict[str, Floats] = {}
    errors: dict[str, float] = {}
    seconds: dict[str, float] = {}
    skipped: list[str] = []
    for kind, fewest in _FEWEST.items():
        if count < fewest:
            skipped.append(f"{kind} was not tried: {count} networks are fewer than {fewest}")
            continue
        best = min(complete, key=errors.__getitem__, default=kind)
        parts: list[Floats] = []
        ratio, started_s = 0.0, time.monotonic()
        try:
            for number, fold in enumerate(folds):

                def report_share(share: float, text: str, title: str = fold[0], number: int = number) -> None:
                    share = (number + share) / len(folds)
                    report(share, f"choice of a kind: {kind} without {title}, {text}")  # noqa: B023  called now

                parts.append(_score(kind, examples, fold, seed, report_share))
                if best in complete:
                    ratio = _compute_mean(parts[0]) / max(_compute_mean(complete[best][: len(parts[0])]), 1e-12)
                if ratio >= 1:
                    break
        except MissingDependencyError as error:
            skipped.append(f"{kind} was not tried: {error}".rstrip("."))
            continue
        seconds[kind] = time.monotonic() - started_s
        if ratio >= 1:
            errors[kind] = errors[best] * ratio
            skipped.append(f"{kind} was left after one part, on which it is no better")
        else:
            complete[kind] = np.concatenate(parts)
            errors[kind] = _compute_mean(complete[kind])
    by_group = {
        kind: np.array([_compute_mean(values[groups == group]) for group in dict.fromkeys(groups)])
        for kind, values in complete.items()
    }
    chosen = choose_cheapest(by_group, {kind: errors[kind] for kind in complete})
    return KindChoice(kind=chosen, split=split, errors=errors, seconds=seconds, skipped="; ".join(skipped))


def choose_cheapest(errors: Mapping[str, Floats], averages: Mapping[str, float]) -> str:
    """Choose the first kind whose error is that of the best, but for noise; kinds are ordered by their cost."""
    best = min(averages, key=lambda kind: averages[kind])
    for kind, average in averages.items():
        ratio = average / max(averages[best], 1e-12)
        difference = (errors[kind] - errors[best])[np.isfinite(errors[kind] - errors[best])]
        is_noise = len(difference) < _ERRORS or bool(
            abs(difference.mean()) <= _ERRORS * difference.std(ddof=1) / np.sqrt(len(difference))
        )
        if ratio <= _EQUAL or (ratio <= _CLOSE and is_noise):
            return kind
    return best


def _score(kind: str, examples: Examples, fold: Fold, seed: int, report: Progress) -> Floats:
    """Return the absolute relative errors of the networks that a fold leaves out, by runtime."""
    _, train, test = fold
    model = find_kind(kind)()
    model.fit(examples.take(train), seed=seed, report=report)
    errors = np.abs(model.predict([examples.graphs[index] for index in test]) / examples.seconds[test] - 1)
    return np.minimum(errors, _WRONG)


def _compute_mean(errors: Floats) -> float:
    """Return the mean of the errors that are known; infinity if none is."""
    finite = errors[np.isfinite(errors)]
    return float(finite.mean()) if len(finite) else math.inf
