"""Finds the torch modules among a notebook's variables, and exports them as workloads."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ngbkit.errors import UsageError, WorkloadError
from ngbkit.sweep import parsing

if TYPE_CHECKING:
    import torch

    from ngbkit.workloads.base import Workload


def find(namespace: Mapping[str, Any]) -> dict[str, torch.nn.Module]:
    """Find the variables that hold a torch module, without importing torch."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return {}
    modules = {name: value for name, value in namespace.items() if isinstance(value, torch.nn.Module)}
    return {name: value for name, value in modules.items() if not name.startswith("_")}


def to_workload(name: str, namespace: Mapping[str, Any], args: argparse.Namespace) -> Workload:
    """Export the torch module in a variable as a workload, by the parsed arguments of ``%ngbench``."""
    return _export(args.name or name, find(namespace)[name], _find_inputs(name, namespace, args), args)


def _find_inputs(name: str, namespace: Mapping[str, Any], args: argparse.Namespace) -> Any:
    """Find example tensors for a module: from the options, else from the variables of the notebook."""
    if args.inputs is not None:
        if args.inputs not in namespace:
            raise UsageError(f"no variable {args.inputs!r}; --inputs expects the name of a variable of tensors.")
        return namespace[args.inputs]
    if args.input_shape is not None:
        return _draw([parsing.parse_shape(text) for text in args.input_shape])
    if "inputs" in namespace:
        return namespace["inputs"]
    if "input_shape" in namespace:
        return _draw(_to_shapes(namespace["input_shape"]))
    raise UsageError(
        f"the inputs of {name} are unknown. Give the shape of one sample by --input-shape 3,224,224, or example "
        "tensors by --inputs NAME (or define a variable `inputs` or `input_shape`)."
    )


def _export(name: str, module: torch.nn.Module, example_inputs: Any, args: argparse.Namespace) -> Workload:
    """Export a module for any batch size, or, where that fails, for the batch sizes of the sweep."""
    from ngbkit.workloads.module import from_module

    try:
        return from_module(name, module, example_inputs)
    except WorkloadError:
        if args.batch_sizes is None:
            raise
    sizes = [size for text in args.batch_sizes for size in parsing.parse_numbers("batch size", text)]
    return from_module(name, module, example_inputs, batch_sizes=[int(size) for size in sizes])


def _draw(shapes: list[tuple[int, ...]]) -> Any:
    """Draw two samples of noise for each input, without touching the global random state."""
    import torch

    generator = torch.Generator().manual_seed(0)
    tensors = tuple(torch.randn(2, *shape, generator=generator) for shape in shapes)
    return tensors[0] if len(tensors) == 1 else tensors


def _to_shapes(value: Any) -> list[tuple[int, ...]]:
    try:
        shapes = value if isinstance(value[0], (tuple, list)) else [value]
        return [tuple(map(int, shape)) for shape in shapes]
    except (TypeError, ValueError, IndexError, KeyError):
        raise UsageError(
            f"invalid variable input_shape: got {value!r}; expected the shape of one sample such as (3, 224, 224), "
            "or a list of shapes."
        ) from None
