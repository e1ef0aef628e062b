"""The parts of a merge: the grids of trials of its datasets, clustered into common grids."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims, name_node, nodes
from ngbkit.dataset.long_form import list_labels
from ngbkit.errors import UsageError
from ngbkit.sweep.records import OPEN
from ngbkit.sweep.variables import COORDINATES, RESERVED

LABELS = ("device", "workload", "compiler", "batch_size")
PREDICTIONS = ("predicted", "predicted_low", "predicted_high")
ANCHORS = ("anchor_latency", "anchor_round", "anchor_contended")
TIES = ("tie_latency", "tie_round", "tie_contended", "tie_bundle", "tie")
FACTS = tuple(COORDINATES)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """One grid of trials of a dataset."""

    path: str  # of the node; "/" for a dataset
    dims: tuple[str, ...]  # in order, without "repeat"
    dataset: xr.Dataset  # with its dims in this order, and labels along each
    attrs: Mapping[str, Any]  # of the node and of its tree

    @property
    def factors(self) -> tuple[str, ...]:
        return self.dims[2:-2]

    @property
    def requested(self) -> np.ndarray:
        """The trials that a run requested, as a mask; the grid of several runs has more cells."""
        return is_known(self.dataset["status"].variable)

    @property
    def measured(self) -> np.ndarray:
        """The trials that have a measurement or a failure, as a mask."""
        return np.asarray(self.requested & ~np.isin(self.dataset["status"].values, OPEN), dtype=bool)

    def list_labels(self, dim: str) -> list[Any]:
        """The labels along a dim."""
        return list(self.dataset[dim].values.tolist())

    def load_json(self, name: str) -> Any:
        """The JSON value of an attribute; an empty object if it is missing."""
        return json.loads(self.attrs.get(name) or "{}")

    def map_labels(self, dim: str) -> dict[Any, Any]:
        """The name of each label in the attributes, which differs if `assign_coords` replaced a single one."""
        labels, sweep = self.list_labels(dim), self.load_json("sweep")
        if dim == "device":
            names = sweep.get("devices", [])
        else:
            names = [workload["name"] for workload in sweep.get("workloads", [])]
        new = [label for label in labels if label not in names]
        old = [name for name in names if name not in labels]
        return {**dict(zip(labels, labels, strict=True)), **({new[0]: old[0]} if len(new) == len(old) == 1 else {})}


def split_parts(datasets: Iterable[Any]) -> list[Part]:
    """Split datasets and trees into their grids, in order."""
    parts = []
    for data in datasets:
        if not isinstance(data, (xr.Dataset, xr.DataTree)):
            raise UsageError(
                f"merge(): got a {type(data).__name__}; expected datasets and trees. run.dataset() returns that of a "
                "run, and ngbkit.load(path) that of a file."
            )
        attrs = {str(name): value for name, value in data.attrs.items()}
        parts += [_build_part(path, node, attrs | node.attrs) for path, node in nodes(data).items()]
    if not parts:
        raise UsageError("merge(): got nothing to merge; expected the datasets of runs: merge(first, second).")
    return parts


def cluster_parts(parts: Sequence[Part]) -> dict[str, list[Part]]:
    """The parts of each common grid, by the path of its node; ``/`` if there is only one."""
    clusters: list[list[Part]] = []
    for part in parts:
        joined = [cluster for cluster in clusters if any(_share_grid(part, other) for other in cluster)]
        others = [cluster for cluster in clusters if cluster not in joined]
        clusters = [*others, sorted([*chain.from_iterable(joined), part], key=parts.index)]
    if len(clusters) == 1:
        return {"/": clusters[0]}
    paths: dict[str, list[Part]] = {}
    # The name of a node is independent of the order of the datasets.
    for cluster in sorted(clusters, key=lambda cluster: (sorted(cluster[0].factors), sorted(_list_workloads(cluster)))):
        paths[_choose_path(cluster, paths)] = cluster
    return dict(sorted(paths.items(), key=lambda item: parts.index(item[1][0])))


def is_known(values: xr.Variable) -> np.ndarray:
    """Return which values are neither NaN nor an empty text."""
    present = values.notnull().values
    return np.asarray(present & (values.values != "") if values.dtype.kind in "OUT" else present, dtype=bool)


def build_conflict_error(name: str, position: Mapping[str, Any]) -> UsageError:
    """The error for two datasets with different values of a fact of one label, the first of `position`."""
    dim = next(iter(position))
    kind = "networks" if dim == "workload" else f"{dim}s"
    others = ", ".join(f"{key} {value}" for key, value in position.items() if key != dim)
    return UsageError(
        f"two {kind} are called {position[dim]!r}: their {name} differs{f' at {others}' if others else ''}. Rename one "
        f"by .assign_coords({dim}=[…]) before the merge, or exclude it by .drop_sel({dim}={position[dim]!r})."
    )


def _build_part(path: str, dataset: xr.Dataset, attrs: Mapping[str, Any]) -> Part:
    """A dataset as a part; each label that was selected becomes a dim again."""
    attrs = {**attrs, **{name: str(attrs[name]) for name in ("run_id", "created") if name in attrs}}
    missing = [name for name in (*LABELS, "status") if name not in dataset.variables]
    if missing:
        raise UsageError(
            f"merge(): got a dataset without {' and '.join(missing)}; expected the datasets of runs. Merge first, then "
            "compute or select."
        )
    scalars = {str(name): values for name, values in dataset.coords.items() if not values.ndim}
    factors = _list_text_factors(attrs)
    selected = [name for name, values in scalars.items() if name in factors or _labels_trials(name, values)]
    expanded = dataset.drop_vars(["repeat", *({*scalars} - {*selected, *FACTS})], errors="ignore").expand_dims(selected)
    if "compiler" in selected:  # a dim that anchors lack
        anchors = {name: expanded[name].isel(compiler=0, drop=True) for name in (*ANCHORS, *TIES) if name in expanded}
        expanded = expanded.assign(anchors)
    dims = ("device", "workload", *factor_dims(expanded), "compiler", "batch_size")
    for dim in dims:
        labels = list_labels(expanded, dim)
        is_valid = all(isinstance(label, (str, int, float)) and label == label for label in labels)  # no NaN
        if not labels or not is_valid or len({*labels}) < len(labels):
            raise UsageError(
                f"invalid labels of {dim}: got {labels}; expected distinct texts or numbers, which identify trials. "
                f"Assign some by .assign_coords({dim}=[…])."
            )
    for name, values in expanded.data_vars.items():
        along = {*dims} - ({"compiler"} if name in (*ANCHORS, *TIES) else set())
        if {*values.dims} - {"repeat"} != along:
            raise UsageError(
                f"cannot merge {name}: it is along {', '.join(map(str, values.dims))}; expected "
                f'{", ".join(dims)}. Exclude it by .drop_vars("{name}").'
            )
    return Part(path=path, dims=dims, dataset=expanded.transpose(*dims, "repeat", missing_dims="ignore"), attrs=attrs)


def _labels_trials(name: str, values: xr.DataArray) -> bool:
    """Return whether a scalar coordinate is the selected label of a dim; that of a factor with numbers is a number."""
    return name in LABELS or (name not in RESERVED and values.dtype.kind in "iuf")


def _list_text_factors(attrs: Mapping[str, Any]) -> set[str]:
    """List the factors with texts of the sweep of a dataset: a text may also be a remark of its user."""
    workloads = json.loads(attrs.get("sweep") or "{}").get("workloads", [])
    factors = chain.from_iterable(workload["factors"].items() for workload in workloads)
    return {name for name, values in factors if any(isinstance(value, str) for value in values)}


def _share_grid(part: Part, other: Part) -> bool:
    if {*part.factors} != {*other.factors}:
        return False
    same_values = all({*part.list_labels(name)} == {*other.list_labels(name)} for name in part.factors)
    shared = {*part.list_labels("workload")} & {*other.list_labels("workload")}
    return same_values or part.path == other.path or bool(shared)


def _list_workloads(cluster: Iterable[Part]) -> list[str]:
    return list(dict.fromkeys(chain.from_iterable(part.list_labels("workload") for part in cluster)))


def _choose_path(cluster: Sequence[Part], paths: Collection[str]) -> str:
    """The old path of a node, unless it names one network and the node now has several; else as in `assemble`."""
    names = _list_workloads(cluster)
    single = {name_node(name) for name in names} if len(names) > 1 else set()
    old = {part.path.strip("/") for part in cluster} - {"", *single}
    if len(old) == 1 and not old & {*paths}:
        return old.pop()
    return name_node(names[0] if len(names) == 1 else "_".join(cluster[0].factors), paths)
