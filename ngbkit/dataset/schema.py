"""The contents of the dataset of a run, checked where a file may be of anything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from itertools import combinations
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_labels, list_trial_dims
from ngbkit.dataset.storage import Data
from ngbkit.errors import JournalError, NgbkitError, UsageError
from ngbkit.sweep import notes
from ngbkit.sweep.records import STATUSES
from ngbkit.sweep.variables import COORDINATES, DIMS, NO_ROUND, VARIABLES

_TEXT_DIMS = ("device", "workload", "compiler")
_TEXT_ATTRIBUTES = ("run_id", "created", "ngbkit_version", "source")
_JSON_ATTRIBUTES = ("sweep", "environments", "facts")
_JSON_VARIABLES = ("contract", "facts", "profile")
_FEW = 8
# Its powers and ratios are still numbers.
_LONGEST_S = 1e9
_MEASURED = ("latency", "throughput", "status")
_WHOLE = (*DIMS[:-1], *_MEASURED, "error", "contract", "compile_time")
# What a cell that no run requested has of each text and of each round.
_FILLED = {name: not variable.units for name, variable in VARIABLES.items() if not variable.units or "round" in name}
_Accessor = TypeVar("_Accessor", bound=type)
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


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
    """Return a part of a run's dataset in memory, cells that no run requested marked; UsageError if it is none."""
    if any(name in dataset.variables for dataset in nodes(data).values() for name in _MEASURED):
        try:
            data.load()
        except Exception as error:  # a file that is closed or damaged, or a chunk that its user computes
            raise UsageError(f"invalid dataset: its values do not load ({_shorten(error)}). Open it again.") from error
        try:
            for dataset in nodes(data).values():
                _check_labels(dataset)
        except ValueError as error:
            raise _build_error(error) from error
        return _mark_unrequested(data)
    names = list(dict.fromkeys(str(name) for dataset in nodes(data).values() for name in dataset.variables))
    raise UsageError(
        f"this dataset is not of a run: got {_list_few(names)}; expected {', '.join(_MEASURED)} and others over "
        f"{', '.join(DIMS[:-1])}. Measure one by %ngbench or ngbkit.Sweep, or ngbkit.load() one."
    )


def require_distinct(data: Data) -> Data:
    """Return a dataset or tree of which no trial is in two nodes, whose rows would look alike; else `UsageError`."""
    grids = [
        (path, {dim: {*list_labels(node, dim)} for dim in list_trial_dims(node) if dim in node.coords})
        for path, node in nodes(data).items()
    ]
    for (first, labels), (second, others) in combinations(grids, 2):
        if labels.keys() == others.keys() and all(labels[dim] & others[dim] for dim in labels):
            raise UsageError(
                f"invalid tree: got trials of the same labels in {first} and {second}; expected each trial once. Merge "
                "the nodes by ngbkit.merge, or use them one after the other."
            )
    return data


def explain_missing(accessor: _Accessor) -> _Accessor:
    """Have each public method of a class, whose ``_data`` is a dataset, say what the dataset lacks where it fails."""
    for name, method in [*vars(accessor).items()]:
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(accessor, name, explain_damage(method))
    return accessor


