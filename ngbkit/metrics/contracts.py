"""Which columns were timed under another contract than what they are compared with.

A speed-up of two columns that differ in their precision or their threads is of the precision or the threads as much as
of the compiler, so it is asked for by name or not had.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError, UsageError
from ngbkit.sweep.trials import BASELINE

Unlike = Literal["error", "mask", "allow"]

COMPARED = ("precision", "threads", "transfers", "synchronised", "overlap", "clock", "flushed")
"""The fields of a contract that make two columns unlike; runtime and notes say what a compiler is."""


UNTUNED = "untuned"
"""What a contract notes of a compiler that is made to be tuned, and was not."""


class UnlikeContractsError(MetricError):
    """What is to be compared was timed under different contracts."""


def differing(
    dataset: xr.Dataset, metric: str, unlike: Unlike, *, against: str = "compiler", baseline: str = BASELINE
) -> xr.DataArray | None:
    """Where a metric is not to be computed; None where nothing is in its way.

    Parameters
    ----------
    dataset
        What `ngbkit.dataset.assembly.assemble` gave, whole or selected from.
    metric
        What is to be computed, for the message.
    unlike
        What to do about contracts that differ: raise an error, give a mask, or nothing.
    against
        With what each trial is compared: ``"compiler"`` for the `baseline` of its group, ``"batch_size"`` for its own
        column at batch size 1.
    baseline
        The label of a column.

    Raises
    ------
    UnlikeContractsError
        Contracts differ, and `unlike` is ``"error"``.
    UsageError
        `unlike` is none of the three.
    """
    if unlike not in get_args(Unlike):
        valid = ", ".join(map(repr, get_args(Unlike)))
        raise UsageError(f"{metric}() came with {unlike=}; valid are {valid}.")
    if unlike == "allow":
        return None
    unequal, reasons = _compared(dataset, against, baseline)
    if not reasons:
        return None
    if unlike == "mask":
        return unequal
    with_what = baseline if against == "compiler" else "the same column at batch size 1"
    listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    others = [name for name in _labels(dataset, "compiler") if name not in reasons]
    raise UnlikeContractsError(
        f"{metric}() compares with {with_what}, and these columns were timed under another contract: {listed}. "
        f'Leave them out by .sel(compiler={others}), have NaN there by unlike="mask", '
        'or compare them all the same by unlike="allow".'
    )


def unranked(dataset: xr.Dataset, metric: str, unlike: Unlike, untuned: bool) -> xr.DataArray | None:
    """Which trials have no place in an order: as `differing`, and those that were not tuned unless `untuned` is set."""
    mask = differing(dataset, metric, unlike)
    if untuned or "contract" not in dataset:
        return mask
    notes = field(dataset, "notes", "")
    raw = notes.copy(
        data=np.array([UNTUNED in str(text).split("; ") for text in notes.values.ravel()]).reshape(notes.shape)
    )
    return raw if mask is None else mask | raw


def remarks(data: Data, against: Iterable[str] = ("compiler",), *, baseline: str = BASELINE) -> list[str]:
    """One line a column that is not compared, and why: what tables and figures say beside their numbers."""
    lines: dict[str, None] = {}
    for node in nodes(data).values():
        for one in against:
            where = "" if one == "compiler" else " over batch sizes"
            _, reasons = _compared(node, one, baseline)
            lines |= {f"{name}: not compared{where}, {reason}": None for name, reason in reasons.items()}
    return list(lines)


def field(dataset: xr.Dataset, name: str, missing: Any) -> xr.DataArray:
    """One field of every contract, `missing` where there is no contract or not that field."""
    codes, contracts = _coded(dataset)
    values = np.array([contract.get(name, missing) for contract in contracts], dtype=object)
    return dataset["contract"].copy(data=values[codes])


def _compared(dataset: xr.Dataset, against: str, baseline: str) -> tuple[xr.DataArray, dict[str, str]]:
    """Which trials differ from what they are compared with, and in what, by column."""
    if "contract" not in dataset:
        return xr.DataArray(False), {}
    codes, contracts = _coded(dataset)
    coded = dataset["contract"].copy(data=codes)
    label: str | int = baseline if against == "compiler" else 1
    if against not in coded.dims or label not in coded[against]:
        return xr.DataArray(False), {}  # its own baseline, or none at all, which the metric says
    other = coded.sel({against: label}, drop=True)
    table = np.array([[bool(_differences(own, than)) for than in contracts] for own in contracts], dtype=bool)
    own, than = xr.broadcast(coded, other)
    unequal = own.copy(data=table[own.values, than.values]).transpose(*coded.dims)
    reasons: dict[str, dict[str, None]] = {}
    if unequal.any():
        own, than = own.transpose(*coded.dims), than.transpose(*coded.dims)
        names = unequal["compiler"].broadcast_like(unequal).transpose(*coded.dims).values[unequal.values]
        pairs = zip(names.tolist(), own.values[unequal.values], than.values[unequal.values], strict=True)
        for name, mine, theirs in dict.fromkeys(pairs):
            reasons.setdefault(str(name), {}).update(dict.fromkeys(_differences(contracts[mine], contracts[theirs])))
    return unequal, {name: ", ".join(lines) for name, lines in reasons.items()}


def _coded(dataset: xr.Dataset) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Each trial's contract as a number, and the contracts; one that is not there is empty."""
    found: dict[str, int] = {}
    codes = [found.setdefault(str(text), len(found)) for text in dataset["contract"].values.ravel().tolist()]
    read = [json.loads(text) if text.startswith("{") else {} for text in found]
    return np.array(codes, dtype=np.intp).reshape(dataset["contract"].shape), read


def _differences(own: dict[str, Any], than: dict[str, Any]) -> list[str]:
    both = [name for name in COMPARED if name in own and name in than]
    return [
        f"{name} {_written(own[name])} instead of {_written(than[name])}" for name in both if own[name] != than[name]
    ]


def _written(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _labels(dataset: xr.Dataset, dim: str) -> list[Any]:
    return np.atleast_1d(dataset[dim].values).tolist() if dim in dataset.coords else []
