"""One grid of all trials of some parts: what each measured, its anchors, and what is known of its labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.merging.grid import Grid, Place
from ngbkit.dataset.merging.parts import ANCHORS, FACTS, LABELS, PREDICTIONS, Part, there, two_of_one_name
from ngbkit.errors import UsageError
from ngbkit.sweep.trials import BASELINE

# Trials that an error names; it counts the rest.
_NAMED = 3

Labels = Mapping[str, Sequence[Any]]
About = Mapping[Any, Mapping[str, Any]]


def merged(cluster: Sequence[Part]) -> xr.Dataset:
    """One dataset of all that parts of one grid have measured, without attributes.

    Raises
    ------
    UsageError
        Two have measured one trial, or know different things of one label.
    """
    dims = cluster[0].dims
    order = (*dims, "repeat")
    parts = [replace(one, dims=dims, dataset=one.dataset.transpose(*order, missing_dims="ignore")) for one in cluster]
    labels = {dim: union([part.labels(dim) for part in parts]) for dim in dims}
    labels["compiler"].sort(key=lambda label: label != BASELINE)
    places = [_place(part, labels, dims) for part in parts]
    about = {name: part.dataset[name].attrs for part in parts for name in part.dataset.variables}
    group = tuple(dim for dim in order if dim != "compiler")
    variables = {
        name: xr.Variable(along[: values.ndim], values, about[name])
        for along, arrays in ((order, _trials(parts, places, labels)), (group, _anchors(parts, places, labels)))
        for name, values in arrays.items()
    }
    coords = {dim: xr.Variable(dim, _column(values), about[dim]) for dim, values in labels.items()}
    return xr.Dataset(variables, {**coords, **_coords(parts, labels, about)})


def union(several: Iterable[Sequence[Any]]) -> list[Any]:
    """Every label once, in the order in which they came; numbers in their own, where each sequence had them so."""
    lines = list(several)
    found = list(dict.fromkeys(chain.from_iterable(lines)))
    numbers = all(isinstance(label, (int, float)) for label in found)
    return sorted(found) if numbers and all(list(each) == sorted(each) for each in lines) else found


def _trials(parts: Sequence[Part], places: Sequence[Place], labels: Labels) -> dict[str, np.ndarray]:
    sources = [_arrays(part, [name for name in part.dataset if name not in (*ANCHORS, *PREDICTIONS)]) for part in parts]
    cells = Grid.blank(tuple(map(len, labels.values())), sources, _samples(parts))
    clashes = [
        cells.put(source, place, part.measured) for part, source, place in zip(parts, sources, places, strict=True)
    ]
    if any(len(clash[0]) for clash in clashes):
        raise UsageError(_twice(labels, clashes, int(np.count_nonzero(cells.taken))))
    _mark_pending(cells.arrays["status"], parts, places)
    _warn_of_groups_apart(parts, places, labels)
    return cells.arrays


def _mark_pending(status: np.ndarray, parts: Sequence[Part], places: Sequence[Place]) -> None:
    """Tell the trials that a run was asked for and that none has measured from those that only the grid made."""
    for part, place in zip(parts, places, strict=True):
        own = np.ix_(*place)
        status[own] = np.where(part.asked & (status[own] == ""), "pending", status[own])


def _warn_of_groups_apart(parts: Sequence[Part], places: Sequence[Place], labels: Labels) -> None:
    """Say where the compilers of one group are of several runs: they are compared as if they had taken turns."""
    numbers = {run: number for number, run in enumerate(dict.fromkeys(part.attrs.get("run_id") for part in parts))}
    runs = np.full(tuple(map(len, labels.values())), np.nan)
    for part, place in zip(parts, places, strict=True):
        own = np.ix_(*place)
        runs[own] = np.where(part.measured & np.isnan(runs[own]), numbers[part.attrs.get("run_id")], runs[own])
    axis = list(labels).index("compiler")
    apart = np.count_nonzero(np.fmax.reduce(runs, axis) > np.fmin.reduce(runs, axis))
    if apart:
        warnings.warn(
            f"{apart} group(s) have compilers of different runs, which did not take turns: what drifted from run to run"
            " is in their ratios, and in no interval. Measure them in one sweep to compare them.",
            stacklevel=5,
        )


def _anchors(parts: Sequence[Part], places: Sequence[Place], labels: Labels) -> dict[str, np.ndarray]:
    """The anchor of each group: of the part that has the group's baseline, else of the only one that has any.

    Of several anchors of a group without a baseline none stays: each is of other rounds than the others.
    """
    axis = list(labels).index("compiler")
    shape = tuple(len(each) for dim, each in labels.items() if dim != "compiler")
    claims = np.zeros(shape, dtype=np.int8)
    having = []
    for part, place in zip(parts, places, strict=True):
        if "anchor_latency" in part.dataset:
            own = np.ix_(*(group := (*place[:axis], *place[axis + 1 :])))
            based = part.measured.compress(part.dataset["compiler"].values == BASELINE, axis=axis).any(axis=axis)
            claim = part.dataset["anchor_latency"].notnull().any("repeat").values * (1 + based.astype(np.int8))
            claims[own] = np.maximum(claims[own], claim)
            having.append((_arrays(part, ANCHORS), group, claim))
    if not having:
        return {}
    grid = Grid.blank(shape, [source for source, _, _ in having], _samples(parts))
    clashes = [
        grid.put(source, group, (claim > 0) & (claim == claims[np.ix_(*group)])) for source, group, claim in having
    ]
    for clash in clashes:
        grid.clear(clash)
    return grid.arrays


def _coords(parts: Sequence[Part], labels: Labels, about: About) -> dict[str, xr.Variable]:
    """What is known of networks and of other labels; along the factors too where it varies with them."""
    factors, found = parts[0].factors, {}
    for name in dict.fromkeys(str(name) for part in parts for name in part.dataset.coords if name not in labels):
        having = [part for part in parts if name in part.dataset.coords]
        along = {dim for part in having for dim in part.dataset[name].dims} | ({"workload"} if name in FACTS else set())
        dims = tuple(dim for dim in labels if dim in along or (dim in factors and "workload" in along))
        known = [_widened(part, name, dims) for part in having]
        sources = [{name: each.values} for each in known]
        grid = Grid.blank(tuple(len(labels[dim]) for dim in dims), sources)
        for part, source, each in zip(having, sources, known, strict=True):
            clash = grid.put(source, _place(part, labels, dims), there(each))
            if len(clash[0]):
                where = {dim: labels[dim][at[0]] for dim, at in zip(dims, clash, strict=True)}
                raise two_of_one_name(name, dict(sorted(where.items(), key=lambda item: item[0] != "workload")))
        found[name] = _narrowed(xr.Variable(dims, grid.arrays[name], about[name]), factors)
    return found


def _widened(part: Part, name: str, dims: Sequence[str]) -> xr.Variable:
    """A coordinate along all these dims, the same along those that it did not have."""
    sizes = {dim: part.dataset.sizes[dim] for dim in dims}
    found: xr.Variable = part.dataset[name].variable.set_dims(sizes)  # type: ignore[no-untyped-call]  # xarray's
    return found


def _narrowed(values: xr.Variable, factors: Sequence[str]) -> xr.Variable:
    """Without the factors where it is the same at each of their values."""
    first = values.isel(dict.fromkeys(factors, 0), missing_dims="ignore")
    same = (values == first) | (values.isnull() & first.isnull())
    return first if bool(same.all()) else values


def _column(labels: Sequence[Any]) -> np.ndarray:
    return np.array(labels, dtype=object if isinstance(labels[0], str) else None)


def _place(part: Part, labels: Labels, dims: Iterable[str]) -> Place:
    """Where in the merged grid the labels of a part are, dim by dim."""
    at = {dim: {label: number for number, label in enumerate(labels[dim])} for dim in dims}
    return tuple(np.array([at[dim][label] for label in part.labels(dim)], dtype=np.intp) for dim in at)


def _arrays(part: Part, names: Iterable[Any]) -> dict[str, np.ndarray]:
    return {str(name): part.dataset[name].values for name in names if name in part.dataset}


def _samples(parts: Iterable[Part]) -> int:
    """How many samples the longest of all trials has."""
    return max(part.dataset.sizes.get("repeat", 0) for part in parts)


def _twice(labels: Labels, clashes: Iterable[Place], total: int) -> str:
    cells = list(dict.fromkeys(tuple(cell) for clash in clashes for cell in np.transpose(clash).tolist()))
    named = []
    for cell in cells[:_NAMED]:
        factors = {dim: labels[dim][at] for dim, at in zip(labels, cell, strict=True)}
        device, workload, compiler, batch_size = (factors.pop(dim) for dim in LABELS)
        values = "".join(f" {name}={value:g}" for name, value in factors.items())
        named.append(f"{workload}{values} batch {batch_size} {compiler} on {device}")
    more = f" and {len(cells) - _NAMED} more" if len(cells) > _NAMED else ""
    return (
        f"{len(cells)} of {total} trials were measured more than once, and of each only one result can stay: "
        f"{', '.join(named)}{more}. Leave those out of one by .sel(…) or .drop_sel(…), or give the device of one a "
        "label of its own by .assign_coords(device=[…])."
    )
