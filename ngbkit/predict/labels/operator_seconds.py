"""The seconds of each operator inside its network, which a runtime's profiler told, merged and stored with the labels.

Profiles of one network differ in their sum, as its latencies do. What they share is how the sum is spread over the
operators: so the shares are averaged, and scaled to the label of the network.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ngbkit.errors import UsageError
from ngbkit.predict.graphs import Graph
from ngbkit.predict.labels.rows import Runtime

Floats = NDArray[np.float64]


def check_profiled(runtimes: Sequence[Runtime], *, lowered: bool) -> None:
    """Check that operators can be profiled here for labels of these runtimes; UsageError if not."""
    if not lowered:
        raise UsageError("invalid profiled=True without lowered=True: a profiler times the operators that it executes.")
    if len(runtimes) != 1:
        listed = ", ".join(f"{compiler} on {device}" for device, compiler in runtimes)
        raise UsageError(
            f"operators are profiled on this machine, in one runtime, and these labels are of {listed}. Select one, "
            "such as ds.sel(device=['cpu'], compiler=['onnxruntime'])."
        )


def to_column(seconds: Floats | None) -> Floats | None:
    """Return the seconds of the operators on one runtime as a table."""
    return None if seconds is None else seconds[:, None]


def merge_profiles(
    graphs: Sequence[Graph], profiles: Sequence[Floats | None], places: Sequence[int], seconds: Floats
) -> tuple[Floats, ...] | None:
    """Return the seconds of the operators of each distinct graph, or None where no profile is.

    `profiles`, each of shape ``(operators, runtimes)``, and `places`, the rows in `seconds`, are by label; `seconds` by
    distinct graph. A profile of an equal graph with another order of operators is left out.
    """
    if all(profile is None for profile in profiles):
        return None
    firsts: dict[int, Graph] = {}
    shares: dict[int, list[Floats]] = {}
    for graph, profile, place in zip(graphs, profiles, places, strict=True):
        first = firsts.setdefault(place, graph)
        if profile is not None and _have_equal_order(first, graph):
            with np.errstate(divide="ignore", invalid="ignore"):  # a runtime without a profile
                shares.setdefault(place, []).append(profile / np.nansum(profile, axis=0))
    merged = []
    for place in range(len(seconds)):
        blank = np.full((len(firsts[place].operators), seconds.shape[1]), np.nan)
        merged.append(_average(shares.get(place, [blank])) * seconds[place])
    return tuple(merged)


def _have_equal_order(first: Graph, second: Graph) -> bool:
    if first is second:
        return True
    digests = ([operator.digest for operator in graph.operators] for graph in (first, second))
    return next(digests) == next(digests)


def _average(shares: Sequence[Floats]) -> Floats:
    """Return the mean of the finite shares of each operator."""
    stacked = np.stack(shares)
    finite = np.isfinite(stacked)
    count = finite.sum(axis=0)
    return np.where(count > 0, np.where(finite, stacked, 0.0).sum(axis=0) / np.maximum(count, 1), np.nan)


def join(profiles: Sequence[Floats]) -> Floats:
    """Return the operators of all graphs as rows of one table."""
    return np.concatenate(profiles) if profiles else np.empty((0, 0))


def split(table: Floats, graphs: Sequence[Graph]) -> tuple[Floats, ...]:
    """Return the table of each graph; ValueError if the rows are not as many as the operators of all."""
    ends = np.cumsum([len(graph.operators) for graph in graphs])
    if len(table) != (ends[-1] if len(ends) else 0):
        raise ValueError(f"{len(table)} operators with seconds; expected those of {len(graphs)} graphs")
    return tuple(np.split(table, ends[:-1])) if len(ends) else ()
