"""Compares kinds of models, in one table, by how well they predict networks that they were not fitted to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.errors import UsageError
from ngbkit.predict.kinds import Adapted, find_kind
from ngbkit.predict.kinds.base import Floats, Model, Progress, log_progress
from ngbkit.predict.labels.example_set import Examples
from ngbkit.predict.labels.loading import load_labels
from ngbkit.predict.scoring import scores
from ngbkit.predict.scoring.splits import Indices, Split, split_examples

if TYPE_CHECKING:
    import pandas as pd

BASELINES = ("flops", "linear", "boosting")


def evaluate(
    data: Any,
    kinds: Iterable[str] = (*BASELINES, "gnn"),
    *,
    split: Split = "random",
    seeds: Iterable[int] = (0, 1, 2),
    adapt: int = 0,
    max_error: float | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    report: Progress | None = None,
) -> pd.DataFrame:
    """Fit each kind of model on a part of the networks and score its predictions of the others, per seed and fold.

    Parameters
    ----------
    data
        As for `ngbkit.predict.fit`.
    kinds
        Kinds of models.
    split
        What each fold leaves out: see `ngbkit.predict.scoring.splits.split_examples`.
    seeds
        Seeds of the split and of the model.
    adapt
        With ``split="family"``: networks of each left-out family that the model is adapted to, at most half of them,
        before it predicts the others: see `Predictor.adapt`.
    max_error
        Models are fitted to networks whose label has a larger standard error (0.05 is 5 %), but not scored on them.
        Default: all are scored.
    settings
        Settings of the models, by kind.
    report
        Called with the share that is complete and a message. Default: a line every ten seconds.

    Returns
    -------
    pandas.DataFrame
        A row per kind, runtime, seed and fold: ``kind, device, compiler, split, seed, left_out``; ``graphs``, the
        number of predicted networks; ``mape``, ``median_error``, ``within_5`` and ``within_10`` (shares); ``tau``
        (Kendall's) and ``rho`` (Spearman's); ``floor``, the expected MAPE of a perfect predictor given the noise of the
        labels (`ngbkit.predict.scoring.scores.noise_floor`), and ``repeated_mape``, both of the ``repeated`` original
        networks whose noise several runs show, and ``ratio``, the second over the first; ``sign``, the share of pairs
        of variants of one network, more than 3 % apart beyond the noise of their labels, predicted in the right
        order; and ``pairs``, the number of such pairs.

    Raises
    ------
    UnknownNameError, UsageError
        As `fit` and `split_examples`; or `adapt` is not for this split, or the kinds predict nothing.
    """
    import pandas as pd

    if adapt and (split != "family" or adapt < 0):
        raise UsageError(f"invalid {adapt=} with {split=}; expected a number of networks, with split='family'.")
    check_max_error(max_error)

    report_all = log_progress() if report is None else report
    examples = load_labels(data, report=report_all)
    tasks = [(kind, seed) for kind in kinds for seed in seeds]
    rows: list[dict[str, Any]] = []
    for number, (kind, seed) in enumerate(tasks):
        folds = list(split_examples(examples, split, seed))
        for fold, (left_out, train, test) in enumerate(folds):
            model = find_kind(kind)(**(settings or {}).get(kind, {}))

            def report_share(
                share: float, message: str, start: float = number + fold / len(folds), count: int = len(folds)
            ) -> None:
                report_all((start + share / count) / len(tasks), f"{kind}, {left_out}: {message}")  # noqa: B023  called now

            model.fit(examples.take(train), seed=seed, report=report_share)
            test_examples = drop_noisy(examples.take(test), max_error)
            labels = {"kind": kind, "split": split, "seed": seed, "left_out": left_out}
            predicted, scored = predict_adapted(model, test_examples, adapt, seed)
            rows += [labels | row for row in score_predictions(predicted[scored], test_examples.take(scored))]
    if not rows:
        raise UsageError(
            f"no score: {', '.join(dict(tasks))} predicts none of these networks. Measure more networks of a runtime."
        )
    first = ["kind", "device", "compiler", "split", "seed", "left_out"]
    frame = pd.DataFrame(rows)
    return frame[[*first, *(name for name in frame.columns if name not in first)]]


def check_max_error(max_error: float | None) -> None:
    """Raise a UsageError unless it is None or a share above 0."""
    if max_error is not None and not 0 < max_error < math.inf:
        raise UsageError(f"invalid {max_error=}; expected a share above 0, such as 0.05 for 5 %.")


def drop_noisy(examples: Examples, max_error: float | None) -> Examples:
    """Return the examples without the labels of original networks whose standard error is larger."""
    if max_error is None or examples.errors is None:
        return examples
    original = np.array([not rule for rule in examples.rules], dtype=bool)[:, None]
    noisy = original & (examples.errors > max_error)  # an unknown error is not
    return replace(examples, seconds=np.where(noisy, np.nan, examples.seconds))


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """The mean of each score by kind and runtime, weighted by the graphs of each fold (signs by their pairs).

    ``ratio`` is that of the mean errors, and ``pairs`` the mean number of pairs of a seed.
    """
    keys = ["split", "kind", "device", "compiler"]
    parts = {}
    for score, weight in _WEIGHTS.items():
        scored = table[table[score].notna() & (table[weight] > 0)]
        summed = (
            scored.assign(product=scored[score] * scored[weight]).groupby(keys, sort=False)[["product", weight]].sum()
        )
        parts[score] = summed["product"] / summed[weight]
    seeds = table.groupby(keys, sort=False)["seed"].nunique()
    pairs = table.groupby(keys, sort=False)["pairs"].sum() / seeds
    frame = table[keys].drop_duplicates().set_index(keys).assign(**parts)
    frame.insert(list(frame).index("floor") + 1, "ratio", frame.pop("repeated_mape") / frame["floor"])
    return frame.assign(pairs=pairs, seeds=seeds)


def predict_adapted(model: Model, examples: Examples, count: int, seed: int) -> tuple[Floats, Indices]:
    """Return predictions, and the indices to score: of each family those that the model was not adapted to."""
    predicted = model.predict(examples.graphs)
    if not count:
        return predicted, np.arange(len(examples))
    generator = np.random.default_rng(seed)
    families, parents = (np.array(texts, dtype=object) for texts in (examples.families, examples.parents))
    scored = []
    for family in sorted(set(families)):
        members = np.flatnonzero(families == family)
        names = sorted(set(parents[members]))
        chosen = generator.permutation(names)[: min(count, len(names) // 2)]
        is_chosen = np.isin(parents[members], chosen)
        if is_chosen.any():
            others = members[~is_chosen]
            adapted = Adapted.build(model, examples.take(members[is_chosen]))
            predicted[others] = adapted.predict([examples.graphs[index] for index in others])
        scored += members[~is_chosen].tolist()
    return predicted, np.array(sorted(scored), dtype=np.intp)


# The scores of a summary, and what each is weighted by.
_WEIGHTS = {
    **dict.fromkeys(("mape", "median_error", "within_5", "within_10", "tau", "rho"), "graphs"),
    **dict.fromkeys(("repeated_mape", "floor"), "repeated"),
    "sign": "pairs",
}


def score_predictions(predicted: Floats, examples: Examples) -> Iterator[dict[str, Any]]:
    """Yield the scores of each runtime that has a latency."""
    variant = np.array([bool(rule) for rule in examples.rules], dtype=bool)
    all_errors = np.full(examples.seconds.shape, np.nan) if examples.errors is None else examples.errors
    for column, (device, compiler) in enumerate(examples.runtimes):
        finite = np.flatnonzero(np.isfinite(predicted[:, column]) & np.isfinite(examples.seconds[:, column]))
        if not len(finite):
            continue
        predictions, measurements = predicted[finite, column], examples.seconds[finite, column]
        errors, parents = all_errors[finite, column], [examples.parents[index] for index in finite]
        # The error of an original network is that of its latency; that of a variant is that of its gain over it.
        gain_errors = None if examples.errors is None else np.where(variant[finite], errors, 0.0)
        sign, pairs = scores.sign_accuracy(predictions, measurements, parents, errors=gain_errors)
        repeated = np.flatnonzero(np.isfinite(errors) & ~variant[finite])
        floor, repeated_mape = (
            scores.noise_floor(errors[repeated]),
            scores.mape(predictions[repeated], measurements[repeated]),
        )
        yield {
            **{"device": device, "compiler": compiler, "graphs": len(finite)},
            **{"mape": scores.mape(predictions, measurements)},
            **{"median_error": scores.median_error(predictions, measurements)},
            **{f"within_{share}": scores.within(predictions, measurements, share / 100) for share in (5, 10)},
            **{"tau": scores.tau(predictions, measurements), "rho": scores.rho(predictions, measurements)},
            **{"repeated": len(repeated), "repeated_mape": repeated_mape, "floor": floor},
            **{"ratio": repeated_mape / floor if floor else float("nan"), "sign": sign, "pairs": pairs},
        }
