"""The measurements of a dataset as rows: a network, or a variant of it, at one batch size on every runtime."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ngbkit.compilers.base import GRAPH
from ngbkit.dataset.assembly import factor_dims
from ngbkit.dataset.contention import select_samples
from ngbkit.dataset.long_form import list_labels
from ngbkit.dataset.storage import Data
from ngbkit.metrics import arrays
from ngbkit.sweep.column import Column
from ngbkit.user_text import format_value, join_names
from ngbkit.workloads.base import Factors
from ngbkit.workloads.paper import find_family

Runtime = tuple[str, str]
"""A device and a compiler, with the options that are in its label."""

VARIANTS = "variants"
"""The attribute with the rules that made the rewritten networks of a dataset: JSON, by the content hash in the option
``graph`` of their columns."""


def format_runtimes(runtimes: Sequence[Runtime]) -> str:
    """Format the first few runtimes as a text."""
    return join_names((f"{compiler} on {device}" for device, compiler in runtimes), most=_LISTED)


# The most runtimes that a text lists.
_LISTED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The measurements of a network or of a variant at one batch size, with the key of its graph and its labels."""

    key: str
    seconds: NDArray[np.float64]
    labels: Mapping[str, str]
    #: The standard error of the logarithm of the speed-up of a variant.
    error: NDArray[np.float64] | None = None


def list_runtimes(node: xr.Dataset) -> list[Runtime]:
    compilers = dict.fromkeys(_split_label(label)[0] for label in list_labels(node, "compiler"))
    return list(product(list_labels(node, "device"), compilers))


def _split_label(label: str) -> tuple[str, str]:
    """Split the label of a column into the label without the option ``graph`` and the content hash in that option."""
    column = Column.read(label)
    options = {name: value for name, value in column.options.items() if name != GRAPH}
    return replace(column, options=options).label, str(column.options.get(GRAPH, ""))


def build_rows(data: Data, node: xr.Dataset, runtimes: Sequence[Runtime]) -> Iterator[Row]:
    """Yield a row per network and batch size, and per variant, from the samples that estimates use."""
    node = select_samples(node)
    rules = json.loads(data.attrs.get(VARIANTS) or "{}")
    dims = ["workload", *factor_dims(node), "batch_size", "device", "compiler"]
    median = xr.apply_ufunc(arrays.median, node["latency"], input_core_dims=[["repeat"]])
    median = median.expand_dims([dim for dim in dims if dim not in median.dims]).transpose(*dims)
    runtime_labels = product(list_labels(node, "device"), list_labels(node, "compiler"))
    columns = [(device, *_split_label(label)) for device, label in runtime_labels]
    labels_by_dim = {dim: median[dim].values.tolist() for dim in dims}
    flat = median.values.reshape(*median.shape[:-2], -1)
    rounds = _compute_round_medians(node, dims).reshape(*flat.shape, -1)
    for position in np.ndindex(*flat.shape[:-1]):
        factors = {dim: labels_by_dim[dim][index] for dim, index in zip(dims, position, strict=False)}
        name, batch_size = str(factors.pop("workload")), int(factors.pop("batch_size"))
        description = _describe_network(node, name, factors, batch_size, position[0])
        originals = {
            (device, compiler): column for column, (device, compiler, digest) in enumerate(columns) if not digest
        }
        measured: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        for column, (device, compiler, digest) in enumerate(columns):
            blank = (np.full(len(runtimes), np.nan), np.full(len(runtimes), np.nan))
            seconds, errors = measured.setdefault(digest, blank)
            value, error, original = flat[position][column], np.nan, originals.get((device, compiler))
            if digest and original is not None and np.isfinite(flat[position][original]):
                # Round by round, as every ratio: a disturbance of the machine then affects both.
                gain, error = _compute_gain(rounds[position][column], rounds[position][original])
                value = flat[position][original] * gain
            runtime = runtimes.index((device, compiler))
            seconds[runtime], errors[runtime] = value, error
        for digest, (seconds, errors) in measured.items():
            if not np.isfinite(seconds).any():
                continue
            key = _build_key(name, factors, batch_size, digest)
            row = Row(key=key, seconds=seconds, labels=description)
            if digest:
                rule = str(rules.get(digest, "rewritten"))
                variant = description | {"rules": rule, "names": f"{description['names']} {rule} {digest[:8]}"}
                row = replace(row, labels=variant, error=errors)
            yield row


def _compute_round_medians(node: xr.Dataset, dims: Sequence[str]) -> NDArray[np.float64]:
    """Return the medians of each round of each trial; a dataset without rounds has one."""
    latency = node["latency"].expand_dims([dim for dim in dims if dim not in node["latency"].dims])
    latency = latency.transpose(*dims, "repeat")
    if "round" not in node:
        return np.asarray(arrays.median(latency.values), np.float64)[..., None]
    rounds = node["round"].broadcast_like(latency).transpose(*dims, "repeat")
    return np.asarray(arrays.round_medians(latency.values, rounds.values), np.float64)


def _compute_gain(variant: NDArray[np.float64], original: NDArray[np.float64]) -> tuple[float, float]:
    """Return the median ratio of two trials over their rounds, and the standard error of its logarithm."""
    ratios = np.log(variant / original)
    ratios = ratios[np.isfinite(ratios)]
    if not len(ratios):
        return float("nan"), float("nan")
    # The variance of the median of normal numbers is pi / 2 times that of their mean.
    error = math.sqrt(math.pi / 2) * float(ratios.std(ddof=1)) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan
    return math.exp(float(np.median(ratios))), error


def _describe_network(node: xr.Dataset, name: str, factors: Factors, batch_size: int, index: int) -> dict[str, str]:
    names = [coord for coord in ("family", "parent", "rule") if coord in node.coords]
    coords = {coord: str(np.atleast_1d(node[coord].values)[index]) for coord in names}
    values = [f"{factor}={format_value(value)}" for factor, value in factors.items()]
    title = " ".join([name, *values, f"batch {batch_size}"])
    # The parent also groups other factors and batch sizes of a network, which behave almost alike.
    return {
        "names": title,
        # The names of numbered files tell no families apart.
        "families": coords.get("family") or (find_family(name) if name[:1].isalpha() else "network"),
        "parents": coords.get("parent") or name,
        "rules": coords.get("rule", ""),
    }


def _build_key(workload: str, factors: Factors, batch_size: int, digest: str) -> str:
    return json.dumps([workload, dict(factors), batch_size, digest], sort_keys=True)
