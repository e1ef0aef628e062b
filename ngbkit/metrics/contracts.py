"""Columns whose timing contract differs from that of the column they are compared with.

A speed-up of two columns that differ in precision or threads measures the precision or the threads as much as the
compiler, so the caller must request it by name. A sweep with `accept` requests it of the precisions that its labels
name: those that cost too much have failed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, Literal

import numpy as np
import xarray as xr

from ngbkit import validation
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_labels, map_cells
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.sweep.column import BASELINE, Column
from ngbkit.sweep.memory import MEMORY, SYSTEM
from ngbkit.user_text import join_names
from ngbkit.workloads.precision import PRECISION

Unlike = Literal["error", "mask", "allow"]

COMPARED = ("precision", "threads", "transfers", "synchronised", "overlap", "clock", "flushed", "memory")
"""The fields of a contract that make two columns unlike; runtime and notes describe the compiler."""


_PHRASES = {"overlap": "{value} requests in flight instead of {other}"}

UNTUNED = "untuned"
"""The note in the contract of a compiler that supports tuning but was not tuned."""


class UnlikeContractsError(MetricError):
    """The columns to compare were timed under different contracts."""


def mask_unlike(
    dataset: xr.Dataset,
    metric: str,
    unlike: Unlike,
    *,
    against: str = "compiler",
    baseline: str = BASELINE,
    is_ranked: bool = False,
) -> xr.DataArray | None:
    """A mask of the trials that a metric must not compare; None if there are none.

    Each trial is compared with the `baseline` of its group (`against` ``"compiler"``), or with its own column at batch
    size 1 (``"batch_size"``). Differing contracts raise `UnlikeContractsError` if `unlike` is ``"error"``. A precision
    that a label names was asked for, so it is compared; it is ranked only where the sweep accepts its cost.
    """
    validation.check("unlike", Unlike, unlike)
    if unlike == "allow":
        return None
    unequal, reasons = _compare_contracts(_ignore_named(dataset, is_ranked), against, baseline)
    if Column.read(baseline).is_marked:
        return None
    reasons = {name: reason for name, reason in reasons.items() if not Column.read(name).is_marked}
    if not reasons:
        return None
    columns = unequal["compiler"]
    is_allowed = map_cells(columns, lambda name: Column.read(str(name)).is_marked, bool)
    unequal = (unequal & ~is_allowed).transpose(*unequal.dims)
    if unlike == "mask":
        return unequal
    reference = baseline if against == "compiler" else "the same column at batch size 1"
    differences = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    similar = [name for name in list_labels(dataset, "compiler") if name not in reasons]
    raise UnlikeContractsError(
        f"{metric}() compares with {reference}, but these columns were timed under another contract: {differences}. "
        f'Exclude them by .sel(compiler={similar}), set them to NaN by unlike="mask", '
        'or compare them anyway by unlike="allow", or by ds.ngb.allow_unlike() with a mark in tables and figures.'
    )


def allow_unlike(data: Data) -> Data:
    """Let columns be compared that were timed under another contract, and mark each by ``†`` behind its label.

    OpenVINO optimised for throughput overlaps requests, which `identity` does not: its speed-up is one of the overlap,
    too. Tables and figures of the result have such columns, and a note that says what differs.

    Parameters
    ----------
    data
        A dataset or a tree.

    Returns
    -------
    xarray.Dataset or xarray.DataTree
        The same trials. A label along `compiler` is marked if its contract differs from that of `identity`, or between
        batch sizes. It is selected with its mark or without.

    Examples
    --------
    >>> ds.ngb.allow_unlike().ngb.plot.speedup()  # doctest: +SKIP
    """
    parts = nodes(data)
    unlike = {
        name
        for node in parts.values()
        for against in ("compiler", "batch_size")
        for name in _compare_contracts(node, against, BASELINE)[1]
    }

    def mark(label: str) -> str:
        return replace(Column.read(label), is_marked=True).label if label in unlike else label

    marked = {path: node.assign_coords(compiler=map_cells(node["compiler"], mark)) for path, node in parts.items()}
    if isinstance(data, xr.Dataset):
        return next(iter(marked.values()))
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=data.attrs), **marked})


def mask_unranked(dataset: xr.Dataset, metric: str, unlike: Unlike, untuned: bool) -> xr.DataArray | None:
    """A mask of the trials that get no rank: the trials of `mask_unlike`, and untuned ones unless `untuned` is set."""
    mask = mask_unlike(dataset, metric, unlike, is_ranked=True)
    if untuned or "contract" not in dataset:
        return mask
    raw = mask_untuned(dataset)
    return raw if mask is None else mask | raw


def mask_untuned(dataset: xr.Dataset) -> xr.DataArray:
    """A mask of the trials whose contract marks them as untuned, although their compiler supports tuning."""
    return map_cells(extract_field(dataset, "notes", ""), lambda text: UNTUNED in str(text).split("; "), bool)


def list_uncompared(data: Data, against: Collection[str] = ("compiler",), *, baseline: str = BASELINE) -> list[str]:
    """One line per difference of columns that are not compared, or although unlike: the notes of tables and figures."""
    names: dict[str, dict[str, None]] = {}
    for name, is_compared, text in _iterate_unlike(data, against, baseline):
        names.setdefault(f"{'compared although unlike' if is_compared else 'not compared'}{text}", {})[name] = None
    return [f"{join_names(columns)}: {text}" for text, columns in names.items()]


def list_compared(data: Data, against: Collection[str] = ("compiler",)) -> list[str]:
    """List the columns that are compared although unlike, and whose label has no `MARK`."""
    columns = [name for name, is_compared, _ in _iterate_unlike(data, against, BASELINE) if is_compared]
    return [name for name in dict.fromkeys(columns) if not Column.read(name).is_marked]


def _iterate_unlike(data: Data, against: Collection[str], baseline: str) -> Iterator[tuple[str, bool, str]]:
    """Iterate over the unlike columns: whether each is compared all the same, and what differs."""
    for node in nodes(data).values():
        has_marks = any(Column.read(str(name)).is_marked for name in list_labels(node, "compiler"))
        for dim in ("compiler", "batch_size") if has_marks else against:
            scope = "" if dim == "compiler" else " over batch sizes"
            excluded = _compare_contracts(_ignore_named(node), dim, baseline)[1]
            for name, reason in _compare_contracts(node, dim, baseline)[1].items():
                is_allowed = Column.read(name).is_marked or Column.read(baseline).is_marked
                is_compared = is_allowed or name not in excluded
                if is_compared or dim in against:
                    yield name, is_compared, f"{scope}, {reason}"


def list_differences(dataset: xr.Dataset, *, baseline: str = BASELINE) -> dict[str, str]:
    """By column that was timed under another contract than the baseline: the differences."""
    return _compare_contracts(_ignore_named(dataset, is_ranked=True), "compiler", baseline)[1]


def extract_field(dataset: xr.Dataset, name: str, missing: Any) -> xr.DataArray:
    """One field of every contract; `missing` where the contract or the field is missing."""
    codes, contracts = _encode_contracts(dataset["contract"])
    values = np.array([contract.get(name, missing) for contract in contracts], dtype=object)
    return dataset["contract"].copy(data=values[codes])


def _compare_contracts(dataset: xr.Dataset, against: str, baseline: str) -> tuple[xr.DataArray, dict[str, str]]:
    """A mask of the trials that differ from their reference, and the differences by column."""
    if "contract" not in dataset:
        return xr.DataArray(False), {}
    codes, contracts = _encode_contracts(dataset["contract"])
    coded = dataset["contract"].copy(data=codes)
    label: str | int = baseline if against == "compiler" else 1
    if against not in coded.dims or label not in coded[against]:
        return xr.DataArray(False), {}  # it is its own reference, or there is none, which the metric reports
    reference = coded.sel({against: label}, drop=True)
    table = np.array([[bool(describe_differences(a, b)) for b in contracts] for a in contracts], dtype=bool)
    column, other = xr.broadcast(coded, reference)
    unequal = column.copy(data=table[column.values, other.values]).transpose(*coded.dims)
    reasons: dict[str, dict[str, None]] = {}
    if unequal.any():
        column, other = column.transpose(*coded.dims), other.transpose(*coded.dims)
        names = unequal["compiler"].broadcast_like(unequal).transpose(*coded.dims).values[unequal.values]
        pairs = zip(names.tolist(), column.values[unequal.values], other.values[unequal.values], strict=True)
        for name, a, b in dict.fromkeys(pairs):
            lines = describe_differences(contracts[a], contracts[b])
            reasons.setdefault(str(name), {}).update(dict.fromkeys(lines))
    return unequal, {name: ", ".join(lines) for name, lines in reasons.items()}


def _ignore_named(dataset: xr.Dataset, is_ranked: bool = False) -> xr.Dataset:
    """Return a dataset whose contracts lack the precision and the memory that the label of their column names."""
    # A ranking has a precision only where the sweep accepts its cost, and no `system`, which is never the fastest.
    if "contract" not in dataset or "compiler" not in dataset["contract"].coords:
        return dataset
    is_accepted = not is_ranked or json.loads(dataset.attrs.get("sweep") or "{}").get("accept")
    for field in (*([PRECISION] if is_accepted else []), MEMORY):
        contract = dataset["contract"]
        columns = map_cells(contract["compiler"], lambda label: Column.read(str(label)))
        choices = map_cells(columns, attrgetter(field))
        chosen = choices.astype(bool) & ~((choices == SYSTEM) & is_ranked)
        if chosen.any():
            unnamed = map_cells(contract, partial(_drop, field=field))
            dataset = dataset.assign(contract=unnamed.where(chosen, contract))
    return dataset


def _drop(text: str, field: str) -> str:
    """Drop a field of a contract, so that no other one differs in it."""
    contract = json.loads(text) if text.startswith("{") else {}
    return json.dumps({**contract, field: None}) if contract else text


def _encode_contracts(texts: xr.DataArray) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Each trial's contract as an index into the list of distinct contracts; a missing contract is empty."""
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(str(text), len(numbers)) for text in texts.values.ravel().tolist()]
    contracts = [{MEMORY: SYSTEM, **json.loads(text)} if text.startswith("{") else {} for text in numbers]
    return np.array(codes, dtype=np.intp).reshape(texts.shape), contracts


def describe_differences(contract: dict[str, Any], reference: dict[str, Any]) -> list[str]:
    """Describe in a phrase each how a contract differs from the one that it is compared with."""
    phrases = [
        _PHRASES.get(name, "{name} {value} instead of {other}").format(
            name=name, value=_format_value(contract[name]), other=_format_value(reference[name])
        )
        for name in COMPARED
        if None not in (contract.get(name), reference.get(name)) and contract[name] != reference[name]
    ]
    was_checked, is_checked = bool(reference.get("inputs")), bool(contract.get("inputs"))
    if not contract or not reference or was_checked == is_checked:
        return phrases
    return [
        *phrases,
        "other inputs in every call" if is_checked else "the same inputs in every call, and no check of it",
    ]


def _format_value(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
