"""The inputs of a network: arrays drawn from a seed, with the same rows at every batch size, or values that are given.

Only NumPy is imported: a child process that runs ONNX Runtime draws its inputs here without torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngbkit.errors import MissingDependencyError, WorkloadError
from ngbkit.workloads import dimensions
from ngbkit.workloads.base import BATCH, TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]

TEXT = "str"
"""The dtype of text."""

DTYPES: tuple[str, ...] = (
    *("float64", "float32", "float16"),
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"),
)
"""The dtypes of NumPy that networks take."""

NARROW_DTYPES: tuple[str, ...] = (
    *("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    *("float4_e2m1fn", "int4", "uint4", "int2", "uint2"),
)
"""The dtypes of ml_dtypes, which onnx installs."""

_WORDS = ("a", "b")
# Of the seeds of other inputs.
_STRIDE = 2_000_003


def draw(inputs: Sequence[TensorSpec], examples: Mapping[str, Array], batch_size: int, seed: int) -> list[Array]:
    """Draw one C-contiguous array of the shape at `batch_size` per input, in order.

    An input with an example repeats its rows along the batch. Without one, a floating input gets standard normal noise;
    integers below a bound are uniform; other integers and booleans are zeros and ones in even shares: they are valid
    token ids, masks and class labels, and all zeros would hide the values that they select. Row i along the batch
    depends only on the seed, the input's name and i, unless a bound depends on the batch.
    """
    return [_draw_input(spec, examples.get(spec.name), batch_size, seed) for spec in inputs]


def draw_other(
    inputs: Sequence[TensorSpec], examples: Mapping[str, Array], batch_size: int, seed: int, number: int, rows: int
) -> list[Array]:
    """Draw other inputs: of another seed, and with given rows from the one at `number` times `rows` on."""
    turned = {
        spec.name: np.roll(examples[spec.name], -number * rows, axis=spec.batch_axis)
        for spec in inputs
        if spec.name in examples and count_given_rows(spec, examples[spec.name]) > 1
    }
    return draw(inputs, {**examples, **turned}, batch_size, seed + _STRIDE * number)


def count_given_rows(spec: TensorSpec, example: Array) -> int:
    """Count the rows that an example has along the batch; 1 without a batch."""
    axis = spec.batch_axis
    return example.shape[axis] if axis is not None and example.ndim == len(spec.shape) else 1


def from_tensor(tensor: Any) -> Array:
    """Return a tensor of torch as an array, of a type that NumPy lacks, too."""
    import torch

    plain = tensor.detach().cpu().contiguous()
    name = str(plain.dtype).removeprefix("torch.")
    if name not in NARROW_DTYPES:
        array: Array = plain.resolve_conj().resolve_neg().numpy()
        return array
    bits: Array = plain.view(torch.int16 if plain.element_size() == 2 else torch.uint8).numpy()
    return bits.view(find_dtype(name))


def find_dtype(name: str) -> np.dtype[Any]:
    """Find the dtype of a name, also in ml_dtypes; text is an object."""
    if name == TEXT:
        return np.dtype(object)
    if name in NARROW_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            raise MissingDependencyError("ml_dtypes", "onnxruntime") from None
        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
    return np.dtype(name)


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is of floating-point numbers, also of ml_dtypes."""
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def count_bytes(spec: TensorSpec, batch_size: int) -> int:
    """Count the bytes of an input; 0 for text."""
    size = 0 if spec.dtype == TEXT else find_dtype(spec.dtype).itemsize
    return int(np.prod(spec.bind(batch_size), dtype=np.int64)) * size


def _draw_input(spec: TensorSpec, example: Array | None, batch_size: int, seed: int) -> Array:
    if spec.dtype not in (*DTYPES, *NARROW_DTYPES, TEXT):
        raise WorkloadError(
            f"invalid dtype of input {spec.name}: got {spec.dtype}; expected one of {', '.join(DTYPES)}."
        )
    if example is not None:
        return _repeat_rows(spec, example, batch_size)
    if spec.role:
        raise WorkloadError(describe_missing(spec))
    shape, axis = list(spec.bind(batch_size)), spec.batch_axis
    if axis is not None:
        shape.insert(0, shape.pop(axis))  # the rows of a small batch are the first of a large one
    key = hashlib.blake2b(spec.name.encode(), digest_size=8).digest()
    generator = np.random.default_rng([seed, int.from_bytes(key, "big")])
    values = draw_values(spec, shape, batch_size, generator)
    return np.ascontiguousarray(values if axis is None else np.moveaxis(values, 0, axis)).reshape(spec.bind(batch_size))


def describe_missing(spec: TensorSpec) -> str:
    """Describe an input whose values cannot be drawn, with the remedy."""
    return (
        f"input {spec.name} is {spec.role}, and the file does not tell which values it takes. Give them: "
        f"--inputs FILE, an .npz with an array {spec.name} of shape {spec.format_shape()}, or inputs={{…}}."
    )


def draw_values(spec: TensorSpec, shape: Sequence[int], batch_size: int, generator: np.random.Generator) -> Array:
    """Draw values of an input without an example, in any shape."""
    dtype = find_dtype(spec.dtype)
    if spec.below is not None:  # also of floating numbers that the network converts to indices
        below = max(1, dimensions.evaluate(spec.below, {BATCH: batch_size}))
        return np.minimum(np.floor(generator.random(shape) * below), below - 1).astype(dtype)
    if dtype == np.float64:
        return np.asarray(generator.standard_normal(shape))
    if is_floating(dtype):
        return np.asarray(generator.standard_normal(shape, dtype=np.float32)).astype(dtype, copy=False)
    uniform = np.asarray(generator.random(shape, dtype=np.float32))
    if spec.dtype == TEXT:
        return np.where(uniform < 0.5, *_WORDS).astype(object)
    return (uniform < 0.5).astype(dtype)


def _repeat_rows(spec: TensorSpec, example: Array, batch_size: int) -> Array:
    """Return an example with its rows repeated along the batch."""
    axis, shape, dtype = spec.batch_axis, spec.bind(batch_size), find_dtype(spec.dtype)
    if example.dtype.kind == "V" and example.dtype.itemsize == dtype.itemsize:
        example = example.view(dtype)  # a file of NumPy has the bytes of ml_dtypes, and no name for them
    if example.ndim == len(shape) and axis is not None and example.shape[axis]:
        example = np.take(example, np.arange(batch_size) % example.shape[axis], axis=axis)
    if example.shape != shape:
        raise WorkloadError(
            f"invalid values of input {spec.name}: got shape {example.shape}; expected {spec.format_shape()}"
            f"{'' if axis is None else ', with one row or more along the batch'}."
        )
    return np.require(example, dtype=dtype, requirements=["C", "A"]).reshape(shape)
