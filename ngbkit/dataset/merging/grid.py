"""Arrays over one grid that several datasets fill, and where two of them clash."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ngbkit.dataset.tabulate import NO_ROUND
from ngbkit.errors import UsageError

Place = tuple[np.ndarray, ...]
"""Numbers along each dim of a grid: where the labels of a source are; or, number by number, some cells."""


@dataclass(slots=True, kw_only=True)
class Grid:
    """Arrays over the cells of one grid, by variable; one of samples has an axis more. `taken` is where anything is."""

    arrays: dict[str, np.ndarray]
    missing: Mapping[str, Any]
    taken: np.ndarray

    @classmethod
    def blank(cls, shape: tuple[int, ...], sources: Sequence[Mapping[str, np.ndarray]], samples: int = 0) -> Grid:
        """Room for all that the sources hold, and for so many samples a cell.

        Raises
        ------
        UsageError
            Of a variable, one source has samples and another a single value a cell.
        """
        arrays: dict[str, np.ndarray] = {}
        missing: dict[str, Any] = {}
        for name in dict.fromkeys(chain.from_iterable(sources)):
            found = [source[name] for source in sources if name in source]
            if len({each.ndim for each in found}) > 1:
                raise UsageError(
                    f"{name} has samples in one dataset and a single value a trial in another. Merge what the runs "
                    f'gave, or leave it out by .drop_vars("{name}").'
                )
            texts = any(each.dtype.kind in "OUT" for each in found)
            dtype = np.dtype(object) if texts else np.result_type(*found)
            missing[name] = _missing(name, dtype)
            arrays[name] = np.full((*shape, samples)[: found[0].ndim], missing[name], dtype=dtype)
        return cls(arrays=arrays, missing=missing, taken=np.zeros(shape, dtype=bool))

    def put(self, source: Mapping[str, np.ndarray], place: Place, mask: np.ndarray) -> Place:
        """Take the cells of a source that the mask picks; the cells where something else is already, which stays.

        Parameters
        ----------
        source
            Arrays by variable; one that it lacks is missing in all its cells.
        place
            Where the labels of the source are, dim by dim.
        mask
            Over the cells of the source.
        """
        at = np.nonzero(mask)
        to = tuple(axis[each] for axis, each in zip(place, at, strict=True))
        again = self.taken[to]
        fresh, stood = (tuple(axis[which] for axis in to) for which in (~again, again))
        clash = np.zeros(len(stood[0]), dtype=bool)
        for name, own in self.arrays.items():
            if name in source:
                values = self._as_long(name, source[name][at])
                own[fresh] = values[~again]
                clash |= _differ(own[stood], values[again])
            else:
                clash |= _differ(own[stood], np.full(own[stood].shape, self.missing[name], dtype=own.dtype))
        self.taken[to] = True
        return tuple(axis[clash] for axis in stood)

    def clear(self, cells: Place) -> None:
        """Have nothing in these cells."""
        for name, own in self.arrays.items():
            own[cells] = self.missing[name]
        self.taken[cells] = False

    def _as_long(self, name: str, values: np.ndarray) -> np.ndarray:
        """Cells with as many samples as the grid has room for, the last of them missing."""
        length = self.arrays[name].shape[self.taken.ndim :]
        if values.shape[1:] == length:
            return values
        padded = np.full((len(values), *length), self.missing[name], dtype=self.arrays[name].dtype)
        padded[:, : values.shape[1]] = values
        return padded


def _missing(name: str, dtype: np.dtype[Any]) -> Any:
    """What stands where nothing was asked for: as in `ngbkit.dataset.tabulate`, but for a status, which is empty."""
    if dtype.kind == "O":
        return ""
    if name in ("round", "anchor_round"):
        return NO_ROUND
    return np.nan if dtype.kind == "f" else 0


def _differ(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """By the first axis: whether anything differs; NaN is like NaN."""
    apart = (one != other) & ((one == one) | (other == other))
    return np.asarray(apart.any(axis=tuple(range(1, apart.ndim))), dtype=bool)
