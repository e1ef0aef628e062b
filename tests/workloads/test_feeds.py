"""The inputs of a network, drawn from a seed row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ngbkit.errors import WorkloadError
from ngbkit.workloads import feeds, values
from ngbkit.workloads.base import BATCH, TensorSpec


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
    spec = TensorSpec(name="x", shape=(BATCH, *shape), dtype=dtype)

    small, large = (feeds.draw([spec], {}, size, seed)[0] for size in (few, few + more))

    assert (few, *shape) == small.shape
    assert np.dtype(dtype) == small.dtype
    assert small.tobytes() == large[:few].tobytes()


def test_inputs_and_seeds_differ() -> None:
    """Two inputs of a network get different noise, and so do two seeds."""
    specs = [TensorSpec(name=name, shape=(BATCH, 8)) for name in "ab"]
    (first, second), (reseeded, _) = feeds.draw(specs, {}, 2, 0), feeds.draw(specs, {}, 2, 1)

    assert not np.array_equal(first, second)
    assert not np.array_equal(first, reseeded)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_without_examples_are_zeros_and_ones(dtype: str) -> None:
    """Both values occur, and are valid ids, masks and labels."""
    (array,) = feeds.draw([TensorSpec(name="ids", shape=(BATCH, 100), dtype=dtype)], {}, 2, 0)

    assert {0, 1} == set(array.ravel().tolist())


def test_floats_are_standard_normal() -> None:
    """The noise has mean 0 and deviation 1."""
    (array,) = feeds.draw([TensorSpec(name="x", shape=(BATCH, 10_000))], {}, 2, 0)

    assert abs(array.mean()) < 0.05
    assert abs(array.std() - 1) < 0.05


def test_examples_repeat() -> None:
    """The rows of examples repeat in order, contiguous and in the input's dtype."""
    rows = np.asfortranarray(np.arange(6).reshape(3, 2))
    (array,) = feeds.draw([TensorSpec(name="x", shape=(BATCH, 2), dtype="int32")], {"x": rows}, 5, 0)

    assert [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]] == array.tolist()
    assert np.int32 == array.dtype
    assert array.flags.c_contiguous


@pytest.mark.parametrize(
    ("spec", "rows", "message"),
    [
        (
            TensorSpec(name="x", shape=(BATCH, 2)),
            np.zeros((1, 3)),
            r"invalid values of input x: got shape \(1, 3\); expected \(batch, 2\), with one row or more",
        ),
        (TensorSpec(name="x", shape=(BATCH, 2)), np.zeros((0, 2)), "with one row or more"),
        (
            TensorSpec(name="x", shape=(BATCH, 2), dtype="complex64"),
            None,
            "invalid dtype of input x: got complex64; expected one of float64",
        ),
        (
            TensorSpec(name="sizes", shape=(4,), dtype="int64", role="the sizes of Resize"),
            None,
            r"input sizes is the sizes of Resize, .*--inputs FILE, an .npz with an array sizes of shape \(4\)",
        ),
    ],
)
def test_an_invalid_input_is_rejected(spec: TensorSpec, rows: np.ndarray | None, message: str) -> None:
    """Values must have the input's shape, its dtype must exist, and values that decide shapes must be given."""
    with pytest.raises(WorkloadError, match=message):
        feeds.draw([spec], {} if rows is None else {"x": rows}, 1, 0)


@pytest.mark.parametrize("shape", [(BATCH, 3), (2, BATCH, 4), (BATCH, 0), (), (3,), (f"2*{BATCH}", 2)])
def test_the_batch_may_be_anywhere(shape: tuple[int | str, ...]) -> None:
    """The batch is in any dimension, in an expression, or nowhere; small batches begin large ones."""
    spec = TensorSpec(name="x", shape=shape)
    ((small,), (large,)) = (feeds.draw([spec], {}, size, 0) for size in (2, 5))

    assert spec.bind(2) == small.shape
    assert spec.bind(5) == large.shape
    if spec.batch_axis is not None:
        np.testing.assert_array_equal(small, large.take(range(2), spec.batch_axis))
    assert small.flags.c_contiguous


@pytest.mark.parametrize(("below", "bound"), [(1, 1), (3, 3), (BATCH, 4), (f"min(2, {BATCH})", 2)])
@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_indices_are_within_their_table(below: int | str, bound: int, dtype: str) -> None:
    """Drawn indices cover their table and stay within it, whatever determines its length."""
    (array,) = feeds.draw([TensorSpec(name="ids", shape=(BATCH, 200), dtype=dtype, below=below)], {}, 4, 0)

    assert set(range(bound)) == set(array.ravel().tolist())


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "str"])
def test_values_of_other_types_are_drawn(dtype: str) -> None:
    """Values of ml_dtypes and text are drawn."""
    (array,) = feeds.draw([TensorSpec(name="x", shape=(BATCH, 50), dtype=dtype)], {}, 2, 0)

    assert feeds.find_dtype(dtype) == array.dtype
    assert len(set(array.ravel().tolist())) > 1


def test_a_value_without_a_batch_is_fed_as_it_is() -> None:
    """A value without a batch is fed unchanged, and a given sample is repeated along the batch."""
    specs = [TensorSpec(name="rate", shape=(), dtype="int64"), TensorSpec(name="state", shape=(2, BATCH, 3))]
    state = np.arange(6, dtype=np.float32).reshape(2, 1, 3)

    rate, states = feeds.draw(specs, {"rate": np.array(16000), "state": state}, 4, 0)

    assert 16000 == rate
    assert (2, 4, 3) == states.shape
    np.testing.assert_array_equal(states[:, 3], state[:, 0])


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e5m2"])
def test_tensors_of_types_that_numpy_lacks_are_values(name: str) -> None:
    """A tensor is an array of its type and layout, also where it is a view."""
    tensor = torch.arange(6.0).reshape(2, 3).to(getattr(torch, name))
    array = values.load({"x": tensor.T})["x"]

    assert name == array.dtype.name
    assert tensor.T.float().tolist() == array.astype(np.float32).tolist()
