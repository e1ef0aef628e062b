"""The torch modules of a notebook's variables, as workloads: found, fed and exported."""

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
    """The variables that hold a torch module. Without torch there is none, and it is not imported to find that out."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return {}
    modules = {name: value for name, value in namespace.items() if isinstance(value, torch.nn.Module)}
    return {name: value for name, value in modules.items() if not name.startswith("_")}


def to_workload(name: str, namespace: Mapping[str, Any], asked: argparse.Namespace) -> Workload:
    """The module that a variable holds, as a workload.

    Parameters
    ----------
    name
        The variable; one that `find` gave.
    namespace
        The user's variables.
    asked
        The parsed arguments of ``%ngbench``; `ngbkit.commands.arguments.MODULE` are those of a module.

    Raises
    ------
    UsageError
        What it takes is not known.
    WorkloadError
        It cannot be exported.
    """
    return _export(asked.name or name, find(namespace)[name], _example_inputs(name, namespace, asked), asked)


def _example_inputs(name: str, namespace: Mapping[str, Any], asked: argparse.Namespace) -> Any:
    """Example tensors for a module of the notebook: what the options say, else what the notebook's variables do."""
    if asked.inputs is not None:
        if asked.inputs not in namespace:
            raise UsageError(f"--inputs {asked.inputs}: there is no variable of that name.")
        return namespace[asked.inputs]
    if asked.input_shape is not None:
        return _draw([parsing.read_shape(text) for text in asked.input_shape])
    if "inputs" in namespace:
        return namespace["inputs"]
    if "input_shape" in namespace:
        return _draw(_shapes(namespace["input_shape"]))
    raise UsageError(
        f"what {name} takes is not known. Give the shape of one sample by --input-shape 3,224,224, or example "
        "tensors by --inputs NAME (or define a variable `inputs` or `input_shape`)."
    )


def _export(name: str, module: torch.nn.Module, example_inputs: Any, asked: argparse.Namespace) -> Workload:
    """The module as a workload for any batch size; where that cannot be exported, for those that are asked for."""
    from ngbkit.workloads.module import from_module

    try:
        return from_module(name, module, example_inputs)
    except WorkloadError:
        if asked.batch_sizes is None:
            raise
    sizes = [size for text in asked.batch_sizes for size in parsing.read_numbers("batch size", text)]
    return from_module(name, module, example_inputs, batch_sizes=[int(size) for size in sizes])


def _draw(shapes: list[tuple[int, ...]]) -> Any:
    """Two rows of noise an input, from a generator of its own."""
    import torch

    generator = torch.Generator().manual_seed(0)
    drawn = tuple(torch.randn(2, *shape, generator=generator) for shape in shapes)
    return drawn[0] if len(drawn) == 1 else drawn


def _shapes(given: Any) -> list[tuple[int, ...]]:
    try:
        several = isinstance(given[0], (tuple, list))
        return [tuple(map(int, shape)) for shape in (given if several else [given])]
    except (TypeError, ValueError, IndexError, KeyError):
        raise UsageError(
            f"the variable input_shape is {given!r}; valid is the shape of one sample such as (3, 224, 224), "
            "or a list of them."
        ) from None
