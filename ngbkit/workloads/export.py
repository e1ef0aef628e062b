"""The export of a network to ONNX: once with a dynamic batch and then bound to each batch size, or once per size."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.errors import UnsupportedError
from ngbkit.workloads import feeds, files
from ngbkit.workloads.base import Network, TensorSpec

if TYPE_CHECKING:
    import torch

#: Larger weights are saved beside the graph: a protobuf message is limited to 2 GB.
EMBEDDED_BYTES = 1_500_000_000


def flatten(output: Any) -> list[torch.Tensor]:
    """Flatten the output of a module (a tensor, or nested tuples, lists and dicts of them) in the order of ONNX."""
    import torch
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def export_for(network: Network, folder: Path, batch_sizes: Iterable[int], seed: int) -> dict[int, Path]:
    """Export a network to one static ONNX file per batch size, in an existing folder, and return their paths.

    A module is exported once, with a dynamic batch, and bound to each batch size; if its batch cannot be dynamic, it is
    exported at each. An ONNX file is only bound, and never folded. `seed` draws the values that the exporter traces.
    `UnsupportedError`: a part of the network has no ONNX operator, or an ONNX file has another, fixed batch size.
    """
    sizes = list(batch_sizes)
    for size in sizes:
        _check_batch(network, size)
    paths = {size: folder / f"batch-{size}.onnx" for size in sizes}
    if network.onnx is not None:
        fold = network.module is not None  # a user's own file is measured unchanged
        return {
            size: specialise(network.onnx, size, path, inputs=network.inputs, fold=fold) for size, path in paths.items()
        }
    if network.batch_size is None:
        dynamic = folder / "batch-any.onnx"
        try:
            export(network, dynamic, seed=seed)
        except UnsupportedError:
            pass  # its batch cannot be dynamic; any other fault is raised again below
        else:
            return {size: specialise(dynamic, size, path) for size, path in paths.items()}
    for size, path in paths.items():
        export(network, path, seed=seed, batch_size=size)
    return paths


def export(network: Network, path: Path, *, seed: int, batch_size: int | None = None) -> None:
    """Export a module to ONNX, its inputs named as in `network.inputs`, its outputs in the order of `flatten`.

    The batch is dynamic unless a `batch_size` fixes it. Weights above 1.5 GB are saved beside the file.
    `UnsupportedError`: torch cannot export the module this way.
    """
    import torch

    if network.module is None:
        raise UnsupportedError("this network is an ONNX file already. Bind it to a batch size with export_for().")
    arrays = feeds.draw(network.inputs, network.examples, batch_size or 2, seed)
    try:
        with torch.no_grad():
            torch.onnx.export(
                network.module,
                tuple(torch.from_numpy(array) for array in arrays),
                path,
                input_names=[spec.name for spec in network.inputs],
                dynamic_shapes=None if batch_size else build_dynamic_shapes(network.module, len(arrays)),
                dynamo=True,
                external_data=count_weight_bytes(network.module) > EMBEDDED_BYTES,
                verbose=False,
            )
    except Exception as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        mode = f"at batch size {batch_size}" if batch_size else "with a dynamic batch"
        raise UnsupportedError(f"torch cannot export this network to ONNX {mode}: {reason}") from error
    if batch_size is None and _is_batch_fixed(path):
        raise UnsupportedError("torch exported a fixed batch instead of a dynamic one.")


def build_dynamic_shapes(module: torch.nn.Module, count: int) -> tuple[Any, ...]:
    """Build torch.export's ``dynamic_shapes`` for `count` inputs whose first dimension is the batch."""
    from torch.export import Dim

    shapes = tuple({0: Dim.DYNAMIC} for _ in range(count))
    positional = len(list_positional(module))
    if positional >= count:
        return shapes
    return (*shapes[:positional], shapes[positional:])  # the others are passed as *args, which is one argument


