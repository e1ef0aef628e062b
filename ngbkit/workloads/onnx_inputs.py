"""The inputs of an ONNX file: the batch, and the other open dimensions, which a sweep varies as factors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ngbkit.errors import WorkloadError
from ngbkit.workloads import feeds
from ngbkit.workloads.base import Factors, TensorSpec
from ngbkit.workloads.export import find_inputs

Description = dict[str, Any]
"""An input in a workload's description, as of `TensorSpec.to_json`; an open dimension is the name of its factor."""

_NO_IDENTIFIER = re.compile(r"\W", re.ASCII)


def describe(path: Path, model: Any) -> tuple[list[Description], int | None]:
    """Describe the inputs of a file, and return the batch size if it is fixed.

    WorkloadError: there is no input, or one is no tensor of a supported dtype with the batch as its first dimension.
    """
    values = find_inputs(model.graph)
    if not values:
        raise WorkloadError(f"{path} has no inputs; expected one or more.")
    for value in values:
        _check_input(path, value)
    names = _name_symbols(path, values)
    inputs = [_describe_input(path, value, names) for value in values]
    batches = {value.type.tensor_type.shape.dim[0].dim_value for value in values} - {0}
    if len(batches) > 1:
        raise WorkloadError(
            f"invalid first dimensions of the inputs of {path}: got {sorted(batches)}; expected the batch in all."
        )
    return inputs, batches.pop() if batches else None


def list_factors(inputs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """List the factors of described inputs, in order."""
    return tuple(dict.fromkeys(side for tensor in inputs for side in tensor["shape"] if isinstance(side, str)))


def bind(inputs: Sequence[Mapping[str, Any]], factors: Factors) -> list[TensorSpec]:
    """Return the inputs at these values of the factors; WorkloadError if one is not a positive integer."""
    sides = {name: _check_side(name, factors[name]) for name in list_factors(inputs)}
    return [
        TensorSpec.from_json({**tensor, "shape": [sides.get(side, side) for side in tensor["shape"]]})
        for tensor in inputs
    ]


def _check_input(path: Path, value: Any) -> None:
    if value.type.WhichOneof("value") != "tensor_type" or not value.type.tensor_type.HasField("shape"):
        raise WorkloadError(f"input {value.name} of {path} is not a tensor with a shape. Export it with one.")
    if not value.type.tensor_type.shape.dim:
        raise WorkloadError(f"input {value.name} of {path} is a scalar; expected the batch as first dimension.")


def _describe_input(path: Path, value: Any, names: Mapping[str, str]) -> Description:
    import onnx

    tensor = value.type.tensor_type
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    except KeyError:
        dtype = f"unknown type {tensor.elem_type}"
    if dtype not in feeds.DTYPES:
        raise WorkloadError(
            f"invalid dtype of input {value.name} of {path}: got {dtype}; expected one of {', '.join(feeds.DTYPES)}."
        )
    shape = [
        dimension.dim_value or names[_get_symbol(value.name, index, dimension)]
        for index, dimension in enumerate(tensor.shape.dim[1:], start=1)
    ]
    return {"name": value.name, "shape": shape, "dtype": dtype}


def _name_symbols(path: Path, values: Sequence[Any]) -> dict[str, str]:
    """Return the factor of each symbol of a dimension after the first: its name, as an identifier of its own."""
    batches = {value.type.tensor_type.shape.dim[0].dim_param for value in values} - {""}
    names: dict[str, str] = {}
    for value in values:
        for index, dimension in enumerate(value.type.tensor_type.shape.dim[1:], start=1):
            symbol = _get_symbol(value.name, index, dimension)
            if dimension.dim_value or symbol in names:
                continue
            if symbol in batches:
                raise WorkloadError(
                    f"dimension {index} of input {value.name} of {path} is {symbol!r}, which is the batch: dimension 0 "
                    "of an input. Export it with the batch as first dimension of every input, and in no other."
                )
            name = _NO_IDENTIFIER.sub("_", symbol)
            name = name if name.isidentifier() else f"dim_{name}"
            while name in names.values():
                name += "_"
            names[symbol] = name
    return names


def _get_symbol(name: str, index: int, dimension: Any) -> str:
    """The symbol of an open dimension; one without a symbol is named by its place."""
    return str(dimension.dim_param) or f"{name}_dim{index}"


def _check_side(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 1 or value != int(value):
        raise WorkloadError(f"invalid {name}, a dimension of an input: got {value!r}; expected an integer >= 1.")
    return int(value)
