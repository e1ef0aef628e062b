"""A network as ONNX: exported once with a dynamic batch and bound to each batch size, or exported at one of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.errors import UnsupportedError
from ngbkit.workloads import feeds, files
from ngbkit.workloads.base import Network

if TYPE_CHECKING:
    import torch

#: Above this, weights go to a file beside the graph: one protobuf message ends at 2 GB.
EMBEDDED_BYTES = 1_500_000_000


def flatten(output: Any) -> list[torch.Tensor]:
    """The tensors that a module returned, bare or in tuples, lists and dicts, in the order in which ONNX has them."""
    import torch
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def export_for(network: Network, folder: Path, batch_sizes: Iterable[int], seed: int) -> dict[int, Path]:
    """The network as one static ONNX file a batch size.

    A module is exported once, with a dynamic batch, and bound to each batch size; where its batch cannot be dynamic, it
    is exported at each. An ONNX file is only bound: nothing in it is folded.

    Parameters
    ----------
    network
        What to export.
    folder
        An existing folder for the files.
    batch_sizes
        The batch sizes wanted.
    seed
        Seeds the values that an exporter traces with.

    Raises
    ------
    UnsupportedError
        No ONNX operator stands for a part of the network, or an ONNX file does not take one of these batch sizes.
    """
    sizes = list(batch_sizes)
    for size in sizes:
        _check_batch(network, size)
    paths = {size: folder / f"batch-{size}.onnx" for size in sizes}
    if network.onnx is not None:
        fold = network.module is not None  # a file of the user's own is measured as it came
        return {size: specialise(network.onnx, size, path, fold=fold) for size, path in paths.items()}
    if network.batch_size is None:
        dynamic = folder / "batch-any.onnx"
        try:
            export(network, dynamic, seed=seed)
        except UnsupportedError:
            pass  # its batch cannot be dynamic; whatever else is wrong will show again below
        else:
            return {size: specialise(dynamic, size, path) for size, path in paths.items()}
    for size, path in paths.items():
        export(network, path, seed=seed, batch_size=size)
    return paths


def export(network: Network, path: Path, *, seed: int, batch_size: int | None = None) -> None:
    """Write a module as ONNX, its inputs named as in `network.inputs`, its outputs in the order of `flatten`.

    Parameters
    ----------
    network
        With a module.
    path
        The file to write. Weights above 1.5 GB go to a file beside it.
    seed
        Seeds the values that the exporter traces with.
    batch_size
        The only batch size of the file; None leaves it open.

    Raises
    ------
    UnsupportedError
        torch cannot export the module so.
    """
    import torch

    if network.module is None:
        raise UnsupportedError("this network is an ONNX file already; bind it to a batch size with export_for().")
    arrays = feeds.draw(network.inputs, network.examples, batch_size or 2, seed)
    try:
        with torch.no_grad():
            torch.onnx.export(
                network.module,
                tuple(torch.from_numpy(array) for array in arrays),
                path,
                input_names=[spec.name for spec in network.inputs],
                dynamic_shapes=None if batch_size else dynamic_batch(network.module, len(arrays)),
                dynamo=True,
                external_data=_weight_bytes(network.module) > EMBEDDED_BYTES,
                verbose=False,
            )
    except Exception as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        how = f"at batch size {batch_size}" if batch_size else "with a dynamic batch"
        raise UnsupportedError(f"torch cannot export this network to ONNX {how}: {reason}") from error
    if batch_size is None and _fixed_batch(path):
        raise UnsupportedError("the export fixed the batch that was to be dynamic.")


def dynamic_batch(module: torch.nn.Module, count: int) -> tuple[Any, ...]:
    """torch.export's ``dynamic_shapes`` for `count` inputs whose first dimension is the batch."""
    from torch.export import Dim

    shapes = tuple({0: Dim.DYNAMIC} for _ in range(count))
    parameters = list(inspect.signature(module.forward).parameters.values())
    fixed = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if len(fixed) >= count:
        return shapes
    return (*shapes[: len(fixed)], shapes[len(fixed) :])  # the rest goes to *args, which is one argument