def explain_damage(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Have a function say what a dataset among its arguments, or that of its accessor, lacks where it fails."""

    @wraps(function)
    def call(*args: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        try:
            return function(*args, **options)
        except NgbkitError:
            raise
        except Exception as error:
            for value in (*args, *options.values()):
                for part in value if isinstance(value, (list, tuple)) else [value]:
                    data = part if isinstance(part, Data) else getattr(part, "_data", None)
                    if isinstance(data, Data):
                        _require_whole(data, error)
            raise

    return call


def _require_whole(data: Data, error: Exception) -> None:
    """Raise a `UsageError` because of an error if any dataset of a tree is not as that of a run."""
    datasets = nodes(data).values()
    missing = [name for name in _WHOLE if any(name not in dataset.variables for dataset in datasets)]
    missing += ["repeat"] * any("repeat" not in dataset.get("latency", dataset).dims for dataset in datasets)
    if missing:
        raise UsageError(
            f"this dataset lacks {_list_few(missing)}, which that of a run has. Use it as it was measured; "
            ".sel(device='cpu') keeps the label that it selects, unless drop=True, and intervals and medians are of "
            "the samples along repeat."
        ) from error
    try:
        for dataset in datasets:
            for dim, size in dataset.sizes.items():
                if not size:
                    raise ValueError(f"it has nothing along {dim}; widen the selection")
            _check(dataset)
    except ValueError as reason:
        raise _build_error(reason) from error


def _build_error(reason: Exception) -> UsageError:
    remedy = "" if ";" in str(reason) else " Use it as it was measured."
    return UsageError(f"this dataset is not as that of a run: {reason}.{remedy}")


def _mark_unrequested(data: Data) -> Data:
    """Mark the cells that `where`, `reindex` or a join of labels added as those of a merge that no run requested."""
    datasets = nodes(data)
    marked = {path: _fill(dataset) for path, dataset in datasets.items()}
    if all(marked[path] is dataset for path, dataset in datasets.items()):
        return data
    tree = {"/": xr.Dataset(attrs=data.attrs), **marked}
    return marked["/"] if isinstance(data, xr.Dataset) else xr.DataTree.from_dict(tree)


def _fill(dataset: xr.Dataset) -> xr.Dataset:
    fills = {
        name: "" if is_text else NO_ROUND
        for name, is_text in _FILLED.items()
        if name in dataset and dataset[name].dtype.kind == ("O" if is_text else "f") and dataset[name].isnull().any()
    }
    return dataset.fillna(fills) if fills else dataset


def _shorten(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _list_few(names: list[str]) -> str:
    return ", ".join([*names[:_FEW], "…"] if len(names) > _FEW else names) or "nothing"


def _check(dataset: xr.Dataset) -> None:
    """Raise a `ValueError` with the reason why a dataset is none of a run."""
    missing = [name for name in ("latency", "status", *DIMS[:-1]) if name not in dataset.variables]
    if missing:
        raise ValueError(f"it has no {' and no '.join(missing)}")
    for dim in DIMS[:-1]:
        _check_kind(dim, dataset[dim].variable, is_text=dim in _TEXT_DIMS)
        if dataset[dim].dims not in ((), (dim,)):
            raise ValueError(f"{dim} has labels along {' and '.join(map(str, dataset[dim].dims))}")
    unlabelled = [dim for dim in dataset.dims if dim != "repeat" and dim not in dataset.coords]
    if unlabelled:
        raise ValueError(f"it has no labels along {unlabelled[0]}")
    _check_labels(dataset)
    dims = set(dataset["latency"].dims)
    if "repeat" not in dims:
        raise ValueError("latency has no samples")
    for name, declared in (*VARIABLES.items(), *COORDINATES.items()):
        if name in dataset.variables:
            _check_kind(name, dataset[name].variable, is_text=not declared.units)
            surplus = set(dataset[name].dims) - (dims - {"repeat"} if declared.dims == "trial" else dims)
            if surplus:
                raise ValueError(f"{name} has a value for each {sorted(map(str, surplus))[0]}")
            if declared.dims == "sample" and (missing_dims := dims - set(dataset[name].dims)):
                raise ValueError(f"{name} has no value for each {sorted(map(str, missing_dims))[0]}")
    if (dataset["batch_size"] < 1).any() or dataset["batch_size"].dtype.kind != "i":
        raise ValueError("a batch size is no integer >= 1")
    # A merge of several runs has cells that none of them requested.
    unknown = set(dataset["status"].values.ravel().tolist()) - {*STATUSES, ""}
    if unknown:
        raise ValueError(f"unknown status {sorted(unknown)[0]!r}")
    latency = dataset["latency"].values
    if not (np.isnan(latency) | ((latency > 0) & (latency < _LONGEST_S))).all():
        raise ValueError("a latency is no number of seconds above 0")
    for name in _TEXT_ATTRIBUTES:
        if not isinstance(dataset.attrs.get(name, ""), str):
            raise ValueError(f"{name} is no text")
    for name in _JSON_ATTRIBUTES:
        _check_json(name, dataset.attrs.get(name, "{}"))
    workloads = json.loads(dataset.attrs.get("sweep", "{}")).get("workloads", [])
    if not isinstance(workloads, list) or not all(isinstance(network, dict) for network in workloads):
        raise ValueError("sweep has workloads that are no objects")
    for key, network in json.loads(dataset.attrs.get("facts", "{}")).items():
        if not key.startswith("[") or not isinstance(network, dict):
            raise ValueError(f"facts has no object of a network: {key[:40]!r}")
    for label, description in json.loads(dataset.attrs.get("environments", "{}")).items():
        try:
            notes.parse("environment", label, description)
        except JournalError as error:
            raise ValueError(str(error).removesuffix(".")) from error
    for name in _JSON_VARIABLES:
        for text in set(dataset[name].values.ravel().tolist()) if name in dataset.variables else ():
            _check_json(name, text or "{}")


def _check_labels(dataset: xr.Dataset) -> None:
    """Raise a `ValueError` with the reason why labels do not identify the trials of a dataset."""
    for dim, index in dataset.indexes.items():
        if index.nlevels > 1:
            raise ValueError(f"it has {' and '.join(map(str, index.names))} as one dim; separate them by .unstack()")
        if not index.is_unique:
            labels = _list_few([*map(str, index[index.duplicated()].unique())])
            raise ValueError(
                f"it has a label of {dim} twice ({labels}); join runs by ngbkit.merge(first, second), or rename the "
                f"labels of one by .assign_coords({dim}=[…])"
            )
        if index.hasnans:
            raise ValueError(
                f"it has a missing label of {dim}; select the others by .isel({dim}=ds[{dim!r}].notnull())"
            )
    for name, declared in VARIABLES.items():
        if declared.dims == "trial" and name in dataset and "repeat" in dataset[name].dims:
            raise ValueError(f"{name} has a value for each repeat")


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
