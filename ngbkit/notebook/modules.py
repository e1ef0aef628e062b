"""Finds the torch modules among a notebook's variables, and exports them as workloads."""

from __future__ import annotations

import argparse
import operator
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ngbkit.errors import UsageError, WorkloadError
from ngbkit.sweep import feeding, parsing
from ngbkit.sweep.conversion import to_batch_sizes
from ngbkit.user_text import parse_path
from ngbkit.workloads.base import Workload

if TYPE_CHECKING:
    import torch


def find(namespace: Mapping[str, Any]) -> dict[str, torch.nn.Module]:
    """Find the variables that hold a torch module, without importing torch."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return {}
    modules = {name: value for name, value in namespace.items() if isinstance(value, torch.nn.Module)}
    return {name: value for name, value in modules.items() if not name.startswith("_")}


def to_workloads(words: Sequence[str], namespace: Mapping[str, Any], args: argparse.Namespace) -> list[str | Workload]:
    """Export each torch module that a word names as a workload, by the parsed arguments `MODULE`; keep other words."""
    modules = find(namespace)
    return [
        _export(args.name or word, modules[word], _find_inputs(word, namespace, args), args)
        if word in modules
        else parsing.restore_quotes(word)
        for word in words
    ]


def store_inputs(texts: Sequence[str] | None, namespace: Mapping[str, Any]) -> list[str] | None:
    """Store the variables that texts of ``--inputs`` and the like name, and return the texts with files."""
    if texts is None:
        return None
    from ngbkit.workloads import targets, values

    sources = feeding.parse_inputs(texts)
    files = {
        network: str(values.store(values.load(targets.to_source(namespace[source]))))
        if _has_values(source, namespace)
        else source
        for network, source in sources.items()
    }
    return feeding.format_inputs(files)


def _has_values(name: str, namespace: Mapping[str, Any]) -> bool:
    """Return whether a variable may have values: ``import random`` is no variable that ``--calibrate random`` names."""
    return name in namespace and not isinstance(namespace[name], ModuleType)


def _find_inputs(name: str, namespace: Mapping[str, Any], args: argparse.Namespace) -> Any:
    """Find example tensors for a module: from the options, else from the variables of the notebook."""
    sources = feeding.parse_inputs(args.inputs or ())
    source = sources.get(args.name or name, sources.get(feeding.ALL))
    if source is not None:
        return namespace[source] if source in namespace else _load(source)
    if args.input_shape is not None:
        return _draw([parsing.parse_shape(text) for text in args.input_shape])
    if "inputs" in namespace:
        return namespace["inputs"]
    if "input_shape" in namespace:
        return _draw(_to_shapes(namespace["input_shape"]))
    raise UsageError(
        f"the inputs of {name} are unknown. Give the shape of one sample by --input-shape 3,224,224, or example "
        "tensors by --inputs NAME, a variable (or define a variable `inputs` or `input_shape`)."
    )


def _load(file: str) -> Any:
    """Load example arrays from a file: by argument, or in order."""
    if not parse_path(file).exists():
        raise UsageError(
            f"invalid --inputs: got {file!r}; expected the name of a variable of tensors, or a file of arrays, .npz or "
            ".npy."
        )
    from ngbkit.workloads import values

    arrays = values.load(file)
    return tuple(arrays.values()) if all(key.isdigit() for key in arrays) else arrays


def _export(name: str, module: torch.nn.Module, example_inputs: Any, args: argparse.Namespace) -> Workload:
    """Export a module for any batch size, or, where that fails, for the batch sizes of the sweep."""
    from ngbkit.workloads.module import from_module

    axes = feeding.parse_batch_axes(args.batch_axis or ())
    keywords: dict[str, Any] = {"batch_axis": axes} if axes else {}
    batch_sizes = getattr(args, "batch_sizes", None)
    try:
        return from_module(name, module, example_inputs, **keywords)
    except WorkloadError:
        if batch_sizes is None:
            raise
    sizes = [size for text in batch_sizes for size in parsing.parse_numbers("batch size", text)]
    return from_module(name, module, example_inputs, batch_sizes=to_batch_sizes(sizes), **keywords)


def _draw(shapes: list[tuple[int, ...]]) -> Any:
    """Draw two samples of noise for each input, without touching the global random state."""
    import torch

    generator = torch.Generator().manual_seed(0)
    tensors = tuple(torch.randn(2, *shape, generator=generator) for shape in shapes)
    return tensors[0] if len(tensors) == 1 else tensors


def _to_shapes(value: Any) -> list[tuple[int, ...]]:
    try:
        shapes = value if isinstance(value[0], (tuple, list)) else [value]
        return [tuple(map(operator.index, shape)) for shape in shapes]
    except (TypeError, ValueError, IndexError, KeyError):
        raise UsageError(
            f"invalid variable input_shape: got {value!r}; expected the shape of one sample such as (3, 224, 224), "
            "or a list of shapes."
        ) from None