def specialise(path: Path, batch_size: int, out: Path, *, fold: bool = True) -> Path:
    """Bind the dynamic batch of an ONNX file: every shape static, and the arithmetic on shapes folded away.

    Parameters
    ----------
    path
        A file whose inputs are dynamic in their first dimension, and only there. One of a fixed batch is copied.
    batch_size
        What to bind it to.
    out
        The file to write, in an existing folder.
    fold
        Whether to fold arithmetic on shapes. Not for a file that is to be measured as it came.

    Returns
    -------
    Path
        `out`.

    Raises
    ------
    UnsupportedError
        The file takes another batch size only.

    Notes
    -----
    Without onnxscript, shapes are inferred and nothing is folded; runtimes fold for themselves.
    """
    import onnx

    graph = _read(path, out.parent)
    fixed = {value.type.tensor_type.shape.dim[0].dim_value for value in _fed(graph.graph)} - {0}
    for other in fixed - {batch_size}:
        raise UnsupportedError(_other_batch(other, batch_size))
    if all(value.type.tensor_type.shape.dim[0].dim_value for value in _fed(graph.graph)):
        onnx.save(graph, out)
        return out
    for value in (*_fed(graph.graph), *graph.graph.output):
        dimensions = value.type.tensor_type.shape.dim
        if dimensions and not dimensions[0].HasField("dim_value"):
            dimensions[0].dim_value = batch_size
    del graph.graph.value_info[:]  # they hold the batch that was traced with
    onnx.save(_folded(graph) if fold else _inferred(graph), out)
    return out


def open_negative(graph: Any) -> None:
    """Leave dimensions of inputs and outputs open that are below 0, which is how Paddle's exporter writes them."""
    for value in (*graph.input, *graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_value < 0:
                dimension.ClearField("value")


def external_files(graph: Any) -> dict[str, int]:
    """The files beside an `onnx.ModelProto` that hold its tensors, each with the bytes that it must hold at least."""
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    needed: dict[str, int] = {}
    for tensor in tensors(graph.graph):
        if uses_external_data(tensor):
            info = ExternalDataInfo(tensor)
            end = (info.offset or 0) + (info.length or 0)
            needed[info.location] = max(end, needed.get(info.location, 0))
    return needed


def tensors(graph: Any) -> Iterator[Any]:
    """Every constant tensor of an `onnx.GraphProto`: initialisers and attributes of nodes, subgraphs included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from tensors(attribute.g)
            for subgraph in attribute.graphs:
                yield from tensors(subgraph)


def _check_batch(network: Network, batch_size: int) -> None:
    if network.batch_size not in (None, batch_size):
        raise UnsupportedError(_other_batch(network.batch_size or 0, batch_size))


def _other_batch(only: int, asked: int) -> str:
    return (
        f"this network takes batch size {only} only, as its first dimension is fixed; {asked} was asked. "
        f"Sweep batch size {only}, or export it again with a dynamic first dimension."
    )


def _read(path: Path, folder: Path) -> Any:
    """The graph with its weights in it; where those are too large for one file, beside it in `folder`."""
    import onnx

    graph = onnx.load(path, load_external_data=False)
    beside = external_files(graph)
    if sum(beside.values()) <= EMBEDDED_BYTES:
        graph = onnx.load(path)
        open_negative(graph.graph)
        return graph
    open_negative(graph.graph)
    for name in beside:
        if not (folder / name).exists():
            files.copy(path.parent / name, folder / name)
    return graph


def _folded(graph: Any) -> Any:
    if find_spec("onnxscript") is not None and not external_files(graph):
        from onnxscript import optimizer

        try:
            return optimizer.optimize(graph)
        except Exception:  # noqa: BLE001  an operator strange to it; the graph is right without, so folding is a courtesy
            pass
    return _inferred(graph)


def _inferred(graph: Any) -> Any:
    import onnx

    try:
        return onnx.shape_inference.infer_shapes(graph)
    except onnx.shape_inference.InferenceError:
        return graph


def _fed(graph: Any) -> list[Any]:
    held = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in held]


def _fixed_batch(path: Path) -> bool:
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    return any(value.type.tensor_type.shape.dim[0].HasField("dim_value") for value in _fed(graph))


def _weight_bytes(module: torch.nn.Module) -> int:
    return sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))
