"""The inputs that a user describes by shapes or tensors, as the specs and example rows of a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ngbkit.errors import WorkloadError
from ngbkit.workloads.base import TensorSpec
from ngbkit.workloads.export import flatten, list_positional

if TYPE_CHECKING:
    import torch

    from ngbkit.workloads.feeds import Array

Item = TypeVar("Item")

_SHAPES = "a tuple such as (3, 224, 224), a list of tuples, or a dict of them by input name"
_VALUES = "a tensor with a leading batch dimension, a tuple or list of these, or a dict of them by input name"


def parse_shapes(input_shape: Any, module: torch.nn.Module) -> list[TensorSpec]:
    """Parse an ``input_shape`` to float32 inputs, named after the module's arguments."""
    if isinstance(input_shape, Mapping):
        shapes = {str(name): _parse_shape(shape) for name, shape in input_shape.items()}
    else:
        is_list = isinstance(input_shape, Sequence) and bool(input_shape) and not all(map(_is_side, input_shape))
        shapes = _name(module, [_parse_shape(shape) for shape in (input_shape if is_list else [input_shape])])
    return [TensorSpec(name=name, shape=shape) for name, shape in shapes.items()]


def parse_values(values: Any, module: torch.nn.Module) -> tuple[list[TensorSpec], dict[str, Array]]:
    """Parse example tensors to inputs and their rows by input name; all have the same number of rows."""
    if isinstance(values, Mapping):
        arrays = {str(name): _to_array(value) for name, value in values.items()}
    else:
        tensors = values if isinstance(values, (tuple, list)) else [values]
        arrays = _name(module, [_to_array(tensor) for tensor in tensors])
    if not arrays:
        raise WorkloadError(f"no inputs; expected {_VALUES}.")
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise WorkloadError(f"invalid batch of the inputs: got {lengths} rows; expected the same number >= 1 for all.")
    specs = [TensorSpec(name=name, shape=array.shape[1:], dtype=array.dtype.name) for name, array in arrays.items()]
    return specs, arrays


def wrap_in_order(module: torch.nn.Module, names: Sequence[str] | None = None) -> torch.nn.Module:
    """Wrap a module to take tensors in order, to pass them by keyword if `names`, and to return a flat tuple."""
    from torch import nn

    class InOrder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            if names is None:
                return tuple(flatten(self.inner(*tensors)))
            return tuple(flatten(self.inner(**dict(zip(names, tensors, strict=True)))))

    return InOrder().train(module.training)


def wrap_by_position(module: torch.nn.Module, specs: Sequence[TensorSpec]) -> torch.nn.Module:
    """Return the module itself if these inputs are its first arguments in order; else wrap it to pass them by name."""
    names = [spec.name for spec in specs]
    return module if names == _list_arguments(module, len(specs)) else wrap_in_order(module, names)


def check_outputs(name: str, module: torch.nn.Module, specs: Sequence[TensorSpec], arrays: Sequence[Array]) -> None:
    """Run the module once on these arrays, and raise `WorkloadError` if it fails or returns no tensor."""
    import torch

    try:
        with torch.no_grad():
            outputs = flatten(module(*(torch.from_numpy(array) for array in arrays)))
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).strip()}"
        raise WorkloadError(f"invalid inputs of {name}: fed {_describe(specs, arrays)}, it raised {reason}") from error
    if not outputs:
        raise WorkloadError(f"{name} returned no tensor; expected one or more.")


def _describe(specs: Sequence[TensorSpec], arrays: Sequence[Array]) -> str:
    return ", ".join(f"{spec.name} {array.dtype} {array.shape}" for spec, array in zip(specs, arrays, strict=True))


def _name(module: torch.nn.Module, items: Sequence[Item]) -> dict[str, Item]:
    return dict(zip(_list_arguments(module, len(items)), items, strict=True))


def _list_arguments(module: torch.nn.Module, count: int) -> list[str]:
    """List the first `count` arguments of a module, or generate the names if it has fewer."""
    names = list_positional(module)
    return names[:count] if len(names) >= count else [f"input{index}" for index in range(count)]


def _parse_shape(shape: Any) -> tuple[int, ...]:
    sides = [shape] if _is_side(shape) else shape
    if not isinstance(sides, Sequence) or isinstance(sides, str) or not all(map(_is_side, sides)):
        raise WorkloadError(f"invalid input_shape: got {shape!r}; expected, without the batch dimension, {_SHAPES}.")
    return tuple(int(side) for side in sides)


def _is_side(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _to_array(value: Any) -> Array:
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        tensor = value.detach().cpu()
        if tensor.dtype == torch.bfloat16:
            raise WorkloadError(
                "invalid dtype of an input: got bfloat16, which NumPy lacks. Feed float32 and convert it in the module."
            )
        value = tensor.resolve_conj().resolve_neg().numpy()
    if not isinstance(value, np.ndarray) or not value.ndim:
        raise WorkloadError(f"invalid input: got a {type(value).__name__}; expected {_VALUES}.")
    return value
