"""The inputs of a network, drawn from a seed row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngbkit.errors import WorkloadError
from ngbkit.workloads import feeds
from ngbkit.workloads.base import TensorSpec


@given(
    dtype=st.sampled_from(feeds.DTYPES),
    shape=st.lists(st.integers(1, 4), max_size=3).map(tuple),
    few=st.integers(1, 5),
    more=st.integers(0, 5),
    seed=st.integers(0, 2**32),
)
def test_the_first_rows_are_the_same_at_every_batch_size(
    dtype: str, shape: tuple[int, ...], few: int, more: int, seed: int
) -> None:
    """A larger batch starts with the smaller one, so that a reference of two rows is valid for every batch size."""
    spec = TensorSpec(name="x", shape=shape, dtype=dtype)

    small, large = (feeds.draw([spec], {}, size, seed)[0] for size in (few, few + more))

    assert (few, *shape) == small.shape
    assert np.dtype(dtype) == small.dtype
    assert small.tobytes() == large[:few].tobytes()


def test_inputs_and_seeds_differ() -> None:
    """Two inputs of a network get different noise, and so do two seeds."""
    specs = [TensorSpec(name=name, shape=(8,)) for name in "ab"]
    (first, second), (reseeded, _) = feeds.draw(specs, {}, 2, 0), feeds.draw(specs, {}, 2, 1)

    assert not np.array_equal(first, second)
    assert not np.array_equal(first, reseeded)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_without_examples_are_zeros_and_ones(dtype: str) -> None:
    """Both values occur, and are valid ids, masks and labels."""
    (array,) = feeds.draw([TensorSpec(name="ids", shape=(100,), dtype=dtype)], {}, 2, 0)

    assert {0, 1} == set(array.ravel().tolist())


def test_floats_are_standard_normal() -> None:
    """The noise has mean 0 and deviation 1."""
    (array,) = feeds.draw([TensorSpec(name="x", shape=(10_000,))], {}, 2, 0)

    assert abs(array.mean()) < 0.05
    assert abs(array.std() - 1) < 0.05


def test_examples_repeat() -> None:
    """Their rows repeat in order, contiguous and in the input's dtype."""
    rows = np.asfortranarray(np.arange(6).reshape(3, 2))
    (array,) = feeds.draw([TensorSpec(name="x", shape=(2,), dtype="int32")], {"x": rows}, 5, 0)

    assert [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]] == array.tolist()
    assert np.int32 == array.dtype
    assert array.flags.c_contiguous


@pytest.mark.parametrize(
    ("spec", "rows", "message"),
    [
        (
            TensorSpec(name="x", shape=(2,)),
            np.zeros((1, 3)),
            r"invalid examples of input x: got shape \(1, 3\); expected \('rows', 2\)",
        ),
        (TensorSpec(name="x", shape=(2,)), np.zeros((0, 2)), "with one row or more"),
        (
            TensorSpec(name="x", shape=(2,), dtype="bfloat16"),
            None,
            "invalid dtype of input x: got bfloat16; expected one of float64",
        ),
    ],
)
def test_an_invalid_input_is_rejected(spec: TensorSpec, rows: np.ndarray | None, message: str) -> None:
    """Example rows must have the input's shape, and its dtype must exist in NumPy."""
    with pytest.raises(WorkloadError, match=message):
        feeds.draw([spec], {} if rows is None else {"x": rows}, 1, 0)
