"""Scores predictors moved to a new device by ten labels, beside prices that are fitted to these labels alone.

    python bench/transfer.py results/foreign/cells.nc results/foreign/timm.nc

A predictor of one device, or of all but one (`others`), is moved to another by ten labels: drawn at random from half
of the networks, or suggested by the predictor. A row per pair: the mean error of fresh prices and of the moved
predictor on all other networks, their ratio, the share of these inside the 95 % interval, its median factor, and the
approach. The last rows are the means and the largest ratio.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from ngbkit import predictor
from ngbkit.predictor import Examples
from ngbkit.predictor.kinds import find_kind
from ngbkit.predictor.kinds.base import ignore_progress
from ngbkit.predictor.labels.loading import load_labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", nargs="+", type=Path)
    parser.add_argument("--kind", default="linear", help="the kind that is moved (default: linear)")
    parser.add_argument("--count", type=int, default=10, help="labels of the new device (default: 10)")
    parser.add_argument("--draws", type=int, default=3, help="halves of the networks to draw from (default: 3)")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for path in args.labels:
        examples = load_labels(path)
        original = np.array([not rule for rule in examples.rules]) & ~examples.isolated
        counts = np.isfinite(examples.seconds[original]).sum(axis=0)
        usable = np.flatnonzero(counts >= 6 * args.count)
        examples = select(examples.take(np.flatnonzero(original)), usable)
        for is_suggested in (False, True):
            scores = score_set(examples, args.kind, args.count, args.draws, is_suggested=is_suggested)
            ratios = scores[:, 1] / scores[:, 0]
            title = f"{path.stem}, {'suggested' if is_suggested else 'random'}"
            print(
                f"{title}: fresh {scores[:, 0].mean():.1%}, moved {scores[:, 1].mean():.1%}, largest ratio of a draw "
                f"{ratios.max():.2f}, above 1.1 {np.mean(ratios > 1.1):.0%}, coverage {scores[:, 2].mean():.1%}\n",
                flush=True,
            )


def select(examples: Examples, columns: np.ndarray) -> Examples:
    """Return the examples with a label on any of these runtimes, and these alone."""
    selected = replace(
        examples,
        runtimes=tuple(("-".join(examples.runtimes[column]), examples.runtimes[column][1]) for column in columns),
        seconds=examples.seconds[:, columns],
        errors=None if examples.errors is None else examples.errors[:, columns],
        operator_seconds=None,
    )
    return selected.take(np.flatnonzero(np.isfinite(selected.seconds).any(axis=1)))


def score_set(examples: Examples, kind: str, count: int, draws: int, *, is_suggested: bool) -> np.ndarray:
    """Return a row per source, target and draw: the errors of fresh prices and of the moved predictor, and coverage."""
    columns = list(range(len(examples.runtimes)))
    sources = [("others", None), *((examples.runtimes[column][0], column) for column in columns)]
    rows = []
    for name, source in sources if len(columns) > 2 else sources[1:]:
        fitted = None if source is None else fit(select_raw(examples, [source]), kind)
        for target in columns:
            if target == source:
                continue
            moved_from = fitted or fit(select_raw(examples, [column for column in columns if column != target]), kind)
            labels = select_raw(examples, [target])
            scores = []
            for draw in range(draws):
                pool = np.random.default_rng([draw, 1]).permutation(len(labels))[: len(labels) // 2]
                part = labels.take(pool)
                chosen = pool[:count]
                if is_suggested:
                    names = moved_from.suggest(part, count)["workload"]
                    chosen = pool[[part.names.index(each) for each in names]]
                scores.append(score(moved_from, labels, chosen))
            errors = np.array([row[:4] for row in scores])
            fresh, moved, coverage, factor = errors.mean(axis=0)
            device = labels.runtimes[0][0]
            print(
                f"{name:20} to {device:20} fresh {fresh:6.1%} moved {moved:6.1%} ratio {moved / fresh:5.2f} coverage "
                f"{coverage:6.1%} factor {factor:5.2f}  {scores[0][4]}",
                flush=True,
            )
            rows.append(errors)
    return np.concatenate(rows)


def select_raw(examples: Examples, columns: list[int]) -> Examples:
    selected = replace(
        examples,
        runtimes=tuple(examples.runtimes[column] for column in columns),
        seconds=examples.seconds[:, columns],
        errors=None if examples.errors is None else examples.errors[:, columns],
    )
    return selected.take(np.flatnonzero(np.isfinite(selected.seconds).any(axis=1)))


def fit(examples: Examples, kind: str) -> predictor.Predictor:
    return predictor.fit(examples, kind, folds=0, report=ignore_progress)


def score(fitted: predictor.Predictor, labels: Examples, chosen: np.ndarray) -> tuple[float, float, float, float, str]:
    few, others = labels.take(chosen), labels.take(np.setdiff1d(np.arange(len(labels)), chosen))
    fresh = find_kind("linear")()
    fresh.fit(few, seed=0, report=ignore_progress)
    moved = fitted.adapt(few, device=labels.runtimes[0][0], report=ignore_progress)
    seconds, low, high = (values[:, 0] for values in moved.seconds(others.graphs))
    measured = others.seconds[:, 0]
    error = np.nanmean(np.abs(moved.model.predict(others.graphs)[:, 0] / measured - 1))
    answered = np.isfinite(seconds)
    inside = ((low <= measured) & (measured <= high))[answered].mean()
    assert isinstance(moved.choice, tuple)
    fresh_error = np.mean(np.abs(fresh.predict(others.graphs)[:, 0] / measured - 1))
    factor = float(np.exp(np.median(np.log(high / seconds)[answered])))
    return float(fresh_error), float(error), float(inside), factor, moved.choice[0].approach


if __name__ == "__main__":
    main()
