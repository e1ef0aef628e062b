"""Fresh inputs of a program: in every call a few elements of each sample are other ones.

What a program reads is overwritten in place, outside the timed region: no call sees inputs that an earlier one saw, and
since only a cache line of each sample changes, caches stay as warm as they were. Drawn values are drawn again; numbers
that the user gave change in their last digits; other given values change places, row by row.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ngbkit.compilers.base import Memory, Program
from ngbkit.workloads import feeds
from ngbkit.workloads.base import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]
Manner = Literal["fresh", "nudged", "rotated", "same"]
"""The difference of inputs from call to call: drawn again, given numbers in their last digits, other rows, or none."""

# The bytes of a sample that change in a call, and the places of a turn that do in turns.
_LINE_BYTES, _PLACES = 64, 4
# The least number of values from which a call takes its own at a random offset.
_POOL = 1 << 17
# The spacing of floating-point numbers whose last digits change.
_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True, slots=True)
class _Cell:
    """Elements of an input that change together: where a program reads them, and windows of the values they get."""

    memory: Any
    windows: Array
    # The values that were fed; new ones are these times the window if they are `nudged`.
    fed: Array
    nudged: bool


@dataclass(slots=True)
class FreshInputs:
    """The inputs of one program, of which each call gets other ones."""

    program: Program
    inputs: Sequence[TensorSpec]
    examples: Mapping[str, Array]
    # As fed last.
    arrays: Sequence[Array]
    batch_size: int
    # Of this object alone: the network could foresee those of a module.
    _random: random.Random = field(default_factory=lambda: random.Random(random.SystemRandom().getrandbits(128)))
    _generator: np.random.Generator = field(default_factory=np.random.default_rng)
    _memory: Sequence[Sequence[Memory]] = ()
    # Where a runtime has no memory to write to, its inputs are changed here and fed whole.
    _copies: list[Array] = field(default_factory=list)
    _pools: dict[int, Array] = field(default_factory=dict)
    _places: list[list[_Cell]] = field(default_factory=list)
    _rotated: list[int] = field(default_factory=list)
    _calls: int = 0

    def __post_init__(self) -> None:
        self._memory = self.program.memory
        if not self._memory and self.program.feed is not None:
            self._copies = [array.copy() for array in self.arrays]
            self._memory = [[array] for array in self._copies]
        for index, spec in enumerate(self.inputs if self._memory else ()):
            if (pool := self._build_pool(spec, self.arrays[index])) is not None:
                self._pools[index] = pool
        if self._memory and not self._pools:
            rows = [feeds.count_given_rows(spec, self.examples[spec.name]) for spec in self.inputs]
            self._rotated = [index for index, count in enumerate(rows) if count > 1]
        self._choose_places()

    @property
    def is_fed(self) -> bool:
        """True if the program takes other inputs than its first."""
        return bool(self._memory)

    @property
    def manner(self) -> Manner:
        """The difference between the inputs of two calls."""
        if any(self.inputs[index].name not in self.examples for index in self._pools):
            return "fresh"
        return "nudged" if self._pools else "rotated" if self._rotated else "same"

    def feed(self, arrays: Sequence[Array]) -> None:
        """Feed whole inputs, and choose the elements that change from now on."""
        self.arrays = arrays
        self.restore(everywhere=True)
        self._choose_places()

    def vary(self) -> None:
        """Change some elements of each sample before a call."""
        if self._places:
            self._calls += 1
            for cell in self._places[self._calls % _PLACES]:
                window = cell.windows[int(self._random.random() * len(cell.windows))]
                cell.memory[...] = cell.fed * window if cell.nudged else window
        elif self._rotated:
            self._rotate()
        else:
            return
        if self._copies and self.program.feed is not None:
            self.program.feed(self._copies)

    def stay(self) -> None:
        """Keep the inputs as they were fed from now on."""
        self.restore(everywhere=True)
        self._pools, self._places, self._rotated = {}, [], []

    def restore(self, *, everywhere: bool = False) -> None:
        """Write what was fed last over what has changed since, or over everything."""
        if everywhere and not self._copies and self.program.feed is not None:
            self.program.feed(self.arrays)
        elif (everywhere and self._memory) or self._rotated:
            self._write(self.arrays)
        elif not everywhere:
            for cell in (cell for cells in self._places for cell in cells):
                cell.memory[...] = cell.fed
        if self._copies and self.program.feed is not None:
            self.program.feed(self._copies)

    def _write(self, arrays: Sequence[Array]) -> None:
        for targets, array in zip(self._memory, arrays, strict=True):
            for target in targets:
                target[...] = array

    def _build_pool(self, spec: TensorSpec, array: Array) -> Array | None:
        """Build the values that elements of an input get; None if no other values of it are known to be valid."""
        size = max(_POOL, 2 * _LINE_BYTES * self.batch_size)
        if not array.size:
            return None
        if spec.name not in self.examples:
            pool = feeds.draw_values(spec, (size,), self.batch_size, self._generator)
            return pool if len(set(pool[:_POOL].tolist())) > 1 else None
        if spec.role or spec.below is not None or array.dtype.name not in _EPSILON:
            return None
        steps = self._generator.integers(1, 3, size) * self._generator.choice([-1, 1], size)
        kind = np.float64 if array.dtype == np.float64 else np.float32
        factors: Array = (1 + _EPSILON[array.dtype.name] * steps).astype(kind)
        return factors

    def _choose_places(self) -> None:
        """Choose at random where inputs change."""
        self._places = [[*self._choose_cells()] for _ in range(_PLACES)] if self._pools else []

    def _choose_cells(self) -> Sequence[_Cell]:
        cells = []
        for index, pool in self._pools.items():
            spec, array = self.inputs[index], self.arrays[index]
            place = self._choose_place(array, spec.batch_axis)
            fed = np.array(array[place])
            # Each window is as many values in a row.
            steps = [math.prod(fed.shape[axis + 1 :]) * pool.strides[0] for axis in range(fed.ndim)]
            windows = as_strided(pool, (len(pool) - fed.size + 1, *fed.shape), (pool.strides[0], *steps))
            nudged = spec.name in self.examples
            cells += [_Cell(memory[place], windows, fed, nudged) for memory in self._memory[index]]
        return cells

    def _choose_place(self, array: Array, batch_axis: int | None) -> Any:
        """Choose a run of elements along the last axis, the same in every sample."""
        if not array.ndim:
            return ...
        place: list[Any] = [
            slice(None) if axis == batch_axis else self._random.randrange(size) for axis, size in enumerate(array.shape)
        ]
        if batch_axis != array.ndim - 1:
            width = min(array.shape[-1], max(1, _LINE_BYTES // array.itemsize))
            start = self._random.randrange(array.shape[-1] - width + 1)
            place[-1] = slice(start, start + width)
        return tuple(place)

    def _rotate(self) -> None:
        """Write given rows in another order, the same in all inputs."""
        rows = self._generator.integers(0, 1 << 30, self.batch_size)
        for index in self._rotated:
            spec = self.inputs[index]
            example, axis = self.examples[spec.name], spec.batch_axis or 0
            values = np.take(example, rows % example.shape[axis], axis=axis)
            for target in self._memory[index]:
                target[...] = values
