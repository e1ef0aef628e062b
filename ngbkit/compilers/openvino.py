"""OpenVINO on the CPU, from an ONNX file, with one request or as many overlapped as it finds best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import onnx_graph
from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.errors import UnsupportedError
from ngbkit.sweep.records import Contract

if TYPE_CHECKING:
    import numpy as np


# What OpenVINO's CPU plugin calls the layers that a network spends its time in.
_HEAVY = {"Convolution", "Deconvolution", "FullyConnected", "GatherMatMul", "MatMul", "ScaledDotProductAttention"}
_PRECISIONS = {"f32", "bf16", "f16", "f64"}


def compile(task: Task) -> Program:
    """Compile the ONNX file of `task` for the CPU plugin, or load what is kept of it, and create its requests.

    Raises
    ------
    UnsupportedError
        More streams were asked for than there can be.
    """
    _check_streams(task)
    compiled = _compile_model(task, {"CACHE_DIR": str(_cache(task))})
    _check_taken(task, compiled)
    requests = _create_requests(task, compiled)
    precision = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    return Program(
        run=_alone(requests[0]) if len(requests) == 1 else _overlapped(requests),
        fetch=lambda done: _fetch(done[0], len(compiled.outputs)),
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
            "cache": "hit" if compiled.get_property("LOADED_FROM_CACHE") else "miss",
        },
        explain=lambda: _explain(task, compiled),
    )


def _note_precision(asked: str, taken: str) -> str:
    """The plugin computes in what the chip has: f16 becomes bf16, and bf16 f32, where there is no such thing."""
    return "" if asked == taken else f"{asked} was asked for, and this chip computes it in {taken}"


def _check_streams(task: Task) -> None:
    streams = task.options["streams"]
    if streams > 1 and task.options["hint"] == "latency":
        raise UnsupportedError(
            f"streams={streams} with the hint latency would leave all but one idle, for it has one request: "
            "ask for the hint throughput, or for streams=1"
        )
    if streams < 0:
        raise UnsupportedError(f"streams={streams} came; valid is 0, as many as the hint finds best, or any number up")


def _check_taken(task: Task, compiled: Any) -> None:
    asked, taken = task.options["streams"], compiled.get_property("NUM_STREAMS")
    if asked not in (0, taken):
        raise UnsupportedError(
            f"streams={asked} was asked for and OpenVINO made {taken}: each has a thread at least, and there are "
            f"{task.threads}"
        )


def _compile_model(task: Task, properties: Mapping[str, Any]) -> Any:
    from ngbkit.compilers.openvino_runtime import core

    return core().compile_model(
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


def _cache(task: Task) -> Path:
    """A folder for these very options: OpenVINO names a blob alike whatever the precision."""
    options = task.options
    return task.cache / "openvino" / f"{options['hint']}-{options['streams']}-{options['precision']}-{task.threads}"


def _create_requests(task: Task, compiled: Any) -> list[Any]:
    overlapped = task.options["hint"] == "throughput"
    count = compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") if overlapped else 1
    requests = [compiled.create_infer_request() for _ in range(count)]
    for request in requests:
        for spec, array in zip(task.inputs, task.arrays, strict=True):
            request.get_tensor(spec.name).data[:] = array
    return requests


def _alone(request: Any) -> Any:
    def run() -> list[Any]:
        request.infer(share_outputs=True)
        return [request]

    return run


def _overlapped(requests: list[Any]) -> Any:
    def run() -> list[Any]:
        for request in requests:
            request.start_async()
        for request in requests:
            request.wait()
        return requests

    return run


def _fetch(request: Any, outputs: int) -> list[np.ndarray]:
    return [request.get_output_tensor(index).data.copy() for index in range(outputs)]


def _explain(task: Task, compiled: Any) -> dict[str, Any]:
    """What the plugin really executes, which after its fusions is far from the ONNX graph."""
    if compiled.get_property("LOADED_FROM_CACHE"):
        compiled = _compile_model(task, {})  # a blob has lost the names of what was fused
    assert task.onnx is not None
    nodes = list(_executed(compiled.get_runtime_model()))
    heavy = {info["runtimePrecision"] for info in nodes if info["layerType"] in _HEAVY} & _PRECISIONS
    found = {
        "nodes_before": len(onnx_graph.read_operators(task.onnx)),
        "nodes_after": len(nodes),
        "nodes_fused": sum("," in info["originalLayersNames"] for info in nodes),
        "layers": dict(Counter(info["layerType"] for info in nodes)),
        "primitives": dict(Counter(info["primitiveType"] for info in nodes)),
    }
    if compiled.get_property("EXECUTION_DEVICES") == ["CPU"]:
        found["fallbacks"] = 0
    return found | ({"precision": "+".join(sorted(heavy))} if heavy else {})


def _executed(model: Any) -> Iterator[dict[str, str]]:
    """What is said of each node that runs in a call: those whose inputs are all constant ran once, at the start."""
    constant: set[str] = set()
    for node in model.get_ordered_ops():
        info = {name: value.value for name, value in node.get_rt_info().items() if hasattr(value, "value")}
        sources = {value.get_node().get_friendly_name() for value in node.input_values()}
        if info["layerType"] == "Const" or (sources and sources <= constant):
            constant.add(node.get_friendly_name())
        elif info["layerType"] not in {"Input", "Output"}:
            yield info


COMPILER = Compiler(
    name="openvino",
    summary="Intel OpenVINO's CPU plugin",
    forms={"onnx": ("ngbkit.compilers.openvino_runtime",)},
    packages=("openvino",),
    install="pip install 'ngbkit[openvino]'",
    compile=compile,
    caches=True,
    options={
        "hint": Option(
            default="latency",
            help="what to optimise for; throughput overlaps requests and divides the time of all by their number",
            choices=("latency", "throughput"),
        ),
        "precision": Option(
            default="f32",
            help="the precision to compute in; left to itself OpenVINO picks bf16 where the chip has it",
            choices=("f32", "bf16", "f16"),
        ),
        "streams": Option(
            default=0,
            help="requests computed side by side, each with a share of the threads; 0: as many as the hint finds best",
        ),
    },
    refusals=(
        r"OpConversionFailure",
        r"No (conversion rule|translator) found",
        r"Unsupported operation of type",
        r"NotImplemented",
        r"[Oo]peration .*(is not|isn't|not) supported",
    ),
)