def list_positional(module: torch.nn.Module) -> list[str]:
    """List the positional arguments of a module's ``forward``."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(module.forward).parameters
    return [name for name, parameter in parameters.items() if parameter.kind in kinds]


def specialise(path: Path, batch_size: int, out: Path, *, inputs: Sequence[TensorSpec] = (), fold: bool = True) -> Path:
    """Bind the open dimensions of an ONNX file, write the static file to `out`, and return its path.

    The first dimension of its inputs is the batch, and `inputs` have the sides of the others. A file without an open
    dimension is copied; another fixed batch size raises `UnsupportedError`. Unless `fold` is off, for a file to measure
    unchanged, the arithmetic on shapes is folded if onnxscript is installed; without it, shapes are only inferred, and
    runtimes fold for themselves.
    """
    import onnx

    model = _load(path, out.parent)
    batches = {value.type.tensor_type.shape.dim[0].dim_value for value in find_inputs(model.graph)}
    for batch in batches - {0, batch_size}:
        raise UnsupportedError(_describe_mismatch(batch, batch_size))
    if not any(_is_open(side) for value in find_inputs(model.graph) for side in value.type.tensor_type.shape.dim):
        onnx.save(model, out)
        return out
    bind_shapes(model.graph, batch_size, inputs)
    onnx.save(_fold(model) if fold else _infer_shapes(model), out)
    return out


def bind_shapes(graph: Any, batch_size: int, inputs: Sequence[TensorSpec] = ()) -> None:
    """Bind the open dimensions of an `onnx.GraphProto`'s inputs and outputs, and drop the shapes between them.

    The first one is the batch; the others are those of `inputs`, and open without them. Where no input is open, the
    shapes stay: those of a runtime's own operators cannot be inferred.
    """
    shapes = {spec.name: spec.shape for spec in inputs}
    is_static = not any(_is_open(side) for value in find_inputs(graph) for side in value.type.tensor_type.shape.dim)
    sides: dict[str, int] = {}
    for value in find_inputs(graph):
        dimensions = value.type.tensor_type.shape.dim
        for dimension, side in zip(dimensions[1:], shapes.get(value.name, ()), strict=False):
            if _is_open(dimension):
                sides[dimension.dim_param] = dimension.dim_value = side
        _bind_batch(dimensions, batch_size)
    for value in graph.output:
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param and dimension.dim_param in sides:
                dimension.dim_value = sides[dimension.dim_param]
        _bind_batch(value.type.tensor_type.shape.dim, batch_size)
    if not is_static:
        del graph.value_info[:]  # their batch is the traced one


def _bind_batch(dimensions: Any, batch_size: int) -> None:
    if dimensions and not dimensions[0].HasField("dim_value"):
        dimensions[0].dim_value = batch_size


def _is_open(dimension: Any) -> bool:
    return not dimension.dim_value


def open_negative(graph: Any) -> None:
    """Make negative dimensions of inputs and outputs dynamic: Paddle's exporter writes dynamic ones that way."""
    for value in (*graph.input, *graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_value < 0:
                dimension.ClearField("value")


def find_external_files(model: Any) -> dict[str, int]:
    """Find the external data of an `onnx.ModelProto`: file names, each with its least size in bytes.

    `ValueError`: an offset or a length is no number, or negative.
    """
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    sizes: dict[str, int] = {}
    for tensor in chain(find_tensors(model.graph), *(_find_constants(function.node) for function in model.functions)):
        if uses_external_data(tensor):
            info = ExternalDataInfo(tensor)
            end = (info.offset or 0) + (info.length or 0)
            sizes[info.location] = max(end, sizes.get(info.location, 0))
    return sizes


def find_tensors(graph: Any) -> Iterator[Any]:
    """Yield every constant tensor of an `onnx.GraphProto`: initialisers and attributes of nodes, with subgraphs."""
    yield from graph.initializer
    yield from _split_sparse(graph.sparse_initializer)
    yield from _find_constants(graph.node)


def _find_constants(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("sparse_tensor"):
                yield from _split_sparse([attribute.sparse_tensor])
            yield from _split_sparse(attribute.sparse_tensors)
        for subgraph in find_subgraphs(node):
            yield from find_tensors(subgraph)


def _split_sparse(tensors: Iterable[Any]) -> Iterator[Any]:
    for tensor in tensors:
        yield from (tensor.values, tensor.indices)


def find_subgraphs(node: Any) -> Iterator[Any]:
    """Yield the subgraphs of an `onnx.NodeProto`, such as the branches of an ``If``."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def find_inputs(graph: Any) -> list[Any]:
    """Find the inputs of an `onnx.GraphProto` that are not initialisers."""
    initializers = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in initializers]


def _check_batch(network: Network, batch_size: int) -> None:
    if network.batch_size not in (None, batch_size):
        raise UnsupportedError(_describe_mismatch(network.batch_size or 0, batch_size))


def _describe_mismatch(fixed: int, batch_size: int) -> str:
    return (
        f"invalid batch size: got {batch_size}; expected {fixed}, as the first dimension of this network is fixed. "
        f"Sweep batch size {fixed}, or export the network again with a dynamic first dimension."
    )


def _load(path: Path, folder: Path) -> Any:
    """Load a model with its weights; copy them to `folder` instead if they are too large for one file."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    sizes = find_external_files(model)
    if sum(sizes.values()) <= EMBEDDED_BYTES:
        model = onnx.load(path)
    else:
        for name in sizes:
            if not (folder / name).exists():
                files.copy(path.parent / name, folder / name)
    open_negative(model.graph)
    return model


def _fold(model: Any) -> Any:
    if find_spec("onnxscript") is not None and not find_external_files(model):
        from onnxscript import optimizer

        try:
            return optimizer.optimize(model)
        except Exception:  # noqa: BLE001  it does not know an operator, and folding is optional
            pass
    return _infer_shapes(model)


def _infer_shapes(model: Any) -> Any:
    import onnx

    try:
        return onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError:
        return model


def _is_batch_fixed(path: Path) -> bool:
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    return any(value.type.tensor_type.shape.dim[0].HasField("dim_value") for value in find_inputs(graph))


def count_weight_bytes(module: torch.nn.Module) -> int:
    """Count the bytes of a module's parameters and buffers."""
    return sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))
