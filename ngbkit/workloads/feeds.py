"""What a network is fed: arrays drawn from a seed, the same rows whatever the batch size.

NumPy alone: a child that runs ONNX Runtime draws its inputs here and never imports torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngbkit.errors import WorkloadError
from ngbkit.workloads.base import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES: tuple[str, ...] = (
    *("float64", "float32", "float16"),
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"),
)


def draw(inputs: Sequence[TensorSpec], examples: Mapping[str, Array], batch_size: int, seed: int) -> list[Array]:
    """The values to feed: one C-contiguous array of shape ``(batch_size, *shape)`` an input, in order.

    An input with examples gets its rows, over and over. Without, a floating input gets standard normal noise, and an
    integer or boolean one zeros and ones, in even shares: they are valid as token ids, masks and class labels, and an
    array of zeros alone would hide what they select. Row i depends on the seed, the input's name and i only.

    Parameters
    ----------
    inputs
        What the network takes.
    examples
        Rows to draw from, by input name, each of shape ``(rows, *shape)``.
    batch_size
        Rows to make.
    seed
        From 0 up.

    Raises
    ------
    WorkloadError
        A dtype that NumPy does not have, or example rows of another shape.
    """
    return [_one(spec, examples.get(spec.name), batch_size, seed) for spec in inputs]


def _one(spec: TensorSpec, rows: Array | None, batch_size: int, seed: int) -> Array:
    if spec.dtype not in DTYPES:
        raise WorkloadError(
            f"input {spec.name} is of dtype {spec.dtype}, which cannot be fed; valid: {', '.join(DTYPES)}."
        )
    if rows is not None:
        return _repeat(spec, rows, batch_size)
    key = hashlib.blake2b(spec.name.encode(), digest_size=8).digest()
    generator = np.random.default_rng([seed, int.from_bytes(key, "big")])
    shape, dtype = (batch_size, *spec.shape), np.dtype(spec.dtype)
    if dtype == np.float64:
        return generator.standard_normal(shape)
    if dtype.kind == "f":
        return generator.standard_normal(shape, dtype=np.float32).astype(dtype, copy=False)
    return (generator.random(shape, dtype=np.float32) < 0.5).astype(dtype)


def _repeat(spec: TensorSpec, rows: Array, batch_size: int) -> Array:
    if not len(rows) or rows.shape[1:] != spec.shape:
        raise WorkloadError(
            f"the examples of input {spec.name} are of shape {rows.shape}; "
            f"valid is {('rows', *spec.shape)}, with a row or more."
        )
    return np.ascontiguousarray(rows[np.arange(batch_size) % len(rows)], dtype=spec.dtype)
