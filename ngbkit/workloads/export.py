"""The export of a network to ONNX: once with a dynamic batch and then bound to each batch size, or once per size."""

from __future__ import annotations

import inspect
import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit import limits
from ngbkit.errors import UnsupportedError
from ngbkit.files import describe_disk_fault
from ngbkit.requirements import describe_import
from ngbkit.workloads import feeds
from ngbkit.workloads.base import Network, TensorSpec
from ngbkit.workloads.export_refusals import describe_cause, describe_refusal
from ngbkit.workloads.onnx_binding import EMBEDDED_BYTES, describe_mismatch, specialise
from ngbkit.workloads.onnx_traversal import find_inputs

if TYPE_CHECKING:
    import torch

# The suffix of the file that names the exporter of a graph, if it is not torch.export.
_EXPORTER = ".exporter"


def flatten(output: Any) -> list[torch.Tensor]:
    """Flatten outputs to tensors, in the order of ONNX; numbers and None are no outputs."""
    import torch

    if isinstance(output, torch.Tensor):
        return [output]
    members: Iterable[Any] = ()
    if isinstance(output, Mapping):
        members = output.values()
    elif isinstance(output, (list, tuple, deque)):
        members = output
    elif is_dataclass(output) and not isinstance(output, type):
        members = [getattr(output, field.name) for field in fields(output)]
    return [tensor for member in members for tensor in flatten(member)]


