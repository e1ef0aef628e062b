"""Merges labels: of equal graphs, and of several sets. Each graph is one example.

Graphs that ngbkit reads as equal and that differ in latency beyond the noise of their labels are not what ran; a
warning reports them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from ngbkit.errors import NgbkitWarning, UsageError
from ngbkit.predict.graphs import Graph
from ngbkit.predict.labels import drift_correction
from ngbkit.predict.labels.example_set import TEXTS, Examples
from ngbkit.predict.labels.rows import Runtime
from ngbkit.predict.lowering import EXPORT

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

LEAST = 0.03
"""The share by which the latencies of equal graphs may always differ."""

UNKNOWN = 0.1
"""The share by which they may differ where the noise of the labels is unknown."""

_ADVICE = (
    "the graph is not what ran. Pass lowered=True for the operators that a runtime executes, or name the "
    "files that it optimised."
)
_ADVICE_LOWERED = (
    "what lowered graphs lack differs, such as memory layouts and kernels, or a label is wrong. Measure both again."
)

# The factor by which repeated measurements of one network may differ: beyond it, it is a mistake and no noise.
_REPEATED = 2.0
# The smallest standard error that a label is weighed by: a label that states none at all would outweigh all others.
_LEAST_ERROR = 1e-4
# Standard errors within which two labels of one graph agree: many pairs are compared.
_ERRORS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """The latencies of a network on each runtime, measured once, with their standard errors if these are known."""

    graph: Graph
    seconds: Floats
    texts: Mapping[str, str]
    run: int = 0
    #: Standard errors of the logarithms of `seconds`.
    errors: Floats | None = None
    #: Seconds of each operator inside the network, of shape ``(operators, runtimes)``.
    profile: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Two networks with the same graph whose latencies on a runtime differ by more than noise."""

    share: float
    names: tuple[str, str]
    runtime: Runtime


