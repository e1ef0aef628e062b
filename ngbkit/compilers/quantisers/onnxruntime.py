"""ONNX Runtime's own conversions to int8, static and dynamic, and to f16, as it recommends for this processor.

https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import nvidia
from ngbkit.compilers.onnxruntime import PACKAGE, make_settings
from ngbkit.compilers.onnxruntime_session import CPU, open_session, write_to
from ngbkit.compilers.quantiser import Quantisation, Quantiser, is_arm, needs_reduced_range
from ngbkit.compilers.quantisers import architecture
from ngbkit.errors import UnsupportedError
from ngbkit.workloads.onnx_traversal import walk_graphs

if TYPE_CHECKING:
    import numpy as np

_INSTALL = "pip install 'ngbkit[onnxruntime]' sympy"
_STORED = (
    "ONNX Runtime has no f16 kernels for this CPU and computes in f32 between casts, "
    "so that an overflow of f16 does not show here"
)
# Of a transformer only the layers that multiply are quantised, and what they write to softmax, norms and sums stays
# f32, as in Microsoft's example of BERT.
_LAYERS = ["MatMul", "Gemm", "Conv"]
_TRANSFORMER = {"OpTypesToExcludeOutputQuantization": ["MatMul", "Gemm"]}
# Numbers from here on round to infinity in f16.
_OVERFLOW = 65520.0
_MOST_CLAMPED = 3


class _Reader:
    """Yields the samples to ONNX Runtime's calibrator, which also asks for one batch at a time."""

    def __init__(self, batches: Iterator[Mapping[str, np.ndarray]]) -> None:
        self._batches = batches

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next batch; None after the last."""
        batch = next(self._batches, None)
        return None if batch is None else dict(batch)


def _quantise_static(quantisation: Quantisation) -> dict[str, Any]:
    """Write int8 weights by channel and int8 activations, in the range of the samples, as ONNX Runtime runs them."""
    settings = {
        "per_channel": True,
        "reduce_range": needs_reduced_range(),
        "activation_type": "QInt8" if is_arm() else "QUInt8",
    }
    return _write_qdq(quantisation, settings)


def _quantise_for_tvm(quantisation: Quantisation) -> dict[str, Any]:
    """Write the same: Relax has no operators in int8, and computes in f32 between the nodes."""
    return {**_quantise_static(quantisation), "computes": "f32"}


def _quantise_for_tensorrt(quantisation: Quantisation) -> dict[str, Any]:
    """Write ranges that are symmetric, pairs of nodes also at weights, and biases in f32, as TensorRT reads them.

    https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/work-quantized-types.html
    """
    settings = {"per_channel": True, "reduce_range": False, "activation_type": "QInt8"}
    extra = {
        "ActivationSymmetric": True,
        "WeightSymmetric": True,
        "AddQDQPairToWeight": True,
        "DedicatedQDQPair": True,
        "QuantizeBias": False,
    }
    return _write_qdq(quantisation, settings, extra)


def _write_qdq(
    quantisation: Quantisation, settings: Mapping[str, Any], extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Write QDQ nodes with int8 weights, in the range of the samples; return all settings."""
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime  # isort: skip  # before its quantisation
    from onnxruntime import quantization

    del onnxruntime
    kinds = quantization.QuantType
    kind = architecture.read_onnx(quantisation.require_source())
    if kind.is_transformer:
        settings = {**settings, "op_types_to_quantize": _LAYERS}
        extra = {**(extra or {}), **_TRANSFORMER}
    with tempfile.TemporaryDirectory(prefix="ngbkit-quantise-") as folder:
        quantization.quantize_static(
            _preprocess(quantisation.require_source(), Path(folder)),
            str(quantisation.target),
            _Reader(iter(quantisation.batches)),
            quant_format=quantization.QuantFormat.QDQ,
            weight_type=kinds.QInt8,
            calibrate_method=quantization.CalibrationMethod.MinMax,
            extra_options=dict(extra or {}),
            **{**settings, "activation_type": getattr(kinds, settings["activation_type"])},
        )
    if kind.is_transformer:
        _keep_sums(quantisation.target)
    chosen = {**settings, "weight_type": "QInt8", "calibrate_method": "MinMax", **(extra or {})}
    return {**kind.to_settings(), **chosen}


