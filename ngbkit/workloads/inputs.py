"""What a user calls inputs (shapes, tensors, lists or dicts of these), as the specs and example rows of a network."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ngbkit.errors import WorkloadError
from ngbkit.workloads.base import TensorSpec
from ngbkit.workloads.export import flatten

if TYPE_CHECKING:
    import torch

    from ngbkit.workloads.feeds import Array

_SHAPES = "a tuple such as (3, 224, 224), a list of tuples, or a dict of them by input name"
_VALUES = "a tensor with a leading batch dimension, a tuple or list of these, or a dict of them by input name"


def from_shapes(given: Any, module: torch.nn.Module) -> list[TensorSpec]:
    """The float32 inputs that an ``input_shape`` describes; their names are those of the module's arguments.

    Raises
    ------
    WorkloadError
        It is not one of the forms that an input shape may have.
    """
    if isinstance(given, Mapping):
        shapes = {str(name): _shape(shape) for name, shape in given.items()}
    else:
        several = isinstance(given, Sequence) and bool(given) and not all(_is_side(side) for side in given)
        listed = [_shape(shape) for shape in given] if several else [_shape(given)]
        shapes = dict(zip(_names(module, len(listed)), listed, strict=True))
    return [TensorSpec(name=name, shape=shape) for name, shape in shapes.items()]


def from_values(given: Any, module: torch.nn.Module) -> tuple[list[TensorSpec], dict[str, Array]]:
    """The inputs that example tensors describe, and their rows by input name.

    Raises
    ------
    WorkloadError
        It is not one of the forms that inputs may have, or their first dimensions differ.
    """
    if isinstance(given, Mapping):
        values = {str(name): _array(value) for name, value in given.items()}
    else:
        listed = [_array(value) for value in (given if isinstance(given, (tuple, list)) else [given])]
        values = dict(zip(_names(module, len(listed)), listed, strict=True))
    if not values:
        raise WorkloadError(f"the inputs are empty; valid: {_VALUES}.")
    rows = {name: len(value) for name, value in values.items()}
    if len(set(rows.values())) > 1 or 0 in rows.values():
        raise WorkloadError(
            f"the inputs must have the same batch of 1 row or more as their first dimension; they have {rows}."
        )
    specs = [TensorSpec(name=name, shape=value.shape[1:], dtype=value.dtype.name) for name, value in values.items()]
    return specs, values


def in_order(module: torch.nn.Module, names: Sequence[str] | None = None) -> torch.nn.Module:
    """The module as one that takes its tensors in order and gives a flat tuple of tensors.

    Parameters
    ----------
    module
        Any module.
    names
        The keywords that its tensors are passed by; None where they are passed by position.
    """
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


def by_position(module: torch.nn.Module, specs: Sequence[TensorSpec]) -> torch.nn.Module:
    """The module itself where these inputs are its first arguments in order; else one that passes them by name."""
    names = [spec.name for spec in specs]
    return module if names == _names(module, len(specs)) else in_order(module, names)


def try_out(
    name: str, module: torch.nn.Module, specs: Sequence[TensorSpec], arrays: Sequence[Array]
) -> list[torch.Tensor]:
    """Run the module once, on these arrays; its outputs.

    Raises
    ------
    WorkloadError
        The arrays do not fit it, or it returns no tensor. What the module raised is the error's cause.
    """
    import torch

    try:
        with torch.no_grad():
            outputs = flatten(module(*(torch.from_numpy(array) for array in arrays)))
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).strip()}"
        raise WorkloadError(
            f"the inputs do not fit {name}. It was fed {_describe(specs, arrays)} and raised {reason}"
        ) from error
    if not outputs:
        raise WorkloadError(f"{name} returned no tensor; a network to measure returns one or more.")
    return outputs


def _describe(specs: Sequence[TensorSpec], arrays: Sequence[Array]) -> str:
    return ", ".join(f"{spec.name} {array.dtype} {array.shape}" for spec, array in zip(specs, arrays, strict=True))


def _names(module: torch.nn.Module, count: int) -> list[str]:
    parameters = inspect.signature(module.forward).parameters.values()
    named = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return named[:count] if len(named) >= count else [f"input{index}" for index in range(count)]


def _shape(given: Any) -> tuple[int, ...]:
    sides = [given] if _is_side(given) else given
    if not isinstance(sides, Sequence) or isinstance(sides, str) or not all(_is_side(side) for side in sides):
        raise WorkloadError(f"input_shape {given!r} does not fit; valid, without the batch dimension: {_SHAPES}.")
    return tuple(int(side) for side in sides)


def _is_side(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _array(value: Any) -> Array:
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        tensor = value.detach().cpu()
        if tensor.dtype == torch.bfloat16:
            raise WorkloadError(
                "an input is of dtype bfloat16, which NumPy does not have; feed float32 and convert inside."
            )
        value = tensor.resolve_conj().resolve_neg().numpy()
    if not isinstance(value, np.ndarray) or not value.ndim:
        raise WorkloadError(f"an input of type {type(value).__name__} does not fit; valid: {_VALUES}.")
    return value
