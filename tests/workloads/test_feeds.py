"""What a network is fed: drawn from a seed, row by row."""

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
def test_the_first_rows_are_the_same_whatever_the_batch_size(
    dtype: str, shape: tuple[int, ...], few: int, more: int, seed: int
) -> None:
    """A larger batch begins with the smaller one, so that a reference of two rows serves every batch size."""
    spec = TensorSpec(name="x", shape=shape, dtype=dtype)

    small, large = (feeds.draw([spec], {}, size, seed)[0] for size in (few, few + more))

    assert (few, *shape) == small.shape
    assert np.dtype(dtype) == small.dtype
    assert small.tobytes() == large[:few].tobytes()


def test_inputs_and_seeds_differ() -> None:
    """Two inputs of one network are not the same noise, nor are two seeds."""
    specs = [TensorSpec(name=name, shape=(8,)) for name in "ab"]
    (one, two), (other, _) = feeds.draw(specs, {}, 2, 0), feeds.draw(specs, {}, 2, 1)

    assert not np.array_equal(one, two)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_without_examples_are_zeros_and_ones(dtype: str) -> None:
    """Valid as ids, masks and labels, and not all alike."""
    (drawn,) = feeds.draw([TensorSpec(name="ids", shape=(100,), dtype=dtype)], {}, 2, 0)

    assert {0, 1} == set(drawn.ravel().tolist())


def test_floats_are_standard_normal() -> None:
    """Noise of mean 0 and deviation 1."""
    (drawn,) = feeds.draw([TensorSpec(name="x", shape=(10_000,))], {}, 2, 0)

    assert abs(drawn.mean()) < 0.05
    assert abs(drawn.std() - 1) < 0.05


def test_examples_are_fed_over_and_over() -> None:
    """Rows repeat in order, contiguous and in the input's dtype."""
    rows = np.asfortranarray(np.arange(6).reshape(3, 2))
    (drawn,) = feeds.draw([TensorSpec(name="x", shape=(2,), dtype="int32")], {"x": rows}, 5, 0)

    assert [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]] == drawn.tolist()
    assert np.int32 == drawn.dtype
    assert drawn.flags.c_contiguous


@pytest.mark.parametrize(
    ("spec", "rows", "message"),
    [
        (TensorSpec(name="x", shape=(2,)), np.zeros((1, 3)), r"of shape \(1, 3\); valid is \('rows', 2\)"),
        (TensorSpec(name="x", shape=(2,)), np.zeros((0, 2)), "with a row or more"),
        (
            TensorSpec(name="x", shape=(2,), dtype="bfloat16"),
            None,
            "dtype bfloat16, which cannot be fed; valid: float64",
        ),
    ],
)
def test_what_cannot_be_fed_is_refused(spec: TensorSpec, rows: np.ndarray | None, message: str) -> None:
    """Example rows must be of the input's shape, its dtype one of NumPy's."""
    with pytest.raises(WorkloadError, match=message):
        feeds.draw([spec], {} if rows is None else {"x": rows}, 1, 0)
