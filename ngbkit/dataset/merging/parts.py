"""What is to be merged, as grids of trials, and which of them are of one grid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.errors import UsageError
from ngbkit.sweep.records import OPEN
from ngbkit.sweep.validation import RESERVED

LABELS = ("device", "workload", "compiler", "batch_size")
PREDICTIONS = ("predicted", "predicted_low", "predicted_high")
ANCHORS = ("anchor_latency", "anchor_round")
FACTS = ("parameters", "mult_adds", "macs", "weight_bytes", "input_bytes", "output_bytes", "baseline")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """One grid of trials of what is to be merged.

    Parameters
    ----------
    path
        Of the node; ``/`` for a dataset.
    dims
        Without ``repeat``, in order; the dataset has its dims in this order, and labels along each.
    dataset, attrs
        The trials, and the attributes of the node and of its tree.
    """

    path: str
    dims: tuple[str, ...]
    dataset: xr.Dataset
    attrs: Mapping[str, Any]

    @property
    def factors(self) -> tuple[str, ...]:
        return self.dims[2:-2]

    @property
    def asked(self) -> np.ndarray:
        """Which trials a run was asked for; the grid of several runs has more."""
        return there(self.dataset["status"].variable)

    @property
    def measured(self) -> np.ndarray:
        """Which trials have left something behind, a measurement or a failure."""
        return np.asarray(self.asked & ~np.isin(self.dataset["status"].values, OPEN), dtype=bool)

    def labels(self, dim: str) -> list[Any]:
        return list(self.dataset[dim].values.tolist())

    def told(self, name: str) -> Any:
        """What an attribute says in JSON; an empty object where it is not there."""
        return json.loads(self.attrs.get(name) or "{}")

    def known_as(self, dim: str) -> dict[Any, Any]:
        """What the attributes call each label, which is another name where one new label has taken the place of one.

        That is how `assign_coords` leaves them. Of two that were given new labels there is no telling which is which.
        """
        labels, sweep = self.labels(dim), self.told("sweep")
        asked = sweep.get("devices", []) if dim == "device" else [one["name"] for one in sweep.get("workloads", [])]
        new = [label for label in labels if label not in asked]
        old = [label for label in asked if label not in labels]
        return {**dict(zip(labels, labels, strict=True)), **({new[0]: old[0]} if len(new) == len(old) == 1 else {})}


def parts_of(given: Iterable[Any]) -> list[Part]:
    """The grids of datasets and trees, in order.

    Raises
    ------
    UsageError
        Nothing came, or something that is no dataset of a run.
    """
    found = []
    for one in given:
        if not isinstance(one, (xr.Dataset, xr.DataTree)):
            raise UsageError(
                f"merge() takes datasets and trees; a {type(one).__name__} came. A run gives its own by run.dataset(), "
                "and a file is read by ngbkit.load(path)."
            )
        about = {str(name): value for name, value in one.attrs.items()}
        found += [_part(path, node, about | node.attrs) for path, node in nodes(one).items()]
    if not found:
        raise UsageError("merge() came with nothing to merge. Give it the datasets of runs: merge(one, other).")
    return found


def clusters(parts: Sequence[Part]) -> dict[str, list[Part]]:
    """The parts that are of one grid, by the path of the node that they become; ``/`` where they are all of one."""
    found: list[list[Part]] = []
    for part in parts:
        beside = [cluster for cluster in found if any(_of_one_grid(part, other) for other in cluster)]
        apart = [cluster for cluster in found if cluster not in beside]
        found = [*apart, sorted([*chain.from_iterable(beside), part], key=parts.index)]
    if len(found) == 1:
        return {"/": found[0]}
    paths: dict[str, list[Part]] = {}
    # What a node is called does not depend on the order in which the datasets came.
    for cluster in sorted(found, key=lambda each: (sorted(each[0].factors), sorted(_names(each)))):
        paths[_path(cluster, paths)] = cluster
    return dict(sorted(paths.items(), key=lambda item: parts.index(item[1][0])))


def there(values: xr.Variable) -> np.ndarray:
    """Where something is known: neither NaN nor an empty text."""
    known = values.notnull().values
    return np.asarray(known & (values.values != "") if values.dtype.kind in "OUT" else known, dtype=bool)


def two_of_one_name(what: str, where: Mapping[str, Any]) -> UsageError:
    """What is wrong where two datasets know different things of one label; `where` is its dim first."""
    dim = next(iter(where))
    kind = "networks" if dim == "workload" else f"{dim}s"
    place = ", ".join(f"{key} {value}" for key, value in where.items() if key != dim)
    return UsageError(
        f"two {kind} are called {where[dim]!r}: their {what} differs{f' at {place}' if place else ''}. Give one a name "
        f"of its own by .assign_coords({dim}=[…]) before they are merged, or leave it out by "
        f".drop_sel({dim}={where[dim]!r})."
    )


def _part(path: str, dataset: xr.Dataset, attrs: Mapping[str, Any]) -> Part:
    """A dataset as a part; what was selected down to one label gets its dim back."""
    lacking = [name for name in (*LABELS, "status") if name not in dataset.variables]
    if lacking:
        raise UsageError(
            f"merge() takes the datasets that runs gave; one came without {' and '.join(lacking)}. Merge first, and "
            "compute from the result or select from it then."
        )
    alone = {str(name): values for name, values in dataset.coords.items() if not values.ndim}
    lost = [name for name, values in alone.items() if _labels_trials(name, values)]
    whole = dataset.drop_vars(["repeat", *({*alone} - {*lost, *FACTS})], errors="ignore").expand_dims(lost)
    if "compiler" in lost:  # along which an anchor has no values
        whole = whole.assign({name: whole[name].isel(compiler=0, drop=True) for name in ANCHORS if name in whole})
    dims = ("device", "workload", *factor_dims(whole), "compiler", "batch_size")
    for dim in dims:
        labels = whole[dim].values.tolist() if dim in whole.coords else []
        if not labels or len({*labels}) < len(labels):
            raise UsageError(
                f"{dim} must have labels, each once, so that trials can be told apart; it has {labels}. "
                f"Give it some by .assign_coords({dim}=[…])."
            )
    for name, values in whole.data_vars.items():
        along = {*dims} - ({"compiler"} if name in ANCHORS else set())
        if {*values.dims} - {"repeat"} != along:
            raise UsageError(
                f"{name} is along {', '.join(map(str, values.dims))}; merge() knows the place of what is along "
                f'{", ".join(dims)}. Leave it out by .drop_vars("{name}").'
            )
    return Part(path=path, dims=dims, dataset=whole.transpose(*dims, "repeat", missing_dims="ignore"), attrs=attrs)


def _labels_trials(name: str, values: xr.DataArray) -> bool:
    """Whether a coordinate that stands alone is what a dim was selected down to; a factor is a number."""
    return name in LABELS or (name not in RESERVED and values.dtype.kind in "iuf")


def _of_one_grid(one: Part, other: Part) -> bool:
    if {*one.factors} != {*other.factors}:
        return False
    alike = all({*one.labels(name)} == {*other.labels(name)} for name in one.factors)
    return alike or one.path == other.path or not {*_names([one])}.isdisjoint(_names([other]))


def _names(cluster: Iterable[Part]) -> list[str]:
    return list(dict.fromkeys(chain.from_iterable(part.labels("workload") for part in cluster)))


def _path(cluster: Sequence[Part], taken: Iterable[str]) -> str:
    """The path that a node had, unless it is that of a network which now is one of several; else as in `assemble`."""
    names, paths = _names(cluster), {*taken}
    single = {_safe(name) for name in names} if len(names) > 1 else set()
    kept = {part.path.strip("/") for part in cluster} - {"", *single}
    if len(kept) == 1 and not kept & paths:
        return kept.pop()
    name = _safe(names[0] if len(names) == 1 else "_".join(cluster[0].factors))
    numbered = (f"{name}_{number}" for number in range(2, len(paths) + 3))
    return name if name not in paths else next(each for each in numbered if each not in paths)


def _safe(wanted: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", wanted).strip("._") or "networks"
