"""The numeric precision of a network's own body, which decides how far rounding may take its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ngbkit.workloads.onnx_traversal import find_tensors, walk_graphs

if TYPE_CHECKING:
    import torch

#: The option of a compiler by which a column has another precision than the network.
PRECISION = "precision"
#: From the finest to the coarsest.
PRECISIONS = ("int", "f64", "f32", "q8", "f16", "bf16")
_TORCH = {"torch.float64": "f64", "torch.float32": "f32", "torch.float16": "f16", "torch.bfloat16": "bf16"}
_QUANTISED = {"torch.qint8", "torch.quint8", "torch.qint32"}
_QUANTISING = {"QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "QLinearAdd", "QGemm"}
_TYPE_ATTRIBUTES = ("to", "dtype")


def find_coarsest(precisions: Iterable[str]) -> str:
    """Find the coarsest of some precisions; ``"int"`` of none, for a network without a floating number."""
    return max(precisions, key=PRECISIONS.index, default="int")


def find_module_precision(module: torch.nn.Module, tensors: Sequence[torch.Tensor]) -> str:
    """Find the coarsest precision of any operator in one call of a module, and of its weights."""
    from torch.utils._python_dispatch import TorchDispatchMode

    dtypes = {str(weight.dtype) for weight in (*module.parameters(), *module.buffers())}
    dtypes |= {str(tensor.dtype) for tensor in tensors}

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            results = function(*args, **(kwargs or {}))
            for result in results if isinstance(results, (tuple, list)) else (results,):
                if hasattr(result, "dtype"):
                    dtypes.add(str(result.dtype))
            if "quantized" in str(function):
                dtypes.add("torch.qint8")
            return results

    with Recorder():  # type: ignore[no-untyped-call]
        module(*tensors)
    return find_coarsest([*(_TORCH[name] for name in dtypes & _TORCH.keys()), *["q8"] * bool(dtypes & _QUANTISED)])


def find_graph_precision(model: Any) -> str:
    """Find the coarsest precision of any weight, cast, input or output of an `onnx.ModelProto`."""
    from onnx import TensorProto

    names = {
        TensorProto.FLOAT: "f32",
        TensorProto.DOUBLE: "f64",
        TensorProto.FLOAT16: "f16",
        TensorProto.BFLOAT16: "bf16",
    }
    is_quantised = False
    kinds = {tensor.data_type for tensor in find_tensors(model.graph)}
    for graph in walk_graphs(model.graph):
        kinds |= {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output, *graph.value_info)}
        for node in graph.node:
            kinds |= {attribute.i for attribute in node.attribute if attribute.name in _TYPE_ATTRIBUTES}
            is_quantised |= node.op_type in _QUANTISING
    return find_coarsest([*(names[kind] for kind in kinds & names.keys()), *["q8"] * is_quantised])
