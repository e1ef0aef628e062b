"""Collects examples from datasets of runs.

A dataset for learning elsewhere embeds its graphs (`ngbkit.predict.attach`), so that nobody builds and exports its
networks again.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from itertools import chain

import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.contention import find_unchecked
from ngbkit.dataset.storage import Data
from ngbkit.errors import NgbkitWarning, UsageError
from ngbkit.metrics.unchecked import list_unchecked
from ngbkit.predict.labels.example_set import Examples
from ngbkit.predict.labels.merging import Label, merge_labels
from ngbkit.predict.labels.rows import build_rows, list_runtimes
from ngbkit.predict.lowering import EXPORT
from ngbkit.predict.network_graphs import build_graph, find_lowering, load_graphs
from ngbkit.user_text import join_names


def collect(*data: Data | Iterable[Data], lowered: bool = False) -> Examples:
    """The examples of datasets.

    Parameters
    ----------
    *data
        Datasets of runs, or lists of them; their grids may differ. Optional coordinates along ``workload`` describe
        each network: ``family`` (default: derived from its name), ``parent``, ``rule``. A column with the option
        ``graph`` is a rewritten network, a variant of the network in the same row.
    lowered
        Whether the graphs are those that the runtime executes after its own optimisation, instead of the networks as
        they were exported: of one runtime that tells them, ONNX Runtime or OpenVINO, as in
        ``ds.sel(compiler=["openvino"])``. Rewritings that the runtime undoes are then one example.

    Raises
    ------
    UsageError
        No trial has a latency, a dataset lacks the description of a network, or something else than datasets came; or
        `lowered` graphs are asked for of several runtimes, or of one that does not tell them.

    Warns
    -----
    NgbkitWarning
        Networks with the same graph differ in latency by more than noise: the graph is not what ran. Or trials are no
        labels, since their outputs were not checked.

    Notes
    -----
    Networks with the same graph, up to names and the values of weights, are one example with the texts of the first: a
    copy in the training and in the test set would be remembered, not predicted. Its latency is the geometric mean of
    all, weighed by their errors where these are known, and without the drift between runs
    (`ngbkit.predict.labels.drift_correction`).
    """
    lists = (each if isinstance(each, (list, tuple, Iterator)) else [each] for each in data)
    datasets = list(chain.from_iterable(lists))
    for dataset in datasets:
        if not isinstance(dataset, Data):
            raise UsageError(
                f"got a {type(dataset).__name__}; expected the dataset of a run. Networks and their seconds that were "
                "measured elsewhere: ngbkit.predict.examples(networks, seconds, runtime='onnxruntime')."
            )
    lowering = find_lowering(*datasets) if lowered else EXPORT
    grids = [node for dataset in datasets for node in nodes(dataset).values()]
    runtimes = list(dict.fromkeys(chain.from_iterable(map(list_runtimes, grids))))
    labels: list[Label] = []
    for run, dataset in enumerate(datasets):
        stored = load_graphs(dataset, lowering)
        _warn_of_unchecked(dataset)
        checked = map(_select_checked, nodes(dataset).values())
        for row in (row for node in checked for row in build_rows(dataset, node, runtimes)):
            graph = stored.get(row.key) or build_graph(dataset, row.key, lowering)
            labels.append(Label(graph=graph, seconds=row.seconds, texts=row.labels, run=run, errors=row.error))
    if not labels:
        raise UsageError("no latency in this dataset: a predictor needs trials with the status 'ok'. Measure again.")
    return merge_labels(labels, runtimes)


def _select_checked(node: xr.Dataset) -> xr.Dataset:
    """Leave out the samples of trials that were not checked: what they timed may be another network."""
    latency = node["latency"]
    return node.assign(latency=latency.where(~find_unchecked(node)).transpose(*latency.dims))


def _warn_of_unchecked(dataset: Data) -> None:
    """Warn of the trials that are no labels, since they were not checked."""
    if names := list_unchecked(dataset):
        reasons = "; ".join(f"{join_names(trials)}: {reason.rstrip('.')}" for reason, trials in names.items())
        count = sum(map(len, names.values()))
        clause = "trial is no label, since it was" if count == 1 else "trials are no labels, since they were"
        message = f"{count} {clause} not checked: {reasons}."
        warnings.warn(message, NgbkitWarning, stacklevel=3)
