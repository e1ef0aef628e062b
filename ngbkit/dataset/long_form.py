"""Datasets in long form: a pandas frame with one row per trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import factor_dims, nodes
from ngbkit.dataset.storage import Data

if TYPE_CHECKING:
    import pandas as pd


def list_trial_dims(dataset: xr.Dataset) -> list[str]:
    """The dims whose labels identify a trial, in the order of the columns of every table."""
    return ["workload", *factor_dims(dataset), "device", "compiler", "batch_size"]


def list_factors(data: Data) -> list[str]:
    """The factors that any node of a dataset or tree varies, in order."""
    return list(dict.fromkeys(name for node in nodes(data).values() for name in factor_dims(node)))


def list_labels(values: xr.DataArray | Data, dim: str) -> list[Any]:
    """The labels along a dim, also where one was selected, in all nodes of a tree; empty without that coordinate."""
    import pandas as pd

    if isinstance(values, xr.DataTree):
        return list(dict.fromkeys(label for node in nodes(values).values() for label in list_labels(node, dim)))
    # An index keeps a moment, which `tolist` of NumPy turns into a number of nanoseconds.
    return pd.Index(np.atleast_1d(values[dim].values), tupleize_cols=False).tolist() if dim in values.coords else []


def map_cells(values: xr.DataArray, convert: Callable[[Any], Any], dtype: type = object) -> xr.DataArray:
    """Convert each value of an array, such as the JSON of each trial."""
    cells: np.ndarray = np.empty(values.size, dtype)
    for place, cell in enumerate(values.values.ravel().tolist()):
        cells[place] = convert(cell)
    return values.copy(data=cells.reshape(values.shape))


def expand_labels(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset with a dim of length 1 for each label that was selected, which `.sel` leaves as a scalar."""
    dims = list_trial_dims(dataset)
    return dataset.expand_dims([dim for dim in dims if dim in dataset.coords and dim not in dataset.dims])


def to_frame(trials: xr.Dataset) -> pd.DataFrame:
    """One row per trial, in the order of the dims: its labels, then the variables."""
    variables = [str(name) for name in trials.data_vars]
    frame = expand_labels(trials).reset_coords(drop=True).to_dataframe().reset_index()
    labels = [dim for dim in list_trial_dims(trials) if dim in frame]
    return frame[[*labels, *variables]]
