"""What the dataset of a run consists of, checked where a file may be of anything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import JournalError, NgbkitError, UsageError
from ngbkit.sweep import notes
from ngbkit.sweep.records import STATUSES
from ngbkit.sweep.variables import COORDINATES, DIMS, VARIABLES

_TEXT_DIMS = ("device", "workload", "compiler")
_JSON_ATTRIBUTES = ("sweep", "environments", "facts")
_JSON_VARIABLES = ("contract", "facts")
_FEW = 8
_MEASURED = ("latency", "throughput", "status")
_Accessor = TypeVar("_Accessor", bound=type)


def require_run(data: Data, source: str) -> Data:
    """Return the dataset of a run, which was read from `source`; `UsageError` if it is another or a damaged one."""
    try:
        datasets = nodes(data)
        if not datasets:
            raise ValueError("it has no variables")
        for dataset in datasets.values():
            _check(dataset)
    except ValueError as error:
        raise UsageError(f"{source} is not the dataset of a run: {error}. Name a file that ngbkit saved.") from error
    return data


def require_measured(data: Data) -> Data:
    """Return a dataset that is at least a part of that of a run; `UsageError` for any other, as of another program."""
    if any(name in dataset.variables for dataset in nodes(data).values() for name in _MEASURED):
        return data
    names = list(dict.fromkeys(str(name) for dataset in nodes(data).values() for name in dataset.variables))
    raise UsageError(
        f"this dataset is not of a run: got {_list_few(names)}; expected {', '.join(_MEASURED)} and others over "
        f"{', '.join(DIMS[:-1])}. Measure one by %ngbench or ngbkit.Sweep, or ngbkit.load() one."
    )


def explain_missing(accessor: _Accessor) -> _Accessor:
    """Have each public method of a class, whose ``_data`` is a dataset, say what the dataset lacks where it fails."""
    for name, method in [*vars(accessor).items()]:
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(accessor, name, _explain(method))
    return accessor


def _explain(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(accessor: Any, *args: Any, **options: Any) -> Any:
        try:
            return method(accessor, *args, **options)
        except NgbkitError:
            raise
        except Exception as error:
            for data in (accessor._data, *args, *options.values()):
                if isinstance(data, Data) and (missing := _list_missing(data)):
                    raise UsageError(
                        f"this dataset lacks {_list_few(missing)}, which that of a run has. Use it as it was measured; "
                        ".sel(device='cpu') keeps the label that it selects, unless drop=True."
                    ) from error
            raise

    return call


def _list_missing(data: Data) -> list[str]:
    """List the variables and the labels of a run that any dataset of a tree lacks."""
    names = [*DIMS[:-1], *_MEASURED]
    return [name for name in names if any(name not in dataset.variables for dataset in nodes(data).values())]


def _list_few(names: list[str]) -> str:
    return ", ".join([*names[:_FEW], "…"] if len(names) > _FEW else names) or "nothing"


def _check(dataset: xr.Dataset) -> None:
    """Raise a `ValueError` with the reason why a dataset is none of a run."""
    missing = [name for name in ("latency", "status", *DIMS[:-1]) if name not in dataset.variables]
    if missing:
        raise ValueError(f"it has no {' and no '.join(missing)}")
    for dim in DIMS[:-1]:
        _check_kind(dim, dataset[dim].variable, is_text=dim in _TEXT_DIMS)
    unlabelled = [dim for dim in dataset.dims if dim != "repeat" and dim not in dataset.coords]
    if unlabelled:
        raise ValueError(f"it has no labels along {unlabelled[0]}")
    repeated = [dim for dim, index in dataset.indexes.items() if not index.is_unique]
    if repeated:
        raise ValueError(f"it has a label of {repeated[0]} twice")
    dims = set(dataset["latency"].dims)
    if "repeat" not in dims:
        raise ValueError("latency has no samples")
    for name, declared in (*VARIABLES.items(), *COORDINATES.items()):
        if name in dataset.variables:
            _check_kind(name, dataset[name].variable, is_text=not declared.units)
            surplus = set(dataset[name].dims) - (dims - {"repeat"} if declared.dims == "trial" else dims)
            if surplus:
                raise ValueError(f"{name} has a value for each {sorted(map(str, surplus))[0]}")
    if (dataset["batch_size"] < 1).any() or dataset["batch_size"].dtype.kind != "i":
        raise ValueError("a batch size is no integer >= 1")
    # A merge of several runs has cells that none of them requested.
    unknown = set(dataset["status"].values.ravel().tolist()) - {*STATUSES, ""}
    if unknown:
        raise ValueError(f"unknown status {sorted(unknown)[0]!r}")
    latency = dataset["latency"].values
    if not (np.isnan(latency) | ((latency > 0) & (latency < np.inf))).all():
        raise ValueError("a latency is no number of seconds above 0")
    for name in _JSON_ATTRIBUTES:
        _check_json(name, dataset.attrs.get(name, "{}"))
    for label, description in json.loads(dataset.attrs.get("environments", "{}")).items():
        try:
            notes.parse("environment", label, description)
        except JournalError as error:
            raise ValueError(str(error).removesuffix(".")) from error
    for name in _JSON_VARIABLES:
        for text in set(dataset[name].values.ravel().tolist()) if name in dataset.variables else ():
            _check_json(name, text or "{}")


def _check_kind(name: str, variable: xr.Variable, *, is_text: bool) -> None:
    values = variable.values
    is_valid = all(isinstance(text, str) for text in values.ravel().tolist()) if is_text else values.dtype.kind in "iuf"
    if not is_valid:
        raise ValueError(f"{name} has values of {values.dtype} that are no {'texts' if is_text else 'numbers'}")


def _check_json(name: str, text: Any) -> None:
    try:
        content = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{name} is no JSON object: {str(text)[:40]!r}")
