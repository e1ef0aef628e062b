"""Merges the parts of one grid: their trials, their anchors, and the facts of their labels, without conflicts."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import narrow, to_labels
from ngbkit.dataset.merging.parts import ANCHORS, FACTS, LABELS, PREDICTIONS, TIES, Part, build_conflict_error, is_known
from ngbkit.errors import NgbkitWarning, UsageError
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.variables import NO_ROUND
from ngbkit.user_text import format_network

# An error names that many trials, and counts the rest.
_NAMED = 3

Labels = Mapping[str, Sequence[Any]]
Attrs = Mapping[Any, Mapping[str, Any]]
Indices = tuple[np.ndarray, ...]
"""Indices along each dim of a grid: of the labels of a source; or, element by element, of some cells."""


@dataclass(slots=True, kw_only=True)
class _Cells:
    """Arrays over the cells of one grid, by variable; an array of samples has one more axis."""

    arrays: dict[str, np.ndarray]
    missing: Mapping[str, Any]  # the fill value of each variable
    filled: np.ndarray  # which cells have values

    @classmethod
    def allocate(cls, shape: tuple[int, ...], sources: Sequence[Mapping[str, np.ndarray]], samples: int = 0) -> _Cells:
        """Allocate all variables of the sources, with that many samples per cell."""
        arrays: dict[str, np.ndarray] = {}
        missing: dict[str, Any] = {}
        for name in dict.fromkeys(chain.from_iterable(sources)):
            variables = [source[name] for source in sources if name in source]
            if len({values.ndim for values in variables}) > 1:
                raise UsageError(
                    f"cannot merge {name}: it has samples in one dataset and a single value per trial in another. "
                    f'Merge the datasets of the runs, or exclude it by .drop_vars("{name}").'
                )
            is_text = any(values.dtype.kind in "OUT" for values in variables)
            dtype = np.dtype(object) if is_text else np.result_type(*variables)
            missing[name] = _choose_missing(name, dtype)
            arrays[name] = np.full((*shape, samples)[: variables[0].ndim], missing[name], dtype=dtype)
        return cls(arrays=arrays, missing=missing, filled=np.zeros(shape, dtype=bool))

    def put(self, source: Mapping[str, np.ndarray], indices: Indices, mask: np.ndarray) -> Indices:
        """Fill the empty cells of a source where the mask is set, and return the filled cells that differ from it.

        `indices` locates the labels of the source, dim by dim; the mask is over its cells. A variable that the source
        lacks is missing in all its cells.
        """
        cells = np.nonzero(mask)
        targets = tuple(axis[cell] for axis, cell in zip(indices, cells, strict=True))
        repeated = self.filled[targets]
        empty, full = (tuple(axis[selected] for axis in targets) for selected in (~repeated, repeated))
        conflict = np.zeros(len(full[0]), dtype=bool)
        for name, array in self.arrays.items():
            if name in source:
                values = self._pad(name, source[name][cells])
                array[empty] = values[~repeated]
                conflict |= _differ(array[full], values[repeated])
            else:
                conflict |= _differ(array[full], np.full(array[full].shape, self.missing[name], dtype=array.dtype))
        self.filled[targets] = True
        return tuple(axis[conflict] for axis in full)

    def clear(self, cells: Indices) -> None:
        """Empty these cells."""
        for name, array in self.arrays.items():
            array[cells] = self.missing[name]
        self.filled[cells] = False

    def _pad(self, name: str, values: np.ndarray) -> np.ndarray:
        """Pad the samples of some cells to the length of the grid."""
        length = self.arrays[name].shape[self.filled.ndim :]
        if values.shape[1:] == length:
            return values
        padded = np.full((len(values), *length), self.missing[name], dtype=self.arrays[name].dtype)
        padded[:, : values.shape[1]] = values
        return padded


def merge_cluster(cluster: Sequence[Part]) -> xr.Dataset:
    """One dataset of the parts of one grid, without attributes."""
    dims = cluster[0].dims
    order = (*dims, "repeat")
    parts = [
        replace(part, dims=dims, dataset=part.dataset.transpose(*order, missing_dims="ignore")) for part in cluster
    ]
    labels = {dim: unite([part.list_labels(dim) for part in parts]) for dim in dims}
    for factor in cluster[0].factors:
        if len({isinstance(label, str) for label in labels[factor]}) > 1:
            raise UsageError(
                f"cannot merge {factor}: its values are numbers in one dataset and texts in another. Replace those of "
                f"one by .assign_coords({factor}=[…])."
            )
    labels["compiler"].sort(key=lambda label: label != BASELINE)
    indices = [_locate(part, labels, dims) for part in parts]
    attrs = {name: part.dataset[name].attrs for part in parts for name in part.dataset.variables}
    group = tuple(dim for dim in order if dim != "compiler")
    variables = {
        name: xr.Variable(along[: values.ndim], values, attrs[name])
        for along, arrays in (
            (order, _merge_trials(parts, indices, labels)),
            (group, _merge_anchors(parts, indices, labels, ANCHORS)),
            (group, _merge_anchors(parts, indices, labels, TIES)),
        )
        for name, values in arrays.items()
    }
    coords = {dim: xr.Variable(dim, to_labels(values), attrs[dim]) for dim, values in labels.items()}
    return xr.Dataset(variables, {**coords, **_merge_coords(parts, labels, attrs)})


def unite(sequences: Iterable[Sequence[Any]]) -> list[Any]:
    """The distinct labels, in order; sorted if they are numbers and each sequence is sorted."""
    lists = [list(labels) for labels in sequences]
    distinct = list(dict.fromkeys(chain.from_iterable(lists)))
    numeric = all(isinstance(label, (int, float)) for label in distinct)
    return sorted(distinct) if numeric and all(labels == sorted(labels) for labels in lists) else distinct


def _merge_trials(parts: Sequence[Part], indices: Sequence[Indices], labels: Labels) -> dict[str, np.ndarray]:
    excluded = (*ANCHORS, *TIES, *PREDICTIONS)
    sources = [_extract_arrays(part, [name for name in part.dataset if name not in excluded]) for part in parts]
    cells = _Cells.allocate(tuple(map(len, labels.values())), sources, _count_samples(parts))
    conflicts = [
        cells.put(source, index, part.measured) for part, source, index in zip(parts, sources, indices, strict=True)
    ]
    if any(len(conflict[0]) for conflict in conflicts):
        raise UsageError(_describe_conflicts(labels, conflicts, int(np.count_nonzero(cells.filled))))
    status = cells.arrays["status"]
    for part, index in zip(parts, indices, strict=True):
        # A trial that a run requested and none measured, unlike a cell that only the common grid has.
        cell = np.ix_(*index)
        status[cell] = np.where(part.requested & (status[cell] == ""), "pending", status[cell])
    _warn_of_mixed_groups(parts, indices, labels)
    return cells.arrays


def _warn_of_mixed_groups(parts: Sequence[Part], indices: Sequence[Indices], labels: Labels) -> None:
    """Warn if the compilers of one group are from several runs: they are compared as if they were interleaved."""
    numbers = {run: number for number, run in enumerate(dict.fromkeys(part.attrs.get("run_id") for part in parts))}
    runs = np.full(tuple(map(len, labels.values())), np.nan)
    for part, index in zip(parts, indices, strict=True):
        cell = np.ix_(*index)
        runs[cell] = np.where(part.measured & np.isnan(runs[cell]), numbers[part.attrs.get("run_id")], runs[cell])
    axis = list(labels).index("compiler")
    mixed = np.count_nonzero(np.fmax.reduce(runs, axis) > np.fmin.reduce(runs, axis))
    if mixed:
        warnings.warn(
            f"{mixed} group(s) have compilers of different runs, which were not interleaved: drift between runs is in "
            "their ratios, but not in their intervals. Measure them in one sweep to compare them.",
            NgbkitWarning,
            stacklevel=6,
        )


def _merge_anchors(
    parts: Sequence[Part], indices: Sequence[Indices], labels: Labels, names: Sequence[str]
) -> dict[str, np.ndarray]:
    """The anchor of each group, with the variables `names`, of the part with its baseline or else of the only one."""
    axis = list(labels).index("compiler")
    shape = tuple(len(values) for dim, values in labels.items() if dim != "compiler")
    # By group: 2 for the anchor of the part with the baseline, 1 for another anchor, 0 without.
    highest = np.zeros(shape, dtype=np.int8)
    claims = []
    for part, index in zip(parts, indices, strict=True):
        if names[0] in part.dataset:
            group = (*index[:axis], *index[axis + 1 :])
            is_baseline = part.dataset["compiler"].values == BASELINE
            has_baseline = part.measured.compress(is_baseline, axis=axis).any(axis=axis)
            claim = part.dataset[names[0]].notnull().any("repeat").values * (1 + has_baseline.astype(np.int8))
            cell = np.ix_(*group)
            highest[cell] = np.maximum(highest[cell], claim)
            claims.append((_extract_arrays(part, names), group, claim))
    if not claims:
        return {}
    cells = _Cells.allocate(shape, [source for source, _, _ in claims], _count_samples(parts))
    conflicts = [
        cells.put(source, group, (claim > 0) & (claim == highest[np.ix_(*group)])) for source, group, claim in claims
    ]
    # Several anchors of a group without a baseline are all dropped, since each is from other rounds.
    for conflict in conflicts:
        cells.clear(conflict)
    return cells.arrays


def _merge_coords(parts: Sequence[Part], labels: Labels, attrs: Attrs) -> dict[str, xr.Variable]:
    """The facts of networks and of other labels, along the factors too where they vary with them."""
    factors, coords = parts[0].factors, {}
    for name in dict.fromkeys(str(name) for part in parts for name in part.dataset.coords if name not in labels):
        sources = [part for part in parts if name in part.dataset.coords]
        along = {dim for part in sources for dim in part.dataset[name].dims} | (
            {"workload"} if name in FACTS else set()
        )
        dims = tuple(dim for dim in labels if dim in along or (dim in factors and "workload" in along))
        values = [_expand(part, name, dims) for part in sources]
        arrays = [{name: variable.values} for variable in values]
        cells = _Cells.allocate(tuple(len(labels[dim]) for dim in dims), arrays)
        for part, array, variable in zip(sources, arrays, values, strict=True):
            conflict = cells.put(array, _locate(part, labels, dims), is_known(variable))
            if len(conflict[0]):
                position = {dim: labels[dim][index[0]] for dim, index in zip(dims, conflict, strict=True)}
                raise build_conflict_error(name, dict(sorted(position.items(), key=lambda item: item[0] != "workload")))
        coords[name] = narrow(xr.Variable(dims, cells.arrays[name], attrs[name]), factors)
    return coords


def _expand(part: Part, name: str, dims: Sequence[str]) -> xr.Variable:
    """A coordinate along all these dims, constant along those that it lacked."""
    sizes = {dim: part.dataset.sizes[dim] for dim in dims}
    expanded: xr.Variable = part.dataset[name].variable.set_dims(sizes)  # type: ignore[no-untyped-call]  # xarray's
    return expanded


def _locate(part: Part, labels: Labels, dims: Iterable[str]) -> Indices:
    """The indices of the labels of a part in the merged grid, dim by dim."""
    positions = {dim: {label: index for index, label in enumerate(labels[dim])} for dim in dims}
    return tuple(
        np.array([index[label] for label in part.list_labels(dim)], np.intp) for dim, index in positions.items()
    )


def _extract_arrays(part: Part, names: Iterable[Any]) -> dict[str, np.ndarray]:
    return {str(name): part.dataset[name].values for name in names if name in part.dataset}


def _count_samples(parts: Iterable[Part]) -> int:
    """The largest number of samples of any trial."""
    return max(part.dataset.sizes.get("repeat", 0) for part in parts)


def _describe_conflicts(labels: Labels, conflicts: Iterable[Indices], total: int) -> str:
    cells = list(dict.fromkeys(tuple(cell) for conflict in conflicts for cell in np.transpose(conflict).tolist()))
    trials = []
    for cell in cells[:_NAMED]:
        factors = {dim: labels[dim][index] for dim, index in zip(labels, cell, strict=True)}
        device, workload, compiler, batch_size = (factors.pop(dim) for dim in LABELS)
        trials.append(f"{format_network(workload, factors)} batch {batch_size} {compiler} on {device}")
    more = f" and {len(cells) - _NAMED} more" if len(cells) > _NAMED else ""
    return (
        f"{len(cells)} of {total} trials were measured more than once: {', '.join(trials)}{more}. Exclude them from "
        "one dataset by .sel(…) or .drop_sel(…), or rename the device of one by .assign_coords(device=[…])."
    )


def _choose_missing(name: str, dtype: np.dtype[Any]) -> Any:
    """The fill value of a variable, as in `ngbkit.dataset.tabulate`, except that a status is empty."""
    if dtype.kind == "O":
        return ""
    if name in ("round", "anchor_round", "tie_round"):
        return NO_ROUND
    return np.nan if dtype.kind == "f" else 0


def _differ(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return whether anything differs, by the first axis; NaN equals NaN."""
    unequal = (values != others) & ((values == values) | (others == others))
    return np.asarray(unequal.any(axis=tuple(range(1, unequal.ndim))), dtype=bool)
