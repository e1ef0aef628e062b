"""How fast a device was in each run, where networks were measured in several: a machine that others share varies.

The logarithm of a latency is that of the graph on the runtime, plus what the run was slower by as a whole, plus noise.
Graphs that several runs have measured tie these together, and what only one of them has measured is corrected with it:
a rewritten network keeps its speed-up over the one that it was measured beside. Trials of one run that took turns are
compared round by round elsewhere; this is for learning, which compares networks across runs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

# Alternating between graphs and runs; it converges by a factor each time.
_ROUNDS = 200


def settle(logs: Floats, graph: Places, run: Places, device: Places) -> tuple[Floats, Floats]:
    """What each graph takes, with what runs differ by taken out.

    Parameters
    ----------
    logs
        Logarithms of seconds, of shape ``(rows, runtimes)``, NaN where there is none.
    graph, run
        Of each row, as numbers from 0.
    device
        Of each runtime, as numbers from 0.

    Returns
    -------
    logs : array
        Of shape ``(graphs, runtimes)``; as measured, in the mean, of a graph that a single run has measured and nothing
        ties to others.
    error : array
        The standard error of each; NaN where there is one measurement.
    """
    graphs, runs, devices = graph.max() + 1, run.max() + 1, device.max() + 1
    there = np.isfinite(logs)
    # Only what several runs have measured tells how they differ.
    in_runs = np.zeros((graphs, runs), dtype=bool)
    in_runs[graph, run] = there.any(axis=1)
    ties = there & (in_runs.sum(axis=1) > 1)[graph][:, None]
    tied = np.zeros(runs, dtype=bool)
    np.logical_or.at(tied, run, ties.any(axis=1))
    slower = np.zeros((runs, devices))
    found = _means(logs, there, graph, graphs)
    for _ in range(_ROUNDS if tied.any() else 0):
        residual = logs - slower[run][:, device] - found[graph]
        for at in range(devices):
            own = ties & (device == at)[None, :]
            summed, count = np.zeros(runs), np.zeros(runs)
            np.add.at(summed, run, np.where(own, residual, 0.0).sum(axis=1))
            np.add.at(count, run, own.sum(axis=1))
            slower[:, at] += summed / np.maximum(count, 1)
        # Only differences are known: in the mean of the runs nothing is added.
        slower[tied] -= slower[tied].mean(axis=0)
        found = _means(logs - slower[run][:, device], there, graph, graphs)
    corrected = logs - slower[run][:, device]
    return found, _errors(corrected, there, graph, found)


def _means(values: Floats, there: NDArray[np.bool_], graph: Places, graphs: int) -> Floats:
    """By graph and runtime the mean of what there is; NaN of nothing."""
    summed, count = np.zeros((graphs, values.shape[1])), np.zeros((graphs, values.shape[1]))
    np.add.at(summed, graph, np.where(there, values, 0.0))
    np.add.at(count, graph, there)
    return np.where(count > 0, summed / np.maximum(count, 1), np.nan)


def _errors(values: Floats, there: NDArray[np.bool_], graph: Places, found: Floats) -> Floats:
    squares, count = np.zeros(found.shape), np.zeros(found.shape)
    np.add.at(squares, graph, np.where(there, (values - found[graph]) ** 2, 0.0))
    np.add.at(count, graph, there)
    deviation = np.sqrt(squares / np.maximum(count - 1, 1))
    return np.where(count > 1, deviation / np.sqrt(np.maximum(count, 1)), np.nan)