def _keep_sums(target: Path) -> None:
    """Give the bias after a quantised MatMul three dimensions, or ONNX Runtime fuses both to a Gemm that it has in f32.

    Where it fused another such pair before the quantisation, it then even fails, as it names two tensors alike.
    """
    import onnx

    model = onnx.load(target)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in model.graph.value_info}
    products = {
        name for node in model.graph.node if node.op_type == "MatMul" for name in node.output if ranks.get(name) == 3
    }
    for node in model.graph.node:
        if node.op_type == "Add" and products.intersection(node.input):
            for place, tensor in ((place, tensors.get(name)) for place, name in enumerate(node.input)):
                if tensor is not None and len(tensor.dims) == 1:
                    copy = model.graph.initializer.add()
                    copy.CopyFrom(tensor)
                    copy.name = node.input[place] = f"{node.output[0]}_bias"
                    copy.dims[:] = [1, 1, *tensor.dims]
    onnx.save(model, target)


def _quantise_dynamic(quantisation: Quantisation) -> dict[str, Any]:
    """Write int8 weights, whose activations are quantised in each call, without samples."""
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime  # isort: skip  # before its quantisation
    from onnxruntime import quantization

    del onnxruntime
    settings = {"per_channel": True, "reduce_range": needs_reduced_range(), "weight_type": "QInt8"}
    with tempfile.TemporaryDirectory(prefix="ngbkit-quantise-") as folder:
        quantization.quantize_dynamic(
            _preprocess(quantisation.require_source(), Path(folder)),
            str(quantisation.target),
            # Convolutions in int8 with dynamic ranges have no kernel on most processors.
            op_types_to_quantize=["MatMul", "Gemm", "Attention", "LSTM", "Gather"],
            **settings | {"weight_type": quantization.QuantType.QInt8},
        )
    _require_quantised(quantisation.target, "DynamicQuantizeLinear", "MatMul, Gemm, Attention or LSTM with weights")
    return settings


def _convert_to_f16(quantisation: Quantisation) -> dict[str, Any]:
    """Write weights and tensors in f16, which a CPU may only store: ONNX Runtime then computes in f32."""
    source, target = quantisation.require_source(), quantisation.target
    target.write_bytes(nvidia.convert_to_f16(source))
    is_stored = quantisation.accelerator == "cpu" and _inserts_casts(target)
    clamped = _list_clamped(source, target)
    notes = "; ".join([*([_STORED] if is_stored else []), *clamped])
    return {"computes": "f32" if is_stored else "f16", "notes": notes, **({"clamped": clamped} if clamped else {})}


def _list_clamped(source: Path, target: Path) -> list[str]:
    """List the constants that the converter clamped to the largest f16, in a clause each with the first operator."""
    import numpy as np
    import onnx

    halves = dict(_find_constants(onnx.load(target).graph))
    model = onnx.load(source)
    clauses = []
    for name, tensor in _find_constants(model.graph):
        if tensor.data_type != onnx.TensorProto.FLOAT or name not in halves:
            continue
        values = onnx.numpy_helper.to_array(tensor).ravel()
        finite = values[np.isfinite(values)]
        largest = finite[np.argmax(np.abs(finite))] if finite.size else 0.0
        if halves[name].data_type == onnx.TensorProto.FLOAT16 and abs(largest) >= _OVERFLOW:
            nodes = (node for graph in walk_graphs(model.graph) for node in graph.node if name in node.input)
            reader = next((f" of {node.op_type} {node.name or node.output[0]}" for node in nodes), "")
            clauses.append(f"constant {name}{reader} has {largest:g}, which is clamped to ±65504, the largest f16")
    more = len(clauses) - _MOST_CLAMPED
    return [*clauses[:_MOST_CLAMPED], *([f"{more} more constants are clamped"] if more > 0 else [])]


