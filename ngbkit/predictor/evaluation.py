"""How well kinds of models predict what they have not learned from, in one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.dataset.storage import Data
from ngbkit.predictor import scores
from ngbkit.predictor.examples import Examples, collect
from ngbkit.predictor.kinds import kind as kind_of
from ngbkit.predictor.kinds.base import Floats, Progress, silent
from ngbkit.predictor.splits import Split, folds

if TYPE_CHECKING:
    import pandas as pd

BASELINES = ("flops", "operators", "linear", "boosting")


def evaluate(
    data: Data | Examples,
    kinds: Iterable[str] = (*BASELINES, "gnn"),
    *,
    split: Split = "random",
    seeds: Iterable[int] = (0, 1, 2),
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Progress = silent,
) -> pd.DataFrame:
    """Learn from a part of the networks and predict the others, for each kind, seed and fold.

    Parameters
    ----------
    data
        As for `ngbkit.predictor.fit`.
    kinds
        Of models.
    split
        What is left out: see `ngbkit.predictor.splits.folds`.
    seeds
        Of the split and of the model.
    settings
        By kind, what its models are made with.
    progress
        Told how far it is.

    Returns
    -------
    pandas.DataFrame
        A row a kind, a runtime, a seed and a fold: ``kind, device, compiler, split, seed, left_out``; ``graphs``, how
        many were predicted; ``mape`` and ``within_10`` (shares), ``tau``; ``sign`` and ``pairs``: how often the order
        of two variants of one network that surely differ by more than 3 % is right, and of how many such pairs.

    Raises
    ------
    UnknownNameError, UsageError
        As `fit` and `folds`.
    """
    import pandas as pd

    found = data if isinstance(data, Examples) else collect(data)
    asked = [(kind, seed) for kind in kinds for seed in seeds]
    rows: list[dict[str, Any]] = []
    for number, (kind, seed) in enumerate(asked):
        own = list(folds(found, split, seed))
        for fold, (left_out, learned, held) in enumerate(own):
            model = kind_of(kind)(**(settings or {}).get(kind, {}))

            def told(share: float, text: str, done: float = number + fold / len(own), of: int = len(own)) -> None:
                progress((done + share / of) / len(asked), f"{kind}, {left_out}: {text}")  # noqa: B023  called now

            model.fit(found.take(learned), seed=seed, progress=told)
            judged = found.take(held)
            about = {"kind": kind, "split": split, "seed": seed, "left_out": left_out}
            rows += [about | row for row in _judged(model.predict(judged.graphs), judged)]
    first = ["kind", "device", "compiler", "split", "seed", "left_out"]
    frame = pd.DataFrame(rows)
    return frame[[*first, *(name for name in frame.columns if name not in first)]]


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """The mean of each score by kind and runtime, each fold counting by its graphs (signs by their pairs)."""
    keys = ["split", "kind", "device", "compiler"]
    weights = {"mape": "graphs", "within_10": "graphs", "tau": "graphs", "sign": "pairs"}
    parts = {}
    for score, weight in weights.items():
        known = table[table[score].notna() & (table[weight] > 0)]
        summed = known.assign(product=known[score] * known[weight]).groupby(keys, sort=False)[["product", weight]].sum()
        parts[score] = summed["product"] / summed[weight]
    found = table[keys].drop_duplicates().set_index(keys)
    return found.assign(**parts, seeds=table.groupby(keys, sort=False)["seed"].nunique())


def _judged(predicted: Floats, judged: Examples) -> Iterable[dict[str, Any]]:
    for column, (device, compiler) in enumerate(judged.runtimes):
        guess, truth = predicted[:, column], judged.seconds[:, column]
        there = np.flatnonzero(np.isfinite(guess) & np.isfinite(truth))
        if not len(there):
            continue
        guess, truth = guess[there], truth[there]
        # What is known of a network as it came is of its latency, and no error of the gains over it.
        errors = (
            None if judged.errors is None else [judged.errors[at, column] if judged.rules[at] else 0.0 for at in there]
        )
        parents = [judged.parents[at] for at in there]
        sign, pairs = scores.sign_accuracy(guess, truth, parents, errors=errors)
        yield {
            **{"device": device, "compiler": compiler, "graphs": len(there), "mape": scores.mape(guess, truth)},
            **{"within_10": scores.within(guess, truth), "tau": scores.tau(guess, truth), "sign": sign, "pairs": pairs},
        }
