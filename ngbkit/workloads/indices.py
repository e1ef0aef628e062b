"""Indices beyond their table: which input has them, which value, and which rows the table has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ngbkit.errors import WorkloadError
from ngbkit.workloads.randomise import compile_nothing

if TYPE_CHECKING:
    import torch

    from ngbkit.workloads.base import TensorSpec

# Operators of ATen with a table and indices: the places of both, and of the dimension; its default is the first.
_LOOKUPS: Mapping[str, tuple[int, int, int | None]] = {
    **dict.fromkeys(("embedding", "_embedding_bag", "_embedding_bag_forward_only", "take"), (0, 1, None)),
    **dict.fromkeys(("gather", "index_select", "scatter", "index_add", "index_copy", "scatter_add"), (0, 2, 1)),
}


def check_indices(specs: Sequence[TensorSpec], module: torch.nn.Module, tensors: Sequence[torch.Tensor]) -> None:
    """Run a module that fails on some inputs; WorkloadError if an index among them is beyond its table."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class CheckIndices(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            for table, axis, indices in _list_lookups(func, args):
                size = table.numel() if axis is None else table.shape[axis]
                least = -size if func.overloadpacket.__name__ in ("index", "take") else 0
                wrong = indices[(indices >= size) | (indices < least)]
                if wrong.numel():
                    raise WorkloadError(_describe(specs, module, tensors, table, int(wrong.flatten()[0]), size))
            return func(*args, **(kwargs or {}))

    mode: Any = CheckIndices
    problem: WorkloadError | None = None
    with suppress(Exception), torch.no_grad(), compile_nothing(), mode():
        try:
            module(*tensors)
        except WorkloadError as error:
            problem = error
    if problem is not None:
        raise problem


def _list_lookups(func: Any, args: Sequence[Any]) -> Iterator[tuple[torch.Tensor, int | None, torch.Tensor]]:
    """Yield each table of an operator with the dimension and the indices of its rows."""
    name = func.overloadpacket.__name__
    if name == "index":
        for axis, indices in enumerate(args[1]):
            if indices is not None and str(indices.dtype) != "torch.bool":
                yield args[0], axis, indices
    elif name in _LOOKUPS:
        table, place, dimension = _LOOKUPS[name]
        first = None if name == "take" else 0
        yield args[table], first if dimension is None else args[dimension], args[place]


def _describe(
    specs: Sequence[TensorSpec],
    module: torch.nn.Module,
    tensors: Sequence[torch.Tensor],
    table: torch.Tensor,
    value: int,
    size: int,
) -> str:
    weights = {tensor.data_ptr(): name for name, tensor in (*module.named_parameters(), *module.named_buffers())}
    name = weights.get(table.data_ptr(), "").removeprefix("inner.")
    holders = [
        spec.name
        for spec, tensor in zip(specs, tensors, strict=True)
        if not tensor.is_floating_point() and bool((tensor == value).any())
    ]
    subject = f"values of input {' or '.join(holders)}" if holders else "indices that the network computes"
    return (
        f"invalid {subject}: got {value}; expected integers from 0 to {size - 1}, as {name or 'a table'} has {size} "
        f"rows. {'Give values within them.' if holders else 'Bind the values themselves: inputs = torch.randint(…).'}"
    )
