"""The batch of a network, as the network was seen to treat it.

A dimension is the batch if outputs follow its size, and a row has the same outputs alone as among others. Samples may
depend on each other, as by a mean over the batch: rows that change places then change those of the outputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ngbkit.workloads import dimensions, feeds
from ngbkit.workloads.base import BATCH, TensorSpec
from ngbkit.workloads.export import flatten, to_array, to_tensor
from ngbkit.workloads.randomise import compile_nothing

if TYPE_CHECKING:
    import torch

    from ngbkit.workloads.feeds import Array

    Run = Callable[[Sequence[int]], list[Array] | None]

# Two sizes each: a normalisation over the batch needs two rows or more, and a siamese network pairs.
_SIZES = ((2, 1), (4, 2))
MOST_ROWS = 4
# The relative error of equal outputs, and of those of 16-bit numbers.
TOLERANCE, TOLERANCE_16 = 1e-3, 3e-2
# The share of its distance from the first row that the second keeps: attention across rows that are far apart sees each
# alone.
_NEARNESS = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBatch:
    """The inputs with their batch, its only size, None if any is valid, and the reason for the only one."""

    specs: Sequence[TensorSpec]
    size: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """A module's treatment of a claimed batch."""

    is_batch: bool = False
    is_fixed: bool = False
    # Whether the outputs of a sample depend on the others.
    is_mixed: bool = False
    # Whether some output of numbers has the size of the batch: indices may be those of its rows.
    is_followed: bool = True
    reason: str = ""


def find_batch(
    module: torch.nn.Module,
    claims: Sequence[Sequence[TensorSpec]],
    examples: Mapping[str, Array],
    rows: int,
    seed: int,
    *,
    is_named: bool = False,
) -> SeenBatch:
    """Find the batch of a module, which runs on `rows` of the first claim, among claims in order of preference."""
    views: list[tuple[Sequence[TensorSpec], int, _View]] = []
    is_short = any(weight.element_size() == 2 for weight in module.parameters())
    rounding = TOLERANCE_16 if is_short else TOLERANCE
    for specs in claims:
        count = rows if not views else count_rows(specs, examples)
        comparison = _RowComparison(_build_run(module, specs, examples, count, seed), count, rounding)
        views.append((specs, count, comparison.view(is_named=is_named)))
        if views[-1][-1] == _View(is_batch=True):
            break
    # Samples that are surely independent go before those that may be steps of a sequence.
    for specs, count, view in sorted(views, key=lambda each: each[-1].is_mixed or each[-1].is_fixed):
        if view.is_batch:
            return SeenBatch(specs=specs, size=count if view.is_fixed else None, reason=view.reason)
    specs, reason = claims[0], _deny(claims[0], views[0][-1].reason)
    if rows > 1:  # inputs stay at the values that are given; a row of drawn ones is a call
        specs = [replace(spec, shape=examples[spec.name].shape) if spec.name in examples else spec for spec in specs]
    return SeenBatch(specs=specs, size=1, reason=reason)


def check_claim(
    specs: Sequence[TensorSpec], run: Run, size: int | None, tolerance: float, *, may_mix: bool, factor: str = ""
) -> SeenBatch | None:
    """Compare the rows of a batch that a file's description claims; None if it runs at no size, and nothing is seen.

    `size` is the only size that the description allows. Samples depend on each other, or have no outputs of their own,
    only where they `may_mix`: attention across a sequence without positions looks the same. As a length, the dimension
    is called `factor`.
    """
    if run(range(size or 1)) is None and run(range(2)) is None:
        return None
    comparison = _RowComparison(run, size or 1, tolerance)
    view = comparison.view(is_named=False) if size is None else comparison.view_only_size()
    refers = any(spec.below is not None and BATCH in dimensions.list_names(spec.below) for spec in specs)
    if may_mix and not view.is_batch and (refers or not (view.is_followed or comparison.ignores_rows())):
        return SeenBatch(specs=specs, size=size)
    if view.is_batch and (may_mix or not view.is_mixed):
        return SeenBatch(specs=specs, size=size or (1 if view.is_fixed else None), reason=view.reason)
    # A network that amplifies the rounding of drawn inputs looks like one whose rows depend on each other.
    mixed = "its rows depend on each other" if size else "a row has other outputs alone than among others"
    reason = _deny(specs, view.reason or mixed, factor)
    fixed = specs if size is None else [replace(spec, shape=spec.bind(size)) for spec in specs]
    return SeenBatch(specs=fixed, size=1, reason=reason)


