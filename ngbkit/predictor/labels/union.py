"""Merges sets of examples to one: networks of several files, which may share devices, compilers and networks."""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ngbkit.errors import UsageError
from ngbkit.predictor.labels import drift
from ngbkit.predictor.labels.example_set import TEXTS, Examples
from ngbkit.predictor.labels.merging import (
    UNKNOWN,
    Label,
    find_mismatches,
    merge_label_profiles,
    warn_of_mismatches,
)

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

# The smallest standard error that a label is weighed by: a label that states none at all would outweigh all others.
_LEAST_ERROR = 1e-4


def merge(*sets: Examples) -> Examples:
    """The examples of several sets, such as those of two files.

    Parameters
    ----------
    *sets
        Examples, of `ngbkit.predictor.examples`, `collect` or `load_examples`. Their runtimes may differ.

    Returns
    -------
    Examples
        Every graph once, with a column for each runtime of any set; NaN where it was not measured.

    Raises
    ------
    UsageError
        An argument is not of this form; or the graphs of one set are as exported, and those of another lowered.

    Warns
    -----
    NgbkitWarning
        Two networks have the same graph and differ in latency by more than noise.

    Notes
    -----
    Sets that share graphs are corrected for the drift of a device between them, towards the first set; measure one or
    two networks of the first set again in each later one. Sets that share none are taken as they are.

    The label of a shared graph is the mean of its labels, weighed by their inverse variances (10 % where an error is
    unknown); a measurement that two sets have in common counts once. Its error is that of the mean; where the labels
    differ by more than their errors, it is larger by the Birge ratio (Birge, Physical Review 40, 1932).
    """
    for examples in sets:
        if not isinstance(examples, Examples):
            raise UsageError(
                f"invalid examples: got a {type(examples).__name__}; expected Examples, such as "
                "ngbkit.predictor.load_examples(path), examples(…) and collect(…) return."
            )
    if not sets:
        raise UsageError("no examples to merge; expected one set or more.")
    runtimes = list(dict.fromkeys(chain.from_iterable(examples.runtimes for examples in sets)))
    labels = [label for run, examples in enumerate(sets) for label in _list_labels(examples, run, runtimes)]
    firsts: dict[str, Label] = {}
    for label in labels:
        firsts.setdefault(label.graph.digest, label)
    places = {digest: place for place, digest in enumerate(firsts)}
    graph = np.array([places[label.graph.digest] for label in labels], dtype=np.intp)
    run = np.array([label.run for label in labels], dtype=np.intp)
    devices = list(dict.fromkeys(device for device, _ in runtimes))
    device = np.array([devices.index(name) for name, _ in runtimes], dtype=np.intp)
    logs = np.log(np.stack([label.seconds for label in labels]))
    errors = np.stack([np.full(len(runtimes), np.nan) if label.errors is None else label.errors for label in labels])
    corrected = _keep_first(logs, drift.correct(logs, graph, run, device), run, device)
    warn_of_mismatches(find_mismatches(labels, corrected, errors, graph, runtimes), labels[0].graph.lowering)
    distinct = _find_distinct(labels)
    means, combined = _combine(corrected[distinct], errors[distinct], graph[distinct])
    unique = list(firsts.values())
    return Examples(
        graphs=tuple(label.graph for label in unique),
        seconds=np.exp(means),
        errors=combined,
        runtimes=tuple(runtimes),
        operator_seconds=merge_label_profiles(labels, graph, np.exp(means)),
        **{name: tuple(label.texts[name] for label in unique) for name in TEXTS},
    )


def _list_labels(examples: Examples, run: int, runtimes: list[tuple[str, str]]) -> list[Label]:
    """Return a label per example, with a column for each of all `runtimes`."""
    columns = [runtimes.index(runtime) for runtime in examples.runtimes]
    seconds = np.full((len(examples), len(runtimes)), np.nan)
    seconds[:, columns] = examples.seconds
    errors = np.full(seconds.shape, np.nan)
    if examples.errors is not None:
        errors[:, columns] = examples.errors
    profiles: list[Floats | None] = [None] * len(examples)
    for place, values in enumerate(examples.operator_seconds or ()):
        profile = np.full((len(values), len(runtimes)), np.nan)
        profile[:, columns] = values
        profiles[place] = profile
    return [
        Label(
            graph=graph,
            seconds=seconds[place],
            errors=errors[place],
            profile=profiles[place],
            texts={name: getattr(examples, name)[place] for name in TEXTS},
            run=run,
        )
        for place, graph in enumerate(examples.graphs)
    ]


def _find_distinct(labels: list[Label]) -> Indices:
    """Return the places of labels without those that are equal to an earlier one: the same measurement in two sets."""
    measurements: dict[tuple[str, bytes], int] = {}
    for place, label in enumerate(labels):
        measurements.setdefault((label.graph.digest, label.seconds.tobytes()), place)
    return np.array(list(measurements.values()), dtype=np.intp)


def _keep_first(logs: Floats, corrected: Floats, run: Indices, device: Indices) -> Floats:
    """Return the corrected logarithms, shifted so that the first run of each device stays as it was.

    A runtime that the first run lacks is shifted as the others of its device are in the mean.
    """
    shift = corrected - logs
    shifted = corrected.copy()
    for index in range(int(device.max()) + 1):
        columns = np.flatnonzero(device == index)
        rows = np.flatnonzero(np.isfinite(shift[:, columns]).any(axis=1))
        if not len(rows):
            continue
        first = shift[np.ix_(rows[run[rows] == run[rows].min()], columns)]
        present = np.isfinite(first)
        of_runtime = np.where(present, first, 0.0).sum(axis=0) / np.maximum(present.sum(axis=0), 1)
        in_first = present.any(axis=0)
        shifted[:, columns] -= np.where(in_first, of_runtime, of_runtime[in_first].mean())
    return shifted


def _combine(logs: Floats, errors: Floats, graph: Indices) -> tuple[Floats, Floats]:
    """Return the weighted mean of the labels of each graph, and its standard error."""
    shape = (int(graph.max()) + 1, logs.shape[1])
    finite = np.isfinite(logs)
    weights = np.where(finite, 1 / np.maximum(np.where(np.isfinite(errors), errors, UNKNOWN), _LEAST_ERROR) ** 2, 0.0)
    total, count, summed, squares = (np.zeros(shape) for _ in range(4))
    np.add.at(total, graph, weights)
    np.add.at(count, graph, finite)
    np.add.at(summed, graph, weights * np.where(finite, logs, 0.0))
    means = np.where(count > 0, summed / np.where(count > 0, total, 1), np.nan)
    np.add.at(squares, graph, weights * np.where(finite, logs - means[graph], 0.0) ** 2)
    birge = np.sqrt(np.maximum(1.0, squares / np.maximum(count - 1, 1)))
    stated = np.zeros(shape, dtype=bool)
    np.logical_or.at(stated, graph, finite & np.isfinite(errors))
    _, spread = drift.compute_means(logs, graph)
    return means, np.where(stated, birge / np.sqrt(np.where(count > 0, total, 1)), spread)
