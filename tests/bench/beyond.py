"""Scores predictors beyond their labels: coverage of 95 % intervals where a family, an operator or sizes are left out.

    python tests/bench/beyond.py notebooks/data/labels.nc

Each part that is left out has `--least` networks or more, and leaves ten or more. A row per set, runtime and kind of
part: the parts; the share of the networks that are refused; the share of the others whose latency is inside the
interval, by network and by part; the median factor between an interval's end and the prediction; and the share that is
flagged.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit import predict
from ngbkit.predict import Examples
from ngbkit.predict.kinds.base import ignore_progress
from ngbkit.predict.labels.loading import load_labels
from ngbkit.predict.scoring.applicability import read_composition

REST = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", nargs="+", type=Path)
    parser.add_argument("--kind", default="linear", help="the kind that is fitted (default: linear)")
    parser.add_argument("--most", type=int, default=12, help="the most parts of each sort (default: 12)")
    parser.add_argument("--least", type=int, default=4, help="the fewest networks of a part (default: 4)")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'labels':24} {'runtime':22} {'left out':9} parts refused coverage by part factor flagged")
    for path in args.labels:
        for examples in split_runtimes(load_labels(path)):
            scores: dict[str, list[np.ndarray]] = {}
            for sort, test in list_parts(examples, args.most, args.least):
                scores.setdefault(sort, []).append(score_part(examples, test, args.kind))
            for sort, parts in scores.items():
                runtime = "{1} on {0}".format(*examples.runtimes[0])
                answered = [part[part[:, 0] == 0, 1].mean() for part in parts if (part[:, 0] == 0).any()]
                described = describe(np.concatenate(parts), float(np.mean(answered or [np.nan])))
                print(f"{path.stem:24} {runtime:22} {sort:9} {len(parts):5} {described}", flush=True)


def split_runtimes(examples: Examples) -> Iterator[Examples]:
    """Yield the examples of each runtime that has enough, without variants."""
    original = np.array([not rule for rule in examples.rules])
    for column in range(len(examples.runtimes)):
        rows = np.flatnonzero(original & np.isfinite(examples.seconds[:, column]))
        part = examples.take(rows)
        if (~part.isolated).sum() >= 3 * REST:
            errors = None if part.errors is None else part.errors[:, [column]]
            yield replace(
                part,
                runtimes=(examples.runtimes[column],),
                seconds=part.seconds[:, [column]],
                errors=errors,
                operator_seconds=None,
            )


def list_parts(examples: Examples, most: int, least: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield a sort, and the indices of the networks to leave out."""
    networks = np.flatnonzero(~examples.isolated)
    families = np.array(examples.families)
    contents = {int(index): read_composition(examples.graphs[index]) for index in networks}
    names, counts = np.unique(families[networks], return_counts=True)
    for name in names[np.argsort(-counts, kind="stable")][: min(most, (counts >= least).sum())]:
        yield "family", networks[families[networks] == name]
    classes = sorted({name for content in contents.values() for name in content.shares})
    members = {name: np.array([i for i in networks if name in contents[int(i)].shares]) for name in classes}
    chosen = [name for name in classes if least <= len(members[name]) <= len(networks) - REST]
    generator = np.random.default_rng(0)
    for name in generator.permutation(chosen)[:most]:
        yield "operator", members[name]
    sizes = np.array([contents[int(index)].cost for index in networks])
    order = networks[np.argsort(sizes)]
    for part in np.array_split(order, 5):
        yield "sizes", part


def score_part(examples: Examples, test: np.ndarray, kind: str) -> np.ndarray:
    """Return a row per network: refused, covered, flagged, the logarithm of the factor, and that of the error."""
    rest = np.setdiff1d(np.arange(len(examples)), test)
    if (~examples.take(rest).isolated).sum() < REST:
        return np.empty((0, 5))
    fitted = predict.fit(examples.take(rest), kind, report=ignore_progress)
    graphs = [examples.graphs[index] for index in test]
    seconds, low, high = (values[:, 0] for values in fitted.seconds(graphs))
    measured = examples.seconds[test, 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        columns: list[Any] = [
            ~np.isfinite(seconds),
            (low <= measured) & (measured <= high),
            fitted.find_beyond(graphs)[:, 0],
            np.maximum(np.log(high / seconds), np.log(seconds / low)),
            np.log(seconds / measured),
        ]
    return np.stack(columns, axis=1).astype(float)


def describe(part: np.ndarray, by_part: float) -> str:
    answered = part[part[:, 0] == 0]
    if not len(part):
        return "none is large enough"
    if not len(answered):
        return "100 % refused"
    factor, flagged = np.exp(np.median(answered[:, 3])), answered[:, 2].mean()
    return f"{part[:, 0].mean():7.1%} {answered[:, 1].mean():8.1%} {by_part:7.1%} {factor:6.2f} {flagged:7.1%}"


if __name__ == "__main__":
    main()