def _find_constants(graph: Any) -> Iterator[tuple[str, Any]]:
    """Yield the constant tensors of a graph and its subgraphs by name."""
    for part in walk_graphs(graph):
        yield from ((tensor.name, tensor) for tensor in part.initializer)
        for node in part.node:
            if node.op_type == "Constant":
                yield from ((node.output[0], attribute.t) for attribute in node.attribute if attribute.HasField("t"))


def _inserts_casts(file: Path) -> bool:
    """Return whether ONNX Runtime inserts casts to f32, for want of kernels in f16."""
    import onnx

    with tempfile.TemporaryDirectory(prefix="ngbkit-quantise-") as folder:
        settings = make_settings(1, "all", spinning=False)
        write_to(settings, Path(folder, "optimised.onnx"))
        settings.log_severity_level = 3  # it warns that such a graph only fits this machine
        open_session(file, settings, CPU)
        nodes = onnx.load(Path(folder, "optimised.onnx"), load_external_data=False).graph.node
    # Other optimisations remove such casts, or fuse them: the names of the values between remain.
    names = (name for node in nodes for name in (node.name, *node.input, *node.output))
    return any(name.startswith("InsertedPrecisionFreeCast") for name in names)


def _preprocess(source: Path, folder: Path) -> str:
    """Infer shapes and fuse operators, as the documentation asks for before a quantisation."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    target = folder / "preprocessed.onnx"
    logging.getLogger("onnxruntime.quantization").setLevel(logging.ERROR)
    try:
        quant_pre_process(str(source), str(target))
    except Exception as error:  # noqa: BLE001  symbolic inference may raise anything about an operator
        logging.getLogger(__name__).info("quantised without symbolic shape inference: %s", error)
        quant_pre_process(str(source), str(target), skip_symbolic_shape=True)
    return str(target)


def _require_quantised(target: Path, operator: str, parts: str) -> None:
    import onnx

    model = onnx.load(target, load_external_data=False)
    if all(node.op_type != operator for node in model.graph.node):
        raise UnsupportedError(f"the network has no {parts}, so that nothing of it would be quantised")


STATIC = Quantiser(
    name="onnxruntime-static",
    summary="ONNX Runtime's static quantisation: QDQ nodes, weights by channel, ranges of the calibration samples",
    precision="int8",
    compilers=("onnxruntime", "iree"),
    packages=(PACKAGE, "onnx", "sympy"),
    install=_INSTALL,
    quantise=_quantise_static,
)
STATIC_TVM = replace(
    STATIC,
    name="onnxruntime-static-tvm",
    summary="the QDQ file of ONNX Runtime's static quantisation, which TVM computes in f32 between its nodes",
    compilers=("tvm",),
    quantise=_quantise_for_tvm,
)
STATIC_TENSORRT = replace(
    STATIC,
    name="onnxruntime-static-tensorrt",
    summary="a QDQ file of ONNX Runtime's static quantisation with symmetric ranges, as TensorRT reads them",
    compilers=("tensorrt",),
    quantise=_quantise_for_tensorrt,
    accelerators=("cuda",),
)
DYNAMIC = Quantiser(
    name="onnxruntime-dynamic",
    summary="ONNX Runtime's dynamic quantisation: weights by channel, ranges of each call",
    precision="int8-dynamic",
    compilers=("onnxruntime",),
    packages=(PACKAGE, "onnx", "sympy"),
    install=_INSTALL,
    quantise=_quantise_dynamic,
    calibrates=False,
)
F16 = Quantiser(
    name="onnxruntime-f16",
    summary="ONNX Runtime's conversion of weights and tensors to f16",
    precision="f16",
    compilers=("onnxruntime",),
    packages=(PACKAGE, "onnx"),
    install=_INSTALL,
    quantise=_convert_to_f16,
    calibrates=False,
    accelerators=("cpu", "cuda"),
)