def merge(*sets: Examples) -> Examples:
    """The examples of several sets, such as two files.

    Parameters
    ----------
    *sets
        Examples, of `ngbkit.predict.examples`, `collect` or `load_examples`. Their runtimes may differ.

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
                "ngbkit.predict.load_examples(path), examples(…) and collect(…) return."
            )
    if not sets:
        raise UsageError("no examples to merge; expected one set or more.")
    runtimes = list(dict.fromkeys(chain.from_iterable(examples.runtimes for examples in sets)))
    labels = [label for run, examples in enumerate(sets) for label in _list_labels(examples, run, runtimes)]
    return merge_labels(labels, runtimes, keep_first=True)


def merge_labels(labels: Sequence[Label], runtimes: Sequence[Runtime], *, keep_first: bool = False) -> Examples:
    """Merge the labels of equal graphs to one example, with the texts of the first and the weighted mean of all."""
    firsts: dict[str, Label] = {}
    for label in labels:
        firsts.setdefault(label.graph.digest, label)
    digests = {digest: index for index, digest in enumerate(firsts)}
    graph = np.array([digests[label.graph.digest] for label in labels], dtype=np.intp)
    devices = list(dict.fromkeys(device for device, _ in runtimes))
    device = np.array([devices.index(name) for name, _ in runtimes], dtype=np.intp)
    run = np.array([label.run for label in labels], dtype=np.intp)
    logs, blank = np.log(np.stack([label.seconds for label in labels])), np.full(len(runtimes), np.nan)
    errors = np.stack([blank if label.errors is None else label.errors for label in labels])
    corrected = drift_correction.correct(logs, graph, run, device)
    if keep_first:
        corrected = _keep_first(logs, corrected, run, device)
    warn_of_mismatches(find_mismatches(labels, corrected, errors, graph, runtimes), labels[0].graph.lowering)
    _warn_of_spread(labels, corrected, graph, runtimes)
    distinct = _find_distinct(labels)
    means, combined = _combine(corrected[distinct], errors[distinct], graph[distinct])
    seconds = np.exp(means)
    unique = list(firsts.values())
    graphs, profiles = [label.graph for label in labels], [label.profile for label in labels]
    return Examples(
        graphs=tuple(label.graph for label in unique),
        seconds=seconds,
        errors=combined,
        runtimes=tuple(runtimes),
        operator_seconds=merge_profiles(graphs, profiles, graph.tolist(), seconds),
        **{name: tuple(label.texts[name] for label in unique) for name in TEXTS},
    )


def merge_profiles(
    graphs: Sequence[Graph], profiles: Sequence[Floats | None], places: Sequence[int], seconds: Floats
) -> tuple[Floats, ...] | None:
    """Return the seconds of the operators of each distinct graph, scaled to its `seconds`; None if no profile is.

    The first profile counts; that of an equal graph with another order of operators is left out.
    """
    if all(profile is None for profile in profiles):
        return None
    firsts: dict[int, Graph] = {}
    shares: dict[int, Floats] = {}
    with np.errstate(divide="ignore", invalid="ignore"):  # a runtime without a profile
        for graph, profile, place in zip(graphs, profiles, places, strict=True):
            first = firsts.setdefault(place, graph)
            share = shares.setdefault(place, np.full((len(first.operators), seconds.shape[1]), np.nan))
            if profile is not None and [each.digest for each in first.operators] == [
                each.digest for each in graph.operators
            ]:
                missing = np.isnan(share).all(axis=0)
                shares[place] = np.where(missing, profile / np.nansum(profile, axis=0), share)
    return tuple(shares[place] * seconds[place] for place in range(len(seconds)))


def find_mismatches(
    labels: Sequence[Label], logs: Floats, errors: Floats, graph: Indices, runtimes: Sequence[Runtime]
) -> list[Mismatch]:
    """Find pairs of differently named networks with one graph whose latencies differ beyond noise, largest first.

    The noise is that of labels of one name, or of `errors`; without either, a difference of `UNKNOWN` is accepted.
    """
    by_name: dict[tuple[int, str], list[int]] = {}
    for index, label in enumerate(labels):
        by_name.setdefault((int(graph[index]), label.texts["names"]), []).append(index)
    names: dict[int, list[tuple[str, list[int]]]] = {}
    for (number, name), indices in by_name.items():
        names.setdefault(number, []).append((name, indices))
    mismatches: list[Mismatch] = []
    for column, runtime in enumerate(runtimes):
        noise = _estimate_noise(logs[:, column], list(by_name.values()))
        for group in names.values():
            if len(group) > 1:
                mismatches += _compare(group, logs[:, column], errors[:, column], noise, runtime)
    return sorted(mismatches, key=lambda mismatch: -mismatch.share)


def warn_of_mismatches(mismatches: Sequence[Mismatch], lowering: str = EXPORT) -> None:
    """Warn of the largest mismatch, and of their number; `lowering` belongs to the graphs."""
    if not mismatches:
        return
    first, second = mismatches[0].names
    device, compiler = mismatches[0].runtime
    more = f" ({len(mismatches)} such pairs in all.)" if len(mismatches) > 1 else ""
    warnings.warn(
        f"{first} and {second} have the same graph as ngbkit reads them, but their latencies on {compiler} of {device} "
        f"differ by {mismatches[0].share:.0%}: {_ADVICE_LOWERED if lowering else _ADVICE}{more} Their geometric mean "
        "is the label of both.",
        NgbkitWarning,
        stacklevel=4,
    )


def _warn_of_spread(labels: Sequence[Label], logs: Floats, graph: Indices, runtimes: Sequence[Runtime]) -> None:
    """Warn of the network whose repeated measurements on a runtime differ most, if no noise explains that."""
    shape = (int(graph.max()) + 1, logs.shape[1])
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    finite = np.isfinite(logs)
    np.minimum.at(low, graph, np.where(finite, logs, np.inf))
    np.maximum.at(high, graph, np.where(finite, logs, -np.inf))
    spread = high - low
    wide = spread > np.log(_REPEATED)
    if not wide.any():
        return
    place, column = (int(index) for index in np.unravel_index(int(np.argmax(spread)), shape))
    name, (device, compiler) = labels[int(np.argmax(graph == place))].texts["names"], runtimes[column]
    more = f" ({int(wide.sum())} such labels in all.)" if wide.sum() > 1 else ""
    least, most = (1e3 * float(np.exp(logs_[place, column])) for logs_ in (low, high))
    warnings.warn(
        f"{name} has latencies from {least:.3g} to {most:.3g} ms on {compiler} of {device}: no noise explains a factor "
        f"of {most / least:.3g}, so that units or networks may be mixed up. Their geometric mean is its label; remove "
        f"the wrong ones.{more}",
        NgbkitWarning,
        stacklevel=4,
    )


def _compare(
    group: Sequence[tuple[str, list[int]]], logs: Floats, errors: Floats, noise: float, runtime: Runtime
) -> Iterator[Mismatch]:
    means = {}
    for name, indices in group:
        finite = [index for index in indices if np.isfinite(logs[index])]
        if finite:
            stated = float(np.sqrt(np.sum(errors[finite] ** 2))) / len(finite)
            error = stated if np.isfinite(stated) else noise / np.sqrt(len(finite))
            means[name] = float(np.mean(logs[finite])), error
    for first, second in combinations(means, 2):
        difference = abs(means[first][0] - means[second][0])
        error = float(np.hypot(means[first][1], means[second][1]))
        allowance = max(np.log1p(LEAST), _ERRORS * error) if np.isfinite(error) else np.log1p(UNKNOWN)
        if difference > allowance:
            yield Mismatch(share=float(np.expm1(difference)), names=(first, second), runtime=runtime)


def _estimate_noise(logs: Floats, groups: Sequence[list[int]]) -> float:
    """Return the standard deviation of labels of one name and graph; NaN if each was measured once."""
    squares, freedom = 0.0, 0
    for group in groups:
        values = logs[group][np.isfinite(logs[group])]
        if len(values) > 1:
            squares += float(np.sum((values - values.mean()) ** 2))
            freedom += len(values) - 1
    return float(np.sqrt(squares / freedom)) if freedom else float("nan")


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


def _find_distinct(labels: Sequence[Label]) -> Indices:
    """Return the places of labels without those that an earlier run has too: the same measurement in two sets."""
    runs: dict[tuple[str, bytes], int] = {}
    keys = [(label.graph.digest, label.seconds.tobytes()) for label in labels]
    places = [place for place, key in enumerate(keys) if runs.setdefault(key, labels[place].run) == labels[place].run]
    return np.array(places, dtype=np.intp)


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
    _, spread = drift_correction.compute_means(logs, graph)
    return means, np.where(stated, birge / np.sqrt(np.where(count > 0, total, 1)), spread)
