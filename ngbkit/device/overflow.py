"""The first operator of a network whose outputs overflow in a lower precision, though its inputs are finite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.compilers.base import Task
from ngbkit.workloads.export import flatten, to_tensor

if TYPE_CHECKING:
    import torch


def locate(task: Task, batches: Iterable[Sequence[np.ndarray]]) -> str:
    """Locate the first operator that overflows for some inputs, in a clause; empty if none of it does by itself."""
    for arrays in batches:
        try:
            place = _find_in_module(task, arrays) if task.module is not None else _find_in_graph(task, arrays)
        except Exception:  # noqa: BLE001  the reason for a failure must not become another one
            return ""
        if place:
            return f"; the first operator that overflows is {place}"
    return ""


def _find_in_graph(task: Task, arrays: Sequence[np.ndarray]) -> str:
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime  # isort: skip  # before onnx
    import onnx

    model = onnx.load(str(task.onnx))
    existing = {value.name for value in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in existing)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = task.threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {spec.name: array for spec, array in zip(task.inputs, arrays, strict=True)}
    outputs = dict(zip(names, session.run(names, feeds), strict=True))
    for node in model.graph.node:
        if any(name in outputs and not _is_finite(outputs[name]) for name in node.output):
            return f"{node.op_type} {node.name or node.output[0]}"
    return ""


def _is_finite(array: np.ndarray) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _find_in_module(task: Task, arrays: Sequence[np.ndarray]) -> str:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    module = task.module
    assert module is not None
    places: list[str] = []
    overflows: list[str] = []

    class Finder(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            results = function(*args, **(kwargs or {}))
            if not overflows and any(_overflows(tensor) for tensor in flatten(results)):
                overflows.append(f"{function} in {places[-1] if places else 'the network'}")
            return results

    hooks = []
    for name, layer in module.named_modules():
        label = f"{name} ({type(layer).__name__})" if name else type(layer).__name__
        hooks.append(layer.register_forward_pre_hook(lambda *_, label=label: places.append(label)))
        hooks.append(layer.register_forward_hook(lambda *_: (places.pop(), None)[1]))
    dtype = next((weight.dtype for weight in module.parameters() if weight.is_floating_point()), torch.float32)
    inputs = [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in map(to_tensor, arrays)]
    with torch.no_grad(), Finder():  # type: ignore[no-untyped-call]
        module(*inputs)
    for hook in hooks:
        hook.remove()
    return overflows[0] if overflows else ""


def _overflows(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and not bool(tensor.isfinite().all())
