"""Fits predictors to labels, with the errors that their intervals need; and loads saved ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ngbkit.errors import UsageError
from ngbkit.predict import predictor_storage
from ngbkit.predict.kinds import find_kind
from ngbkit.predict.kinds.base import Progress, log_progress
from ngbkit.predict.labels.labelling import RuntimeName
from ngbkit.predict.labels.loading import load_labels
from ngbkit.predict.predictor import Predictor
from ngbkit.predict.scoring.extrapolation import Extrapolation
from ngbkit.predict.scoring.intervals import Calibration
from ngbkit.predict.scoring.kind_choice import AUTO, choose_kind
from ngbkit.predict.scoring.splits import FOLDS, split_folds

# The fewest networks that a predictor is fitted to, and the most folds.
_FEWEST, _MOST_FOLDS = 4, 1_000


def fit(
    data: Any,
    kind: str = AUTO,
    *,
    runtime: RuntimeName | None = None,
    folds: int = FOLDS,
    seed: int = 0,
    report: Progress | None = None,
    **settings: Any,
) -> Predictor:
    """Fit a predictor to the runtimes of a dataset.

    Parameters
    ----------
    data
        The dataset of a run, or of several by `ngbkit.merge`; `Examples`; the file of either; a CSV or a DataFrame, or
        pairs of a network and its seconds, as for `ngbkit.predict.examples`; or a list of these, which are merged.
    kind
        ``"linear"``, ``"boosting"``, ``"gnn"``, which also learns from `Examples.operator_seconds`, or
        ``"flops"``. Default: the labels choose among the first three: see the notes.
    folds
        The parts of the networks that are left out in turn to learn the errors that intervals need: fitting takes about
        `folds` times as long as without. 0: no intervals, they are infinite.
    seed
        Seed of the folds and the models: the same data, settings and seed give the same predictor.
    runtime
        What a table was measured with, where it has no column for that: see `ngbkit.predict.examples`.
    report
        Called with the share that is complete and a message. Default: a line every ten seconds.
    **settings
        Settings of the kind, such as ``epochs=100``.

    Raises
    ------
    UnknownNameError
        There is no such kind.
    UsageError
        The dataset has no latency or fewer than four networks, or `folds` is invalid.
    MissingDependencyError
        A library is not installed.

    Notes
    -----
    Without a kind, a fifth of the families is left out in turn (of the networks, where there are no families), and the
    cheapest kind is kept whose error on these is that of the best: at most 3 % larger, or 5 % if the difference may be
    noise, being below two standard errors over families. A dearer kind is left after the largest part if it is no
    better there; the graph network, which takes minutes, is tried from 100 networks on. `Predictor.choice` has the
    figures.
    """
    if not isinstance(folds, int) or (folds != 0 and not 2 <= folds <= _MOST_FOLDS):
        raise UsageError(f"invalid {folds=}; expected 0 or an integer from 2 to {_MOST_FOLDS:,}, such as {FOLDS}.")
    report = log_progress() if report is None else report
    examples = load_labels(data, runtime=runtime, report=report)
    networks = len({parent for parent, single in zip(examples.parents, examples.isolated, strict=True) if not single})
    if networks < _FEWEST:
        raise UsageError(
            f"too few networks to fit a predictor: got {networks}; expected at least four, so that some can be held "
            "out. Measure more networks."
        )
    choice = None
    if kind == AUTO:
        if settings:
            raise UsageError(f"unexpected {', '.join(settings)} with kind='auto': settings belong to a kind. Name it.")
        choice = choose_kind(examples, seed, report)
        kind = choice.kind
        report(0.0, str(choice))
    tasks = [(np.arange(len(examples)), np.arange(0))]
    tasks += list(split_folds(examples, min(folds, networks), seed)) if folds else []
    models = []
    errors = np.full(examples.seconds.shape, np.nan)
    fold = np.zeros(len(examples), dtype=np.int64)
    for number, (train, test) in enumerate(tasks):
        model = find_kind(kind)(**settings)

        def report_share(share: float, message: str, number: int = number) -> None:
            report(
                (number + share) / len(tasks), f"fold {number} of {len(tasks) - 1}: {message}" if number else message
            )

        model.fit(examples.take(train), seed=seed, report=report_share)
        models.append(model)
        if len(test):
            with np.errstate(divide="ignore", invalid="ignore"):
                predictions = model.predict([examples.graphs[index] for index in test])
                errors[test] = np.abs(np.log(predictions / examples.seconds[test]))
            fold[test] = number - 1
    tested = np.flatnonzero(~examples.isolated) if folds else np.arange(0)
    _, network = np.unique(np.array(examples.parents, dtype=str)[tested], return_inverse=True)
    calibration = Calibration(
        models=tuple(models[1:]), errors=errors[tested], fold=fold[tested], network=network.astype(np.int64)
    )
    return Predictor(
        model=models[0],
        runtimes=examples.runtimes,
        calibration=calibration,
        lowering=examples.lowering,
        extrapolation=Extrapolation.build(examples, seed, shifts=bool(folds)),
        choice=choice,
    )


def load(path: str | Path) -> Predictor:
    """The predictor that `Predictor.save` wrote.

    Raises
    ------
    UsageError
        The file is missing, damaged or not a predictor, or its layout is unknown to this ngbkit.
    """
    return Predictor(**predictor_storage.load(path))
