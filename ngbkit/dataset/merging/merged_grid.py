"""Arrays over one grid that several datasets fill, with detection of conflicting cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ngbkit.errors import UsageError
from ngbkit.sweep.variables import NO_ROUND

Indices = tuple[np.ndarray, ...]
"""Indices along each dim of a grid: of the labels of a source; or, element by element, of some cells."""


@dataclass(slots=True, kw_only=True)
class Cells:
    """Arrays over the cells of one grid, by variable; an array of samples has one more axis."""

    arrays: dict[str, np.ndarray]
    missing: Mapping[str, Any]  # the fill value of each variable
    filled: np.ndarray  # which cells have values

    @classmethod
    def allocate(cls, shape: tuple[int, ...], sources: Sequence[Mapping[str, np.ndarray]], samples: int = 0) -> Cells:
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
