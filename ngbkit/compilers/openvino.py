"""OpenVINO on the CPU, from an ONNX file, with one request or as many overlapped as it finds best."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.records import Contract

if TYPE_CHECKING:
    import numpy as np


def compile(task: Task) -> Program:
    """Compile the ONNX file of `task` for the CPU plugin and create its requests, inputs filled in."""
    from ngbkit.compilers.openvino_runtime import openvino

    compiled = openvino.Core().compile_model(
        str(task.onnx),
        "CPU",
        {
            "PERFORMANCE_HINT": str(task.options["hint"]).upper(),
            "INFERENCE_NUM_THREADS": task.threads,
            "INFERENCE_PRECISION_HINT": task.options["precision"],
        },
    )
    requests = _create_requests(task, compiled)
    return Program(
        run=_alone(requests[0]) if len(requests) == 1 else _overlapped(requests),
        fetch=lambda done: _fetch(done[0], len(compiled.outputs)),
        contract=Contract(
            runtime="openvino CPU",
            precision=compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name(),
            threads=compiled.get_property("INFERENCE_NUM_THREADS"),
            overlap=len(requests),
        ),
        facts={"streams": compiled.get_property("NUM_STREAMS"), "requests": len(requests), **_graph_facts(compiled)},
    )


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


def _graph_facts(compiled: Any) -> dict[str, Any]:
    """What the plugin really executes, which after its fusions is far from the ONNX graph."""
    infos = [node.get_rt_info() for node in compiled.get_runtime_model().get_ordered_ops()]
    nodes = [info for info in infos if info["layerType"].value not in {"Const", "Input", "Output"}]
    return {
        "nodes": len(nodes),
        "layers": dict(Counter(info["layerType"].value for info in nodes)),
        "primitives": dict(Counter(info["primitiveType"].value for info in nodes)),
    }


COMPILER = Compiler(
    name="openvino",
    summary="Intel OpenVINO's CPU plugin",
    forms={"onnx": ("ngbkit.compilers.openvino_runtime",)},
    packages=("openvino",),
    install="pip install 'ngbkit[openvino]'",
    compile=compile,
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
    },
    refusals=(
        r"OpConversionFailure",
        r"No (conversion rule|translator) found",
        r"Unsupported operation of type",
        r"NotImplemented",
        r"[Oo]peration .*(is not|isn't|not) supported",
    ),
)
