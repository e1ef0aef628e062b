"""The inputs of every call are other ones, whatever they are and wherever a program reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from ngbkit.compilers.base import Program
from ngbkit.device.timing.fresh_inputs import FreshInputs
from ngbkit.sweep.records import Contract
from ngbkit.workloads import feeds
from ngbkit.workloads.base import BATCH, TensorSpec

NOISE = TensorSpec(name="x", shape=(BATCH, 3, 40))
LAST = TensorSpec(name="x", shape=(5, BATCH))
WHOLE = TensorSpec(name="x", shape=(40,))
SCALAR = TensorSpec(name="x", shape=())
TOKENS = TensorSpec(name="x", shape=(BATCH, 12), dtype="int64", below=50)
MASK = TensorSpec(name="x", shape=(BATCH, 12), dtype="bool")
TEXT = TensorSpec(name="x", shape=(BATCH, 12), dtype="str")
CALLS = 30


def build(
    spec: TensorSpec, batch_size: int = 2, examples: Mapping[str, np.ndarray] | None = None, *, maps: bool = True
) -> tuple[FreshInputs, list[np.ndarray]]:
    """Build the fresh inputs of a program, and the arrays that it reads."""
    arrays = feeds.draw([spec], examples or {}, batch_size, 0)
    read = [array.copy() for array in arrays]

    def feed(fed: Any) -> None:
        read[0][...] = fed[0]

    memory: Any = [[array] for array in read] if maps else ()
    program = Program(run=lambda: None, fetch=lambda _: [], contract=Contract(runtime="test"), feed=feed, memory=memory)
    return FreshInputs(program, [spec], examples or {}, arrays, batch_size), read


@pytest.mark.parametrize("spec", [NOISE, LAST, WHOLE, SCALAR, TOKENS, MASK, TEXT], ids=lambda spec: str(spec.shape))
@pytest.mark.parametrize("maps", [True, False], ids=["in place", "fed"])
def test_drawn_inputs_are_drawn_again(spec: TensorSpec, maps: bool) -> None:
    """No call has the inputs of an earlier one, every sample has changed, and values stay those that are drawn."""
    fresh, read = build(spec, maps=maps)
    calls = []
    for _ in range(CALLS):
        fresh.vary()
        calls.append(read[0].copy())

    assert "fresh" == fresh.manner
    assert len({array.tobytes() if spec.dtype != "str" else str(array.tolist()) for array in calls}) > CALLS - 3
    if spec.batch_axis is not None:
        changed = np.moveaxis(np.any([array != calls[0] for array in calls], axis=0), spec.batch_axis, 0)
        assert changed.reshape(2, -1).any(axis=1).all()
    if spec.below:
        assert all(0 <= array.min() and array.max() < 50 for array in calls)


def test_a_call_changes_a_cache_line_of_each_sample() -> None:
    """The rest of the inputs stays as it was, and in caches."""
    fresh, read = build(NOISE)
    before = read[0].copy()
    fresh.vary()

    assert [16, 16] == (read[0] != before).reshape(2, -1).sum(axis=1).tolist()


def test_given_numbers_change_in_their_last_digits() -> None:
    """The user's numbers are as good as unchanged, and no two calls have the same."""
    examples = np.random.default_rng(1).standard_normal((1, 3, 40)).astype(np.float32)
    fresh, read = build(NOISE, examples={"x": examples})
    calls = set()
    for _ in range(CALLS):
        fresh.vary()
        calls.add(read[0].tobytes())

    assert ("nudged", CALLS) == (fresh.manner, len(calls))
    np.testing.assert_allclose(read[0], np.repeat(examples, 2, axis=0), rtol=1e-6)


def test_other_given_values_change_places_by_row() -> None:
    """Every row is one that the user gave."""
    examples = np.arange(60).reshape(5, 12)
    fresh, read = build(TOKENS, examples={"x": examples})
    calls = []
    for _ in range(CALLS):
        fresh.vary()
        calls.append(read[0][:, 0].tolist())

    assert "rotated" == fresh.manner
    assert set(examples[:, 0].tolist()) == {value for rows in calls for value in rows}


def test_one_given_row_of_integers_stays() -> None:
    """No other values are known to be valid, and the measurement says so."""
    fresh, read = build(TOKENS, examples={"x": np.arange(12).reshape(1, 12)})
    before = read[0].copy()
    fresh.vary()

    assert "same" == fresh.manner
    np.testing.assert_array_equal(before, read[0])


@pytest.mark.parametrize("maps", [True, False], ids=["in place", "fed"])
def test_what_was_fed_is_restored(maps: bool) -> None:
    """After any number of changes the inputs are again those that were fed last."""
    fresh, read = build(NOISE, maps=maps)
    other = feeds.draw_other([NOISE], {}, 2, 0, 1, 2)
    fresh.feed(other)
    for _ in range(CALLS):
        fresh.vary()
    changed = read[0].copy()
    fresh.restore()

    assert (changed != other[0]).any()
    np.testing.assert_array_equal(other[0], read[0])
