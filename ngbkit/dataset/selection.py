"""Selects trials by their labels: from a dataset or a tree, and from a frame in long form."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_factors, list_labels
from ngbkit.dataset.storage import Data
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.sweep.column import Column

if TYPE_CHECKING:
    import pandas as pd

Select = Mapping[str, Any]
"""By dim, the label or the labels to select."""

LABELS = ("device", "compiler", "batch_size")
"""The dims of every trial, beside its workload and its factors."""


def select(data: Data, **labels: Any) -> Data:
    """Select trials by their labels, from a tree too.

    Parameters
    ----------
    data
        A dataset or a tree.
    **labels
        By dim, a label, which drops the dim as `xarray.Dataset.sel` does, or a list of labels, which keeps it:
        ``workload=["resnet18", "resnet50"], device="cpu"``.

    Returns
    -------
    xarray.Dataset or xarray.DataTree
        Of a tree, the nodes that have any of the labels of each dim; a single such node is returned as a dataset.

    Raises
    ------
    UnknownNameError
        There is no such dim or label.
    UsageError
        No node has labels of all of the dims.
    """
    every = nodes(data)
    for dim, selection in labels.items():
        dims = ["workload", *list_factors(data), *LABELS]
        if dim not in dims:
            raise UnknownNameError("dim", dim, dims)
        present = [label for node in every.values() for label in list_labels(node, dim)]
        labels[dim] = match_labels(dim, selection, present)
    parts = {path: part for path, node in every.items() if (part := _select_node(node, labels)) is not None}
    if not parts:
        raise UsageError(f"no network has all of {_describe(labels)}. Widen the selection.")
    if len(parts) == 1:
        (part,) = parts.values()
        return part.assign_attrs({**data.attrs, **part.attrs})
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=data.attrs), **parts})


def select_rows(frame: pd.DataFrame, labels: Select, dims: Collection[str]) -> pd.DataFrame:
    """The rows of a frame in long form with these labels; of their dims, each is one of `dims`."""
    for dim, selection in labels.items():
        if dim not in dims:
            raise UnknownNameError("dim", dim, dims)
        matched = match_labels(dim, selection, frame[dim].tolist())
        frame = frame[frame[dim].isin(list_selected(matched))]
    if frame.empty:
        selections = f"with {_describe(labels)}" if labels else "in this dataset"
        raise UsageError(f"no trial {selections}. Widen the selection.")
    return frame.reset_index(drop=True)


def list_selected(selection: Any) -> list[Any]:
    """The labels of a selection, which is one of them or a collection."""
    return [selection] if _is_label(selection) else list(selection)


def match_labels(dim: str, selection: Any, labels: Iterable[Any]) -> Any:
    """Match a selection with the labels of a dim; `UnknownNameError` for an unknown label."""
    present = list(dict.fromkeys(labels))
    matched = [_match_label(dim, label, present) for label in list_selected(selection)]
    return matched[0] if _is_label(selection) else matched


def _match_label(dim: str, label: Any, present: Sequence[Any]) -> Any:
    others = [other for other in present if dim == "compiler" and Column.read(other).matches(str(label))]
    if label not in present and not others:
        raise UnknownNameError(dim.replace("_", " "), str(label), map(str, present))
    return label if label in present else others[0]


def _select_node(node: xr.Dataset, labels: Select) -> xr.Dataset | None:
    """The part of a node with these labels; None where it has none of those of a dim."""
    indexers: dict[str, Any] = {}
    for dim, selection in labels.items():
        present = list_labels(node, dim)
        selected = [label for label in list_selected(selection) if label in present]
        if not selected:
            return None
        if dim in node.dims:
            places = [present.index(label) for label in selected]
            indexers[dim] = places[0] if _is_label(selection) else places
    return node.isel(indexers)


def _is_label(selection: Any) -> bool:
    return isinstance(selection, str) or not isinstance(selection, Collection)


def _describe(labels: Select) -> str:
    return ", ".join(f"{dim}={selection!r}" for dim, selection in labels.items())