def keeps_rows(run: Run, axes: Sequence[int | None]) -> bool:
    """Return whether the first of two rows has the outputs that it has alone, in these dimensions of samples."""
    both, alone = run(range(2)), run(range(1))
    if both is None or alone is None:
        return True
    return all(
        axis is None or _are_close(output.take(range(output.shape[axis] // 2), axis), single, TOLERANCE)
        for output, single, axis in zip(both, alone, axes, strict=True)
    )


def count_rows(specs: Sequence[TensorSpec], examples: Mapping[str, Array]) -> int:
    """Count the rows that are given; two for inputs that are drawn."""
    counts = [
        examples[spec.name].shape[spec.batch_axis]
        for spec in specs
        if spec.batch_axis is not None and spec.name in examples
    ]
    return counts[0] if counts else 2


def _deny(specs: Sequence[TensorSpec], reason: str, factor: str = "") -> str:
    spec = next(spec for spec in specs if spec.batch_axis is not None)
    reason = (
        f"dimension {spec.batch_axis} of its input {spec.name} is no batch, as {reason}, so that a sample is a call"
    )
    remedy = f"If it is one, name it: --batch-axis {spec.name}={spec.batch_axis}"
    if factor:
        remedy += ", or give real values, which may show it: --inputs FILE; if it is a length, sweep it: "
        remedy += f"--batch-axis {spec.name}=none --factor {factor}=1,64"
    return f"{reason}. {remedy}"


@dataclass(frozen=True, slots=True)
class _RowComparison:
    """Runs of a module on chosen rows of a claimed batch."""

    # Returns the outputs for rows by their numbers; None if it fails.
    run: Run
    rows: int
    tolerance: float

    def view(self, *, is_named: bool) -> _View:
        """Compare the rows of two sizes."""
        for most, fewest in _SIZES:
            batch, first = self.run(range(most)), self.run(range(fewest))
            if batch is None or first is None:
                continue
            if is_named:
                return _View(is_batch=True)
            following = _find_following(batch, most, first, fewest)
            if following is None:
                return _View(reason="no output follows its size", is_followed=False)
            last = self.run(range(most - fewest, most))
            # The first rows of a sequence do not depend on later ones; the last do.
            if last is not None and self._match(batch, last, following, range(most - fewest, most), most):
                return _View(is_batch=True)
            view = self._view_order(following, is_causal=self._match(batch, first, following, range(fewest), most))
            return replace(view, is_followed=any(output.dtype.kind == "f" for output in batch))
        reason = f"its batch is fixed, as it fails at another number of rows than {self.rows}"
        if self.rows == 1 or is_named:
            return _View(is_batch=True, is_fixed=True, reason=reason)
        view = self.view_only_size()
        return replace(view, reason=reason if view.is_batch else "it fails at another size of it")

    def _view_order(self, following: _Following, *, is_causal: bool) -> _View:
        """Compare outputs with those of the same rows in another order."""
        size = MOST_ROWS if self.run(range(MOST_ROWS)) is not None else max(2, self.rows)
        order = _mix(size)
        straight, mixed = self.run(range(size)), self.run(order)
        if straight is None or mixed is None:  # such as lengths that must be sorted
            is_batch = is_causal
        else:
            again = self.run(range(size))
            is_random = again is None or not self._match(straight, again, following, range(size), size)
            is_batch = is_random or self._match(straight, mixed, following, order, size)
        return _View(is_batch=is_batch, is_mixed=is_batch, reason="" if is_batch else "its rows cannot change places")

    def view_only_size(self) -> _View:
        """Exchange rows of the given number, and replace one by the next."""
        order, doubled = _mix(self.rows), [1, *range(1, self.rows)]
        straight, mixed = self.run(range(self.rows)), self.run(order)
        if straight is None or mixed is None:
            return _View(reason="it fails with rows in another order")
        following = [
            tuple(axis for axis, size in enumerate(output.shape) if size == self.rows)[:1] for output in straight
        ]
        if not any(following):
            return _View(reason="no output has its size", is_followed=False)
        if not self._match(straight, mixed, following, order, self.rows):
            return _View(reason="its rows cannot change places")
        replaced = self.run(doubled)
        is_mixed = replaced is None or not self._match(straight, replaced, following, doubled, self.rows)
        return _View(is_batch=True, is_fixed=True, is_mixed=is_mixed)

    def ignores_rows(self) -> bool:
        """Return whether all outputs, some of which have values, are the same if each row is the first."""
        size = MOST_ROWS if self.run(range(MOST_ROWS)) is not None else max(2, self.rows)
        outputs, repeated = self.run(range(size)), self.run([0] * size)
        return (
            outputs is not None
            and repeated is not None
            and any(output.size for output in outputs)
            and len(outputs) == len(repeated)
            and all(_are_close(*pair, self.tolerance) for pair in zip(outputs, repeated, strict=True))
        )

    def _match(
        self, batch: list[Array], part: list[Array], following: _Following, order: Sequence[int], size: int
    ) -> bool:
        """Return whether some outputs are the rows `order` of those for `size` rows, where outputs follow the size."""
        if isinstance(following, int):  # a list of outputs, some for each row
            chosen = [batch[row * following + place] for row in order for place in range(following)]
            following = [()] * len(chosen)
        else:
            chosen, part = (
                [output for output, axes in zip(outputs, following, strict=False) if axes] for outputs in (batch, part)
            )
            following = list(filter(None, following))
        return len(chosen) == len(part) and all(
            any(_are_close(_take(left, axes, order, size, step), right, self.tolerance) for step in (1, size))
            for left, right, axes in zip(chosen, part, following, strict=True)
        )


_Following = Sequence[tuple[int, ...]] | int
"""The dimensions of each output that follow the batch, or the number of outputs for each row."""


def _find_following(batch: list[Array], most: int, part: list[Array], fewest: int) -> _Following | None:
    """Find what is as many times as large for the most rows as the rows; None if nothing is."""
    if len(batch) != len(part):
        return len(batch) // most if len(batch) * fewest == len(part) * most and not len(batch) % most else None
    following = []
    for large, small in zip(batch, part, strict=True):
        sides = list(zip(large.shape, small.shape, strict=False)) if large.ndim == small.ndim else [(1, 0)]
        axes = [axis for axis, (long, short) in enumerate(sides) if long != short]
        follows = all(sides[axis][0] * fewest == sides[axis][1] * most for axis in axes)
        following.append(tuple(axes) if follows else ())
    return following if any(following) else None


def _take(output: Array, axes: Sequence[int], order: Sequence[int], size: int, step: int) -> Array | None:
    """Take the rows of an output, of which a row has one after the other, or one in every `step`."""
    for axis in axes:
        if output.shape[axis] % size:
            return None
        places = np.arange(output.shape[axis])
        places = places.reshape(size, -1) if step == 1 else places.reshape(-1, size).T
        places = places[list(order)] if step == 1 else places[list(order)].T
        output = output.take(places.ravel(), axis)
    return output


def _are_close(left: Array | None, right: Array, tolerance: float) -> bool:
    if left is None or left.shape != right.shape:
        return False
    if right.dtype.kind != "f":
        return bool((left != right).mean() <= TOLERANCE_16) if right.size else True
    wide, other = np.nan_to_num(left.astype(np.float64)), np.nan_to_num(right.astype(np.float64))
    return bool(np.linalg.norm(wide - other) <= tolerance * np.linalg.norm(other))


def _mix(size: int) -> list[int]:
    """Return the numbers of rows in an order that no reversal and no rotation of three rows or more leaves alone."""
    return [1, 0, 2] if size == 3 else [*range(1, size, 2), *reversed(range(0, size, 2))]


def _build_run(
    module: torch.nn.Module, specs: Sequence[TensorSpec], examples: Mapping[str, Array], rows: int, seed: int
) -> Run:
    """Build the function that runs a module on rows that all differ, each time in the state that it has now."""
    import torch

    def call(arrays: Sequence[Array]) -> list[Array] | None:
        for candidate in _iterate_copies(module):
            with torch.no_grad(), compile_nothing(), suppress(Exception):  # a module may raise anything
                return [to_array(output).copy() for output in flatten(candidate(*map(to_tensor, arrays)))]
        return None

    return choose_rows(specs, feeds.draw(specs, vary(specs, examples), max(rows, MOST_ROWS), seed), call)


def _iterate_copies(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yield a copy, with the same parameters and a state of its own, and the module itself, for copies that fail."""
    with suppress(Exception):
        yield copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})
    yield module


def take_rows(specs: Sequence[TensorSpec], arrays: Sequence[Array], order: Sequence[int]) -> list[Array]:
    """Take chosen rows of the inputs that have a batch."""
    return [
        array if spec.batch_axis is None else array.take(list(order), spec.batch_axis)
        for spec, array in zip(specs, arrays, strict=True)
    ]


def choose_rows(
    specs: Sequence[TensorSpec], arrays: Sequence[Array], call: Callable[[Sequence[Array]], list[Array] | None]
) -> Run:
    """Return the function that calls with chosen rows; the second is near the first unless only others run."""
    near = [_bring_near(spec, array) for spec, array in zip(specs, arrays, strict=True)]
    chosen: list[Sequence[Array]] = []

    def run(order: Sequence[int]) -> list[Array] | None:
        if not chosen and call(take_rows(specs, near, [1] * len(order))) is not None:
            chosen.append(near)
        outputs = call(take_rows(specs, chosen[0] if chosen else arrays, order))
        if not chosen and outputs is not None:
            chosen.append(arrays)
        return outputs

    return run


def _bring_near(spec: TensorSpec, array: Array) -> Array:
    """Return an input whose second row is near the first."""
    if spec.batch_axis is None or not feeds.is_floating(array.dtype) or spec.role or spec.below:
        return array
    near = array.copy()
    first, second, *_ = np.moveaxis(near, spec.batch_axis, 0)
    second[...] = (first + _NEARNESS * (second - first)).astype(first.dtype)
    return near


def vary(specs: Sequence[TensorSpec], examples: Mapping[str, Array]) -> dict[str, Array]:
    """Return the examples of inputs, with rows that all differ."""
    return {spec.name: _vary(examples[spec.name], spec.batch_axis) for spec in specs if spec.name in examples}


def _vary(example: Array, axis: int | None) -> Array:
    """Add rows to fewer than four given ones: theirs, moved along their last dimension."""
    others = [other for other in range(example.ndim) if other != axis]
    if axis is None or not others or example.shape[axis] >= MOST_ROWS:
        return example
    return np.concatenate([np.roll(example, shift, others[-1]) for shift in range(MOST_ROWS)], axis)
