"""Corrects latencies for drift between runs: a shared machine is faster in one run than in another.

The logarithm of a latency is modelled as the value of the graph on the runtime, plus the slowdown of the runtime in the
run, plus noise: what slows a machine slows one runtime more than another. Graphs measured in several runs determine the
slowdowns, and these also correct graphs measured in one run: a rewritten network keeps its speed-up over the network
measured beside it. Interleaved trials of one run are compared round by round elsewhere; this module serves learning,
which compares networks across runs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

# Alternations between graphs and runs; each shrinks the remaining error by a constant factor.
_ROUNDS = 200


def correct(logs: Floats, graph: Indices, run: Indices, device: Indices) -> Floats:
    """Return the logarithms of seconds without the slowdown of runs.

    `logs` and the result have a row per measurement and a column per runtime. `graph` and `run` number the graph and
    the run of each row, `device` the device of each column, all from 0. A graph measured in a single run that shares no
    graph with another keeps its mean. A runtime that shares no graph with other runs is corrected as the others of its
    device are in the mean.
    """
    of_device = logs - _find_slowdowns(logs, graph, run, device)[run][:, device]
    runtime = np.arange(logs.shape[1])
    return of_device - _find_slowdowns(of_device, graph, run, runtime)[run]


def _find_slowdowns(logs: Floats, graph: Indices, run: Indices, group: Indices) -> Floats:
    """Return the slowdown of each run, ``(runs, groups)``, 0 where a group shares no graph with other runs."""
    graphs, runs, groups = (int(indices.max()) + 1 for indices in (graph, run, group))
    finite = np.isfinite(logs)
    # Only graphs measured in several runs show how runs differ.
    in_runs = np.zeros((graphs, runs, logs.shape[1]), dtype=bool)
    np.logical_or.at(in_runs, (graph, run), finite)
    ties = finite & (in_runs.sum(axis=1) > 1)[graph]
    in_group = (group[:, None] == np.arange(groups)).astype(float)
    count = np.zeros((runs, groups))
    np.add.at(count, run, ties @ in_group)
    tied = count > 0
    slowdown = np.zeros((runs, groups))
    means = _compute_means(logs, finite, graph, graphs)
    for _ in range(_ROUNDS if tied.any() else 0):
        residual = np.where(ties, logs - slowdown[run][:, group] - means[graph], 0.0)
        summed = np.zeros((runs, groups))
        np.add.at(summed, run, residual @ in_group)
        slowdown += summed / np.maximum(count, 1)
        # Only differences are identifiable: the mean slowdown of the runs is zero.
        slowdown -= np.where(tied, slowdown.sum(axis=0) / np.maximum(tied.sum(axis=0), 1), 0.0)
        means = _compute_means(logs - slowdown[run][:, group], finite, graph, graphs)
    return slowdown


def compute_means(logs: Floats, graph: Indices) -> tuple[Floats, Floats]:
    """Return the mean of the logarithms of each graph, and its standard error; NaN where there are too few."""
    finite = np.isfinite(logs)
    means = _compute_means(logs, finite, graph, int(graph.max()) + 1)
    return means, _compute_errors(logs, finite, graph, means)


def _compute_means(values: Floats, finite: NDArray[np.bool_], graph: Indices, graphs: int) -> Floats:
    """Return the mean of the finite values by graph and runtime, NaN where there is none."""
    summed, count = np.zeros((graphs, values.shape[1])), np.zeros((graphs, values.shape[1]))
    np.add.at(summed, graph, np.where(finite, values, 0.0))
    np.add.at(count, graph, finite)
    return np.where(count > 0, summed / np.maximum(count, 1), np.nan)


def _compute_bias(count: Floats) -> Floats:
    """Return the expected sample deviation of so many normal values over the true one: 0.80 of two, 0.89 of three."""
    from scipy.special import gammaln

    numbers = np.maximum(count, 2)
    return np.asarray(np.sqrt(2 / (numbers - 1)) * np.exp(gammaln(numbers / 2) - gammaln((numbers - 1) / 2)))


def _compute_errors(values: Floats, finite: NDArray[np.bool_], graph: Indices, means: Floats) -> Floats:
    squares, count = np.zeros(means.shape), np.zeros(means.shape)
    np.add.at(squares, graph, np.where(finite, (values - means[graph]) ** 2, 0.0))
    np.add.at(count, graph, finite)
    deviation = np.sqrt(squares / np.maximum(count - 1, 1)) / _compute_bias(count)
    return np.where(count > 1, deviation / np.sqrt(np.maximum(count, 1)), np.nan)
