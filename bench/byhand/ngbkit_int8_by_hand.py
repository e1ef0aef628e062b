"""int8 by the vendors' documentation, written by hand, as columns that are interleaved with ngbkit's own.

Ranges are those of the inputs that are timed: they decide the answers, and not the time. As `ngbkit_by_hand`, this uses
nothing of ``ngbkit.compilers`` but the protocol. The option `precision` makes no difference but to the check, which
would hold int8 to the rounding of f32.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ngbkit_by_hand as plain

from ngbkit.compilers.base import Compiler, Form, Option, Task


def _build_compiler(
    name: str, form: Form, build: Any, packages: tuple[str, ...], preload: tuple[str, ...] = ()
) -> Compiler:
    compiler = plain._build_compiler(name, form, build, packages, preload)
    return replace(compiler, options={"precision": Option(default="int8", help="int8", choices=("int8",))})


class _Reader:
    def __init__(self, task: Task) -> None:
        self._batches: Iterator[Any] = iter(
            [{spec.name: array for spec, array in zip(task.inputs, task.arrays, strict=True)}]
        )

    def get_next(self) -> Any:
        return next(self._batches, None)


def _preprocess(task: Task) -> str:
    """ONNX Runtime's page on quantisation: pre-process, then quantise."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    from onnxruntime.quantization.shape_inference import quant_pre_process

    target = str(task.cache / "preprocessed.onnx")
    quant_pre_process(str(task.onnx), target)
    return target


def _compile_onnxruntime_static(task: Task) -> plain.Call:
    """Static quantisation in QDQ format, U8S8 and per channel, as the page recommends for x86 with VNNI."""
    source, target = _preprocess(task), task.cache / "static.onnx"
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    quantize_static(
        source,
        str(target),
        _Reader(task),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    return plain._compile_onnxruntime(replace(task, onnx=target))


def _compile_onnxruntime_dynamic(task: Task) -> plain.Call:
    """Dynamic quantisation of matrix products, as the page recommends for transformers."""
    source, target = _preprocess(task), task.cache / "dynamic.onnx"
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        source, str(target), op_types_to_quantize=["MatMul", "Gemm"], per_channel=True, weight_type=QuantType.QInt8
    )
    return plain._compile_onnxruntime(replace(task, onnx=target))


def _compile_openvino(task: Task) -> plain.Call:
    """NNCF's page on post-training quantisation, then OpenVINO's latency hint."""
    import sys

    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import nncf
    import openvino

    samples = [{spec.name: array for spec, array in zip(task.inputs, task.arrays, strict=True)}]
    model = nncf.quantize(openvino.Core().read_model(str(task.onnx)), nncf.Dataset(samples), subset_size=1)
    target = task.cache / "int8.xml"
    openvino.save_model(model, str(target), compress_to_fp16=False)
    return plain._compile_openvino(replace(task, onnx=target))


def _compile_torchao(task: Task) -> plain.Call:
    """torchao's quick start: one call that replaces the weights of linear layers."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    module, inputs = plain._prepare_torch(task)
    quantize_(module, Int8DynamicActivationInt8WeightConfig())
    call = plain._build_call(module, inputs)
    call()
    return call


def _quantise(task: Task, quantizer: Any) -> tuple[Any, tuple[Any, ...]]:
    """Capture, calibrate and convert, as the pages of PyTorch 2 export quantisation do."""
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    module, inputs = plain._prepare_torch(task)
    with torch.no_grad():
        prepared = prepare_pt2e(torch.export.export(module, inputs).module(), quantizer)
        prepared(*inputs)
        return convert_pt2e(prepared), inputs


def _build_x86() -> Any:
    import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    return quantizer


def _build_xnnpack() -> Any:
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack

    quantizer = xnnpack.XNNPACKQuantizer()
    quantizer.set_global(xnnpack.get_symmetric_quantization_config(is_per_channel=True))
    return quantizer


def _compile_inductor(task: Task) -> plain.Call:
    """The tutorial on the x86 backend: convert, freeze, compile."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(task.cache)
    import torch
    from torch._inductor import config

    converted, inputs = _quantise(task, _build_x86())
    config.freezing = True
    call = plain._build_call(torch.compile(converted), inputs)
    call()
    return call


def _compile_executorch(task: Task) -> plain.Call:
    """ExecuTorch's page on XNNPACK's quantisation, then the same as in f32."""
    converted, _ = _quantise(task, _build_xnnpack())
    return plain._compile_executorch(replace(task, module=converted))


def quantise(name: str, source: Any, module: Any, samples: list[dict[str, Any]], is_transformer: bool) -> Any:
    """Quantise with several samples, as the pages say: the path of the file, or the module."""
    target = source.with_name("by-hand.onnx")
    if name == "nncf":
        import nncf
        import openvino

        kind = nncf.ModelType.TRANSFORMER if is_transformer else None
        model = openvino.Core().read_model(str(source))
        model = nncf.quantize(model, nncf.Dataset(samples), subset_size=len(samples), model_type=kind)
        openvino.save_model(model, str(target.with_suffix(".xml")), compress_to_fp16=False)
        return target.with_suffix(".xml")
    if name.startswith("onnxruntime"):
        from onnxruntime import quantization
        from onnxruntime.quantization.shape_inference import quant_pre_process

        prepared, kinds = str(source.with_name("prepared.onnx")), quantization.QuantType
        quant_pre_process(str(source), prepared, skip_symbolic_shape=not is_transformer)
        if name.endswith("dynamic"):
            quantization.quantize_dynamic(prepared, str(target), per_channel=True, weight_type=kinds.QInt8)
            return target
        reader = _Reader.__new__(_Reader)
        reader._batches = iter(samples)
        types = {"activation_type": kinds.QUInt8, "weight_type": kinds.QInt8}
        quantization.quantize_static(prepared, str(target), reader, per_channel=True, **types)
        return target
    import torch

    if name == "torchao-dynamic":
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        quantize_(module, Int8DynamicActivationInt8WeightConfig())
        return module
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = _build_xnnpack() if name == "xnnpack" else _build_x86()
    batches = [tuple(map(torch.from_numpy, sample.values())) for sample in samples]
    prepared = prepare_pt2e(torch.export.export(module, batches[0]).module(), quantizer)
    for batch in batches:
        prepared(*batch)
    return convert_pt2e(prepared)


ONNXRUNTIME_STATIC = _build_compiler("onnxruntime-int8", "onnx", _compile_onnxruntime_static, ("onnxruntime",))
ONNXRUNTIME_DYNAMIC = _build_compiler(
    "onnxruntime-int8-dynamic", "onnx", _compile_onnxruntime_dynamic, ("onnxruntime",)
)
OPENVINO = _build_compiler("openvino-int8", "onnx", _compile_openvino, ("openvino", "nncf"))
TORCHAO = _build_compiler("identity-int8-dynamic", "module", _compile_torchao, ("torch", "torchao"))
INDUCTOR = _build_compiler("inductor-int8", "module", _compile_inductor, ("torch", "torchao"))
EXECUTORCH = _build_compiler("executorch-int8", "module", _compile_executorch, ("executorch", "torchao"))
