"""The inputs of a network: arrays drawn from a seed, with the same rows at every batch size.

Only NumPy is imported: a child process that runs ONNX Runtime draws its inputs here without torch.
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
    """Draw one C-contiguous array of shape ``(batch_size, *shape)`` per input, in order.

    An input with examples, of shape ``(rows, *shape)``, repeats their rows. Without examples, a floating input gets
    standard normal noise, and an integer or boolean input gets zeros and ones in even shares: they are valid token ids,
    masks and class labels, and all zeros would hide the values that they select. Row i depends only on the seed, the
    input's name and i.
    """
    return [_draw_input(spec, examples.get(spec.name), batch_size, seed) for spec in inputs]


def _draw_input(spec: TensorSpec, rows: Array | None, batch_size: int, seed: int) -> Array:
    if spec.dtype not in DTYPES:
        raise WorkloadError(
            f"invalid dtype of input {spec.name}: got {spec.dtype}; expected one of {', '.join(DTYPES)}."
        )
    if rows is not None:
        return _repeat_rows(spec, rows, batch_size)
    key = hashlib.blake2b(spec.name.encode(), digest_size=8).digest()
    generator = np.random.default_rng([seed, int.from_bytes(key, "big")])
    shape, dtype = (batch_size, *spec.shape), np.dtype(spec.dtype)
    if dtype == np.float64:
        return generator.standard_normal(shape)
    if dtype.kind == "f":
        return generator.standard_normal(shape, dtype=np.float32).astype(dtype, copy=False)
    return (generator.random(shape, dtype=np.float32) < 0.5).astype(dtype)


def _repeat_rows(spec: TensorSpec, rows: Array, batch_size: int) -> Array:
    if not len(rows) or rows.shape[1:] != spec.shape:
        raise WorkloadError(
            f"invalid examples of input {spec.name}: got shape {rows.shape}; "
            f"expected {('rows', *spec.shape)}, with one row or more."
        )
    return np.ascontiguousarray(rows[np.arange(batch_size) % len(rows)], dtype=spec.dtype)
