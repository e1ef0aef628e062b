"""Compares kinds of models, in one table, by how well they predict networks that they were not fitted to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.dataset.storage import Data
from ngbkit.predictor import scores
from ngbkit.predictor.collection import collect
from ngbkit.predictor.example_set import Examples
from ngbkit.predictor.kinds import find_kind
from ngbkit.predictor.kinds.base import Floats, Progress, ignore_progress
from ngbkit.predictor.splits import Split, split_examples

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
    progress: Progress = ignore_progress,
) -> pd.DataFrame:
    """Fit each kind of model on a part of the networks and score its predictions of the others, per seed and fold.

    Parameters
    ----------
    data
        As for `ngbkit.predictor.fit`.
    kinds
        Kinds of models.
    split
        What each fold leaves out: see `ngbkit.predictor.splits.split_examples`.
    seeds
        Seeds of the split and of the model.
    settings
        Settings of the models, by kind.
    progress
        Called with the share that is complete and a message.

    Returns
    -------
    pandas.DataFrame
        A row per kind, runtime, seed and fold: ``kind, device, compiler, split, seed, left_out``; ``graphs``, the
        number of predicted networks; ``mape`` and ``within_10`` (shares), ``tau``; ``sign``, the share of pairs of
        variants of one network, significantly more than 3 % apart, that are predicted in the right order; and
        ``pairs``, the number of such pairs.

    Raises
    ------
    UnknownNameError, UsageError
        As `fit` and `split_examples`.
    """
    import pandas as pd

    examples = data if isinstance(data, Examples) else collect(data)
    tasks = [(kind, seed) for kind in kinds for seed in seeds]
    rows: list[dict[str, Any]] = []
    for number, (kind, seed) in enumerate(tasks):
        folds = list(split_examples(examples, split, seed))
        for fold, (left_out, train, test) in enumerate(folds):
            model = find_kind(kind)(**(settings or {}).get(kind, {}))

            def report_share(
                share: float, message: str, start: float = number + fold / len(folds), count: int = len(folds)
            ) -> None:
                progress((start + share / count) / len(tasks), f"{kind}, {left_out}: {message}")  # noqa: B023  called now

            model.fit(examples.take(train), seed=seed, progress=report_share)
            test_examples = examples.take(test)
            labels = {"kind": kind, "split": split, "seed": seed, "left_out": left_out}
            rows += [labels | row for row in _score(model.predict(test_examples.graphs), test_examples)]
    first = ["kind", "device", "compiler", "split", "seed", "left_out"]
    frame = pd.DataFrame(rows)
    return frame[[*first, *(name for name in frame.columns if name not in first)]]


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """The mean of each score by kind and runtime, weighted by the graphs of each fold (signs by their pairs)."""
    keys = ["split", "kind", "device", "compiler"]
    weights = {"mape": "graphs", "within_10": "graphs", "tau": "graphs", "sign": "pairs"}
    parts = {}
    for score, weight in weights.items():
        scored = table[table[score].notna() & (table[weight] > 0)]
        summed = (
            scored.assign(product=scored[score] * scored[weight]).groupby(keys, sort=False)[["product", weight]].sum()
        )
        parts[score] = summed["product"] / summed[weight]
    frame = table[keys].drop_duplicates().set_index(keys)
    return frame.assign(**parts, seeds=table.groupby(keys, sort=False)["seed"].nunique())


def _score(predicted: Floats, examples: Examples) -> Iterable[dict[str, Any]]:
    variant = np.array([bool(rule) for rule in examples.rules])
    for column, (device, compiler) in enumerate(examples.runtimes):
        predictions, measurements = predicted[:, column], examples.seconds[:, column]
        finite = np.flatnonzero(np.isfinite(predictions) & np.isfinite(measurements))
        if not len(finite):
            continue
        predictions, measurements = predictions[finite], measurements[finite]
        # The error of an original network is that of its latency, not of a gain over it.
        errors = None if examples.errors is None else np.where(variant, examples.errors[:, column], 0.0)[finite]
        parents = [examples.parents[index] for index in finite]
        sign, pairs = scores.sign_accuracy(predictions, measurements, parents, errors=errors)
        yield {
            **{
                "device": device,
                "compiler": compiler,
                "graphs": len(finite),
                "mape": scores.mape(predictions, measurements),
            },
            **{"within_10": scores.within(predictions, measurements), "tau": scores.tau(predictions, measurements)},
            **{"sign": sign, "pairs": pairs},
        }
