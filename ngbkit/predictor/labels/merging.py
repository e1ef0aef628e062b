"""Merges labels of equal graphs: each graph is one example, the spread of its labels is their noise.

Graphs that ngbkit reads as equal and that differ in latency beyond that noise are not what ran; a warning reports them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ngbkit.errors import NgbkitWarning
from ngbkit.predictor.graphs import Graph
from ngbkit.predictor.labels import drift
from ngbkit.predictor.labels.example_set import TEXTS, Examples
from ngbkit.predictor.labels.operator_seconds import merge_profiles
from ngbkit.predictor.labels.rows import Runtime
from ngbkit.predictor.lowering import EXPORT

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

LEAST = 0.03
"""The share by which the latencies of equal graphs may always differ."""

UNKNOWN = 0.1
"""The share by which they may differ where the noise of the labels is unknown."""

_ADVICE = (
    "the graph is not what ran. Pass lowered=True for the operators that a runtime executes, the files that it "
    "optimised, or graphs with the operators that have no effect: ngbkit.predictor.read(path, keep_dead=True)."
)
_ADVICE_LOWERED = (
    "what lowered graphs lack differs, such as memory layouts and kernels, or a label is wrong. Measure both again."
)

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


def merge_labels(labels: Sequence[Label], runtimes: Sequence[Runtime]) -> Examples:
    """Merge the labels of equal graphs to one example, with the texts of the first and the geometric mean of all."""
    firsts: dict[str, Label] = {}
    for label in labels:
        firsts.setdefault(label.graph.digest, label)
    digests = {digest: index for index, digest in enumerate(firsts)}
    graph = np.array([digests[label.graph.digest] for label in labels])
    devices = list(dict.fromkeys(device for device, _ in runtimes))
    device = np.array([devices.index(name) for name, _ in runtimes])
    run = np.array([label.run for label in labels])
    logs = np.log(np.stack([label.seconds for label in labels]))
    corrected = drift.correct(logs, graph, run, device)
    means, spread = drift.compute_means(corrected, graph)
    blank = np.full(len(runtimes), np.nan)
    errors = np.stack([blank if label.errors is None else label.errors for label in labels])
    warn_of_mismatches(find_mismatches(labels, corrected, errors, graph, runtimes), labels[0].graph.lowering)
    unique = list(firsts.values())
    return Examples(
        graphs=tuple(label.graph for label in unique),
        seconds=np.exp(means),
        errors=np.where(np.isfinite(spread), spread, _combine_errors(errors, graph, len(unique))),
        runtimes=tuple(runtimes),
        operator_seconds=merge_label_profiles(labels, graph, np.exp(means)),
        **{name: tuple(label.texts[name] for label in unique) for name in TEXTS},
    )


def merge_label_profiles(labels: Sequence[Label], graph: Indices, seconds: Floats) -> tuple[Floats, ...] | None:
    """Return the seconds of the operators of each distinct graph, whose label is a row of `seconds`."""
    graphs, profiles = [label.graph for label in labels], [label.profile for label in labels]
    return merge_profiles(graphs, profiles, graph.tolist(), seconds)


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
    """Warn of the largest mismatch, and of their number; `lowering` is that of the graphs."""
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


def _combine_errors(errors: Floats, graph: Indices, graphs: int) -> Floats:
    """Return the stated error of the mean label of each graph; NaN where none is stated."""
    squares, count = np.zeros((graphs, errors.shape[1])), np.zeros((graphs, errors.shape[1]))
    np.add.at(squares, graph, np.nan_to_num(errors) ** 2)
    np.add.at(count, graph, np.isfinite(errors))
    return np.where(count > 0, np.sqrt(squares) / np.maximum(count, 1), np.nan)
