"""Chooses whether operators that affect no output are part of the graphs, by networks that differ in these alone.

Some runtimes drop such operators, others execute them. Prices fitted with them and without tell which graphs are what
ran: those that predict networks better that were left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ngbkit.errors import NgbkitWarning
from ngbkit.predict.graphs import Graph
from ngbkit.predict.kinds.additive import Linear
from ngbkit.predict.kinds.base import ignore_progress
from ngbkit.predict.labels.example_set import Examples
from ngbkit.predict.labels.merging import Label, count_mismatches, merge_labels
from ngbkit.predict.labels.rows import Runtime
from ngbkit.user_text import format_share

Floats = NDArray[np.float64]

# The parts that are left out in turn.
_FOLDS = 5


def choose_graphs(
    labels: list[Label], build_complete: Callable[[], list[Label]], runtimes: Sequence[Runtime]
) -> list[Label]:
    """Return the labels, or those with complete graphs that `build_complete` returns, and warn of what decided.

    They are the same unless networks with equal graphs have operators of no effect and different latencies.
    """
    if not any(graph.dropped for graph in {id(label.graph): label.graph for label in labels}.values()):
        return labels
    count = count_mismatches(labels, runtimes)
    if not count:
        return labels
    complete = build_complete()
    if len({label.graph.lowering for label in complete}) > 1 or not count_mismatches(complete, runtimes) < count:
        return labels
    pruned = {full.graph.digest: label.graph for full, label in zip(complete, labels, strict=True)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NgbkitWarning)
        examples = merge_labels(complete, runtimes)
    with_all, without = score_graphs(examples, [pruned[graph.digest] for graph in examples.graphs])
    is_complete = with_all < without
    shares = [format_share(error, ".1f") for error in (with_all, without)]
    warnings.warn(
        f"{count} pairs of networks have different latencies, and differ in operators of no effect alone, if at all: "
        f"errors on networks that were left out are {shares[0]} with these operators, and {shares[1]} without. They "
        f"are {'part of the graphs' if is_complete else 'left out'}; keep_dead={not is_complete} (--keep-dead "
        f"{'no' if is_complete else 'yes'}) decides otherwise.",
        NgbkitWarning,
        stacklevel=5,
    )
    return complete if is_complete else labels


def score_graphs(examples: Examples, pruned: Sequence[Graph]) -> tuple[float, float]:
    """Return the mean errors of prices on networks left out, for the graphs of examples and for others of the same."""
    _, group = np.unique([graph.digest for graph in pruned], return_inverse=True)
    fold = np.random.default_rng(0).permutation(int(group.max()) + 1)[group] % _FOLDS
    graphs = zip(examples.graphs, pruned, strict=True)
    # Each keeps its digest, so that equal graphs with different latencies are examples of their own.
    others = tuple(replace(graph, digest=full.digest, lowering=full.lowering) for full, graph in graphs)
    first, second = (_score(each, fold) for each in (examples, replace(examples, graphs=others)))
    scored = np.isfinite(first) & np.isfinite(second)
    return float(first[scored].mean()), float(second[scored].mean())


def _score(examples: Examples, fold: NDArray[np.int64]) -> Floats:
    """Return the relative errors on the networks of each fold, of prices that are fitted to the others."""
    errors = np.full(examples.seconds.shape, np.nan)
    for number in np.unique(fold):
        model, test = Linear(), np.flatnonzero(fold == number)
        model.fit(examples.take(np.flatnonzero(fold != number)), seed=0, report=ignore_progress)
        predicted = model.predict([examples.graphs[index] for index in test])
        errors[test] = np.abs(predicted / examples.seconds[test] - 1)
    return errors