def is_flat(output: Any) -> bool:
    """Return whether every exporter takes an output as it is: a tensor, or nested tuples, lists and dicts."""
    import torch

    if isinstance(output, torch.Tensor):
        return True
    if type(output) in (tuple, list):
        return all(map(is_flat, output))
    return type(output) is dict and all(map(is_flat, output.values()))


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """Convert an array to a tensor that shares no memory with it, bfloat16 of ml_dtypes included."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.tensor(array.view("uint16")).view(torch.bfloat16)
    return torch.tensor(array)


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """Convert an output to an array: 16-bit floats to float32, complex numbers to pairs of real ones, as in ONNX."""
    import torch

    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    short = {torch.bfloat16, torch.float16}
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    return np.asarray((tensor.float() if tensor.dtype in short else tensor).numpy(force=True))


def export_for(network: Network, folder: Path, batch_sizes: Iterable[int], seed: int) -> dict[int, Path]:
    """Export a network to one static ONNX file per batch size, in an existing folder, and return their paths.

    A module is exported once, with a dynamic batch, and bound to each batch size; if its batch cannot be dynamic, it is
    exported at each, by torch.export or, where that fails, by TorchScript, as `read_exporter` tells. An ONNX file is
    only bound, and never folded. `seed` draws the values that the exporter traces.
    `UnsupportedError`: a part of the network has no ONNX operator, or an ONNX file has another, fixed batch size; the
    files of the other batch sizes are there.
    """
    sizes = list(batch_sizes)
    for size in sizes:
        if network.batch_size not in (None, size):
            raise UnsupportedError(describe_mismatch(network.batch_size or 0, size))
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
            inputs = network.inputs
            return {size: specialise(dynamic, size, path, inputs=inputs) for size, path in paths.items()}
    refusal: UnsupportedError | None = None
    for size, path in paths.items():
        try:
            _export_static(network, path, size, seed)
        except UnsupportedError as error:
            refusal = refusal or error
    if refusal is not None:
        raise refusal
    return paths


def read_exporter(path: Path) -> str:
    """Read the name of the exporter of a file that `export_for` wrote."""
    record = path.with_suffix(_EXPORTER)
    return record.read_text() if record.exists() else "torch.export"


def _export_static(network: Network, path: Path, batch_size: int, seed: int) -> None:
    """Export a module at one batch size by torch.export, or by TorchScript, which keeps what the inputs decide."""
    try:
        export(network, path, seed=seed, batch_size=batch_size)
    except UnsupportedError as error:
        try:
            _export_traced(network, path, batch_size, seed)
        except Exception as other:
            if describe_disk_fault(other) or limits.describe(other):
                raise
            raise UnsupportedError(f"{error}. TorchScript: {describe_cause(other)}") from error
        path.with_suffix(_EXPORTER).write_text("TorchScript")


def _export_traced(network: Network, path: Path, batch_size: int, seed: int) -> None:
    import torch

    assert network.module is not None
    tensors = tuple(map(to_tensor, feeds.draw(network.inputs, network.examples, batch_size, seed)))
    names = [spec.name for spec in network.inputs]
    with torch.no_grad(), warnings.catch_warnings(), _expand_groups():
        warnings.simplefilter("ignore")
        torch.onnx.export(network.module, tensors, path, input_names=names, dynamo=False, verbose=False)


def _expand_groups() -> AbstractContextManager[Any]:
    """Repeat the keys and values of grouped attention, which TorchScript's exporter has not, for the block."""
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    class ExpandGroups(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            options = dict(kwargs or {})
            if func is functional.scaled_dot_product_attention and options.pop("enable_gqa", False):
                query, *others = args[:3]
                groups = (each.repeat_interleave(query.shape[-3] // each.shape[-3], -3) for each in others)
                args = (query, *groups, *args[3:])
            return func(*args, **options)

    return ExpandGroups()


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
            tensors = tuple(map(to_tensor, arrays))
            shapes = None if batch_size else build_dynamic_shapes(network.module, network.inputs)
            program: Any = network.module
            if any(isinstance(part, torch.jit.ScriptModule) for part in network.module.modules()):
                program = replace_traced(torch.export.export(network.module, tensors, dynamic_shapes=shapes))
            torch.onnx.export(
                program,
                tensors,
                path,
                input_names=[spec.name for spec in network.inputs],
                dynamic_shapes=shapes if program is network.module else None,
                dynamo=True,
                external_data=count_weight_bytes(network.module) > EMBEDDED_BYTES,
                verbose=False,
            )
    except Exception as error:
        if describe_disk_fault(error) or limits.describe(error) or describe_import(error):
            raise  # not of the network: a next run may export it
        mode = f"at batch size {batch_size}" if batch_size else "with a dynamic batch"
        raise UnsupportedError(f"torch cannot export this network to ONNX {mode}: {describe_refusal(error)}") from error
    if batch_size is None and _is_batch_fixed(path, network.inputs):
        raise UnsupportedError("torch exported a fixed batch instead of a dynamic one.")


def replace_traced(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Replace, in place, the convolution of traced modules, which ONNX lacks, by the one that eager modules call."""
    import torch

    aten = torch.ops.aten
    for node in program.graph.nodes:
        if node.target is aten._convolution.default:
            node.target, node.args = aten.convolution.default, node.args[:9]
    return program


def build_dynamic_shapes(module: torch.nn.Module, inputs: Sequence[TensorSpec]) -> tuple[Any, ...]:
    """Build torch.export's ``dynamic_shapes`` for inputs, whose dimensions with the batch are dynamic."""
    from torch.export import Dim

    shapes = tuple(dict.fromkeys(spec.batch_axes, Dim.DYNAMIC) for spec in inputs)
    positional = len(list_positional(module))
    if positional >= len(shapes):
        return shapes
    return (*shapes[:positional], shapes[positional:])  # the others are passed as *args, which is one argument


def list_positional(module: torch.nn.Module) -> list[str]:
    """List the positional arguments of a module's ``forward``."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, parameter in read_signature(module).parameters.items() if parameter.kind in kinds]


def read_signature(module: torch.nn.Module) -> inspect.Signature:
    """Read the signature of a module's ``forward``, without ``self``; a traced or scripted one has a schema."""
    try:
        return inspect.signature(module.forward)
    except ValueError:
        forward: Any = module.forward
        names = [argument.name for argument in forward.schema.arguments][1:]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in names])


def _is_batch_fixed(path: Path, inputs: Sequence[TensorSpec]) -> bool:
    import onnx

    values = find_inputs(onnx.load(path, load_external_data=False).graph)
    sides = {value.name: value.type.tensor_type.shape.dim for value in values}
    return any(
        sides[spec.name][spec.batch_axis].HasField("dim_value")
        for spec in inputs
        if spec.batch_axis is not None and spec.name in sides
    )


def count_weight_bytes(module: torch.nn.Module) -> int:
    """Count the bytes of a module's parameters and buffers."""
    return sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))
