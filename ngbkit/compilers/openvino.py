"""OpenVINO on the CPU, from an ONNX file, with one request or as many overlapped as it considers best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import onnx_graph
from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.compilers.profiles import openvino as profiler
from ngbkit.errors import UnsupportedError
from ngbkit.sweep.records import Contract
from ngbkit.workloads.feeds import NARROW_DTYPES, find_dtype

if TYPE_CHECKING:
    import numpy as np

    from ngbkit.compilers.profiles.profile import Profiler


# The CPU plugin's names for the layers that dominate a network's time.
_HEAVY = {"Convolution", "Deconvolution", "FullyConnected", "GatherMatMul", "MatMul", "ScaledDotProductAttention"}
_PRECISIONS = {**{name: name for name in ("f32", "bf16", "f16", "f64")}, "i8": "int8", "u8": "int8"}
# Its names for dtypes that NumPy lacks.
_NARROW = {"bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2"}


def compile(task: Task) -> Program:
    """Compile the ONNX file of `task` for the CPU plugin, or load it from the cache, and create its requests."""
    _check_streams(task)
    compiled = _compile_model(task, {"CACHE_DIR": str(_build_cache_path(task))})
    _check_actual_streams(task, compiled)
    requests = _create_requests(task, compiled)
    precision = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    precision = "int" if task.precision == "int" else precision
    return Program(
        run=_build_single_run(requests[0]) if len(requests) == 1 else _build_overlapped_run(requests),
        fetch=lambda requests: _fetch(requests[0], len(compiled.outputs)),
        contract=Contract(
            runtime="openvino CPU",
            precision=precision,
            threads=compiled.get_property("INFERENCE_NUM_THREADS"),
            overlap=len(requests),
            notes=_note_precision(str(task.options["precision"]), precision),
        ),
        facts={
            "streams": compiled.get_property("NUM_STREAMS"),
            "requests": len(requests),
            "cpu_pinning": compiled.get_property("ENABLE_CPU_PINNING"),
            "default_precision": _find_default_precision(),
            "cache": "hit" if compiled.get_property("LOADED_FROM_CACHE") else "miss",
        },
        explain=lambda: _explain(task, compiled),
        feed=lambda arrays: _feed(task, requests, arrays),
        memory=[]
        if any(spec.dtype in NARROW_DTYPES for spec in task.inputs)
        else [[request.get_tensor(spec.name).data for request in requests] for spec in task.inputs],
        profile=lambda: _open_profiler(task),
    )


def _find_default_precision() -> str:
    """Find the precision that OpenVINO computes in on this chip, if none is asked for."""
    from ngbkit.compilers.openvino_runtime import get_core

    return str(get_core().get_property("CPU", "INFERENCE_PRECISION_HINT").get_type_name())


def _note_precision(requested: str, actual: str) -> str:
    """Note a substituted precision: a chip without f16 uses bf16, and one without bf16 uses f32."""
    return "" if requested == actual else f"{requested} was asked for, and this chip computes it in {actual}"


def _check_streams(task: Task) -> None:
    streams = task.options["streams"]
    if streams > 1 and task.options["hint"] == "latency":
        raise UnsupportedError(
            f"streams={streams} with hint=latency would leave all but one stream idle, because it has one request: "
            "use hint=throughput, or streams=1"
        )
    if streams < 0:
        raise UnsupportedError(f"invalid streams: got {streams}; expected 0 (the hint's choice) or an integer >= 1")


def _check_actual_streams(task: Task, compiled: Any) -> None:
    requested, actual = task.options["streams"], compiled.get_property("NUM_STREAMS")
    if requested not in (0, actual):
        raise UnsupportedError(
            f"requested streams={requested}, but OpenVINO created {actual}: each needs a thread, and there are "
            f"{task.threads}"
        )


def _compile_model(task: Task, properties: Mapping[str, Any]) -> Any:
    from ngbkit.compilers.openvino_runtime import get_core

    return get_core().compile_model(
        str(task.onnx),
        "CPU",
        {
            "PERFORMANCE_HINT": str(task.options["hint"]).upper(),
            "INFERENCE_NUM_THREADS": task.threads,
            "INFERENCE_PRECISION_HINT": task.options["precision"],
            **({"NUM_STREAMS": task.options["streams"]} if task.options["streams"] else {}),
            **properties,
        },
    )


def _build_cache_path(task: Task) -> Path:
    """Build the path of a cache for these options: OpenVINO does not include the precision in the name of a blob."""
    options = task.options
    return task.cache / "openvino" / f"{options['hint']}-{options['streams']}-{options['precision']}-{task.threads}"


def _create_requests(task: Task, compiled: Any) -> list[Any]:
    overlapped = task.options["hint"] == "throughput"
    count = compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") if overlapped else 1
    requests = [compiled.create_infer_request() for _ in range(count)]
    _feed(task, requests, task.arrays)
    return requests


def _feed(task: Task, requests: Iterable[Any], arrays: Sequence[np.ndarray]) -> None:
    for request in requests:
        for spec, array in zip(task.inputs, arrays, strict=True):
            if spec.dtype in NARROW_DTYPES:
                request.set_tensor(spec.name, _wrap_narrow(spec.dtype, array))
            else:
                request.get_tensor(spec.name).data[...] = array


def _open_profiler(task: Task) -> Profiler:
    source = profiler.read_source(task.onnx) if task.onnx else None
    if source is None:
        raise UnsupportedError("the file of this column does not carry the nodes of its network")
    if task.options["hint"] == "throughput":
        raise UnsupportedError("overlapped requests share their threads; expected hint=latency")
    compiled = _compile_model(task, {"PERF_COUNT": True})
    return profiler.open_profiler(source, compiled, lambda request: _feed(task, [request], task.arrays))


def _build_single_run(request: Any) -> Any:
    def run() -> list[Any]:
        request.infer(share_outputs=True)
        return [request]

    return run


def _build_overlapped_run(requests: list[Any]) -> Any:
    def run() -> list[Any]:
        for request in requests:
            request.start_async()
        for request in requests:
            request.wait()
        return requests

    return run


def _wrap_narrow(dtype: str, array: np.ndarray) -> Any:
    """Wrap an array of a dtype that NumPy lacks in a tensor of its bits."""
    import numpy as np
    import openvino as ov

    kind = _NARROW.get(dtype)
    if kind is None:
        raise UnsupportedError(
            f"OpenVINO takes no input of {dtype}; expected one of {', '.join(_NARROW)}. Convert it in the network."
        )
    bits = array.view(np.int16 if array.dtype.itemsize == 2 else np.uint8)
    return ov.Tensor(bits, ov.Shape(array.shape), getattr(ov.Type, kind))


def _fetch(request: Any, outputs: int) -> list[np.ndarray]:
    return [_copy(request.get_output_tensor(index)) for index in range(outputs)]


def _copy(tensor: Any) -> np.ndarray:
    """Copy an output; one of a dtype that NumPy lacks becomes float32."""
    import numpy as np

    kind = tensor.get_element_type().get_type_name()
    dtype = next((name for name, narrow in _NARROW.items() if narrow == kind), None)
    if dtype is None:
        return np.array(tensor.data)
    array: np.ndarray = tensor.data.view(find_dtype(dtype)).astype(np.float32)
    return array


def _explain(task: Task, compiled: Any) -> dict[str, Any]:
    """Count the nodes that the plugin executes, which after its fusions differ much from the ONNX graph."""
    if compiled.get_property("LOADED_FROM_CACHE"):
        compiled = _compile_model(task, {})  # a blob from the cache has lost the names of fused nodes
    assert task.onnx is not None
    nodes = [info for _, info in profiler.iterate_executed(compiled.get_runtime_model())]
    layers = [info for info in nodes if info["layerType"] in _HEAVY]
    heavy = {_PRECISIONS.get(info["runtimePrecision"], "") for info in layers} - {""}
    wide = _describe_wide_layers(layers) if "int8" in heavy else {}
    if task.precision == "q8":  # of the user's own file, whose baseline reports no int8 either
        heavy -= {"int8"}
    is_onnx = task.onnx.suffix != ".xml"  # which a quantiser wrote
    facts = {
        **({"nodes_before": len(onnx_graph.read_operators(task.onnx))} if is_onnx else {}),
        "nodes_after": len(nodes),
        "nodes_fused": sum("," in info["originalLayersNames"] for info in nodes),
        "layers": dict(Counter(info["layerType"] for info in nodes)),
        "primitives": dict(Counter(info["primitiveType"] for info in nodes)),
    }
    if compiled.get_property("EXECUTION_DEVICES") == ["CPU"]:
        facts["fallbacks"] = 0
    return facts | wide | ({"precision": "+".join(sorted(heavy))} if heavy else {})


def _describe_wide_layers(layers: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Describe the layers of a quantised network that are computed in f32, as facts; the plugin gives no reason."""
    wide = [info for info in layers if _PRECISIONS.get(info["runtimePrecision"]) != "int8"]
    counts = Counter(info["layerType"] for info in wide)
    return {
        "f32_layers": len(wide),
        "f32_share": len(wide) / len(layers),
        "f32_reasons": {kind: f"{count} left in f32 by the quantiser or the plugin" for kind, count in counts.items()},
    }


COMPILER = Compiler(
    name="openvino",
    summary="Intel OpenVINO's CPU plugin",
    forms={"onnx": ("ngbkit.compilers.openvino_runtime",)},
    packages=("openvino",),
    distribution="openvino",
    beside=onnx_graph.PACKAGES,
    install="pip install 'ngbkit[openvino]'",
    compile=compile,
    caches=True,
    options={
        "hint": Option(
            default="latency",
            help="optimisation target; throughput overlaps requests and divides their total time by their number",
            choices=("latency", "throughput"),
        ),
        "precision": Option(
            default="f32",
            help="precision of the computation; OpenVINO's own default is bf16 on chips that have it",
            choices=("f32", "bf16", "f16"),
        ),
        "streams": Option(
            default=0,
            help="parallel requests, each with a share of the threads; 0: as many as the hint considers best",
        ),
    },
    refusals=(
        r"OpConversionFailure",
        r"No (conversion rule|translator) found",
        r"Unsupported operation of type",
        r"Unsupported value_info type",
        r"NotImplemented",
        r"[Oo]peration .*(is not|isn't|not) supported",
    ),
)
