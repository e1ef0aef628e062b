"""NVIDIA TensorRT, from an ONNX file, through its own Python API and the CUDA driver alone."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import onnx_graph
from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.errors import UnsupportedError
from ngbkit.hardware.accelerators import cuda, graphs
from ngbkit.sweep.records import Contract

if TYPE_CHECKING:
    import numpy as np

_LEVELS = (0, 1, 2, 3, 4, 5)
_DEFAULT_LEVEL = 3  # TensorRT's own
_TF32_SINCE = (8, 0)


def compile(task: Task) -> Program:
    """Build an engine from the ONNX file of `task`, or load what is kept of it, and bind its tensors on the GPU.

    Raises
    ------
    UnsupportedError
        TensorRT's parser refuses the graph, this TensorRT or GPU has no such precision, or the network cannot be
        recorded as a CUDA graph.
    """
    import tensorrt as trt

    driver = cuda.Driver()
    _check_precision(task, driver)
    log = _make_log(trt)
    # The runtime must outlive its engine, and the engine its context: `enqueue` holds all three.
    runtime = trt.Runtime(log)
    found, engine, kept = _load_or_build(trt, log, runtime, task, driver)
    context = engine.create_execution_context()
    if context is None:
        raise RuntimeError(f"TensorRT could not make a context of its engine: {_said(log)}")
    outputs, addresses = _bind(trt, driver, engine, context, task, found.outputs)
    enqueue = _enqueue_on(driver, (runtime, engine, context), log)
    if task.options["cuda_graph"]:
        enqueue = graphs.capture(driver, enqueue)

    def run() -> None:
        enqueue()
        driver.synchronize()

    def fetch(_: None) -> list[np.ndarray]:
        return [driver.download(addresses[name], array).copy() for name, array in outputs.items()]

    return Program(
        run=run,
        fetch=fetch,
        contract=Contract(
            runtime=f"tensorrt {trt.__version__}",
            precision=str(task.options["precision"]),
            threads=task.threads,
            transfers="excluded",
            notes="CUDA graph" if task.options["cuda_graph"] else "",
        ),
        facts={"engine_bytes": len(found.plan), **kept, **found.facts},
        explain=lambda: _explain(trt, engine, task),
        enqueue=enqueue,
        stream=driver.stream.value or 0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Engine:
    """A serialised engine, the names of its outputs in the order of the graph, and what is to be told of its build."""

    plan: bytes
    outputs: Sequence[str]
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Kept:
    """Where an engine is kept, and how long each tactic took when it was built."""

    engine: Path
    timings: Path

    @classmethod
    def of(cls, task: Task, version: str, driver: cuda.Driver) -> _Kept:
        """An engine is of one graph, precision, level, TensorRT and GPU; timings serve any graph and level."""
        assert task.onnx is not None
        precision, level = str(task.options["precision"]), str(task.options["level"])
        machine = _digest(version, driver.name, *map(str, driver.compute_capability), str(driver.multiprocessors))
        content = hashlib.sha256(task.onnx.read_bytes()).hexdigest()
        folder = task.cache / "tensorrt" / machine
        return cls(folder / f"{_digest(content, precision, level)}.engine", folder / f"{precision}.timings")

    def read(self) -> _Engine | None:
        try:
            head, _, plan = self.engine.read_bytes().partition(b"\n")
            told = json.loads(head)
            return _Engine(plan=plan, outputs=told["outputs"], facts=told["facts"])
        except (OSError, ValueError, KeyError):  # there is none, or no whole one: it will be built
            return None

    def write(self, engine: _Engine) -> None:
        head = json.dumps({"outputs": engine.outputs, "facts": engine.facts})
        _write_whole(self.engine, head.encode() + b"\n" + engine.plan)


def _load_or_build(
    trt: Any, log: Any, runtime: Any, task: Task, driver: cuda.Driver
) -> tuple[_Engine, Any, dict[str, str]]:
    """The engine as it is kept, as it is loaded, and whether it and the timings of its tactics were there before."""
    kept = _Kept.of(task, trt.__version__, driver)
    found = kept.read()
    loaded = runtime.deserialize_cuda_engine(found.plan) if found else None
    if found is not None and loaded is not None:
        return found, loaded, {"cache": "hit"}
    timings = "hit" if kept.timings.exists() else "miss"
    built = _build(trt, log, task, kept.timings)
    loaded = runtime.deserialize_cuda_engine(built.plan)
    if loaded is None:
        raise RuntimeError(f"TensorRT does not load the engine that it has built: {_said(log)}")
    kept.write(built)
    return built, loaded, {"cache": "miss", "timing_cache": timings}


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _write_whole(path: Path, content: bytes) -> None:
    """A child that is killed while it writes leaves nothing that the next one would take for an engine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    part.replace(path)


def _check_precision(task: Task, driver: cuda.Driver) -> None:
    capability = driver.compute_capability
    if task.options["precision"] == "tf32" and capability < _TF32_SINCE:
        raise UnsupportedError(
            f"{driver.name} has compute capability {capability[0]}.{capability[1]}, and tf32 came with "
            f"{_TF32_SINCE[0]}.{_TF32_SINCE[1]}: compile with precision f32 or f16"
        )


def _make_log(trt: Any) -> Any:
    """A logger that keeps the errors, for the message of the one that is raised."""

    class Log(trt.ILogger):  # type: ignore[misc]  # TensorRT has no types
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                self.errors.append(message)

    return Log()


def _said(log: Any) -> str:
    return "; ".join(log.errors) or "it said nothing"


def _build(trt: Any, log: Any, task: Task, timings: Path) -> _Engine:
    """Build an engine; how long each tactic took is kept in `timings`: the next build need not time it again."""
    builder = trt.Builder(log)
    network = builder.create_network(0)  # explicit batch is the only kind since TensorRT 10
    config = builder.create_builder_config()
    config.builder_optimization_level = task.options["level"]
    facts = _set_precision(trt, config, str(task.options["precision"]))
    _parse(trt, log, network, task, converted=bool(facts.get("converted_to_f16")))
    _use_timings(config, timings)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeError(f"TensorRT built no engine: {_said(log)}")
    _write_whole(timings, bytes(memoryview(config.get_timing_cache().serialize())))
    outputs = [network.get_output(index).name for index in range(network.num_outputs)]
    return _Engine(plan=bytes(memoryview(plan)), outputs=outputs, facts=facts)


def _set_precision(trt: Any, config: Any, precision: str) -> dict[str, Any]:
    """Tell the builder the precision, and return what is to be told of it."""
    if precision != "tf32":  # on by default
        config.clear_flag(trt.BuilderFlag.TF32)
    if precision != "f16":
        return {}
    # Until TensorRT 10 the builder may pick f16 for each layer where that is faster; from 11 on the graph says it.
    typed = not hasattr(trt.BuilderFlag, "FP16")
    if not typed:
        config.set_flag(trt.BuilderFlag.FP16)
    return {"converted_to_f16": typed}


def _parse(trt: Any, log: Any, network: Any, task: Task, converted: bool) -> None:
    parser = trt.OnnxParser(network, log)
    parsed = parser.parse(_in_f16(task.onnx)) if converted else parser.parse_from_file(str(task.onnx))
    if not parsed:
        errors = [parser.get_error(index).desc() for index in range(parser.num_errors)]
        raise UnsupportedError(f"TensorRT's ONNX parser refuses the graph: {'; '.join(errors)}")


def _in_f16(path: Path | None) -> bytes:
    """The graph with weights and tensors in float16, and its inputs and outputs as they were."""
    import onnx

    try:
        # By the import that keeps its telemetry off, which must come first.
        from ngbkit.compilers.onnxruntime_runtime import onnxruntime

        float16, onnx_model = (
            importlib.import_module(f"{onnxruntime.__name__}.transformers.{name}") for name in ("float16", "onnx_model")
        )
    except ImportError as error:
        raise UnsupportedError(
            f"this TensorRT takes the precision from the graph, and what converts it to f16 is missing ({error}); "
            "get it by: pip install 'ngbkit[onnxruntime]'"
        ) from error
    converted = float16.convert_float_to_float16(onnx.load(str(path)), keep_io_types=True)
    onnx_model.OnnxModel(converted).topological_sort()  # the casts of the inputs were put at the end
    return bytes(converted.SerializeToString())


def _use_timings(config: Any, timings: Path) -> None:
    """Build with the timings that are kept; those that TensorRT does not take are forgotten."""
    for content in ([timings.read_bytes()] if timings.exists() else []) + [b""]:
        cache = config.create_timing_cache(content)
        if cache is not None and config.set_timing_cache(cache, False):
            return


def _bind(
    trt: Any, driver: cuda.Driver, engine: Any, context: Any, task: Task, names: Sequence[str]
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Memory on the GPU for every tensor, the inputs' values in it: arrays for the outputs, and all addresses."""
    import numpy as np

    inputs = {spec.name: array for spec, array in zip(task.inputs, task.arrays, strict=True)}
    outputs = {
        name: np.empty(tuple(engine.get_tensor_shape(name)), trt.nptype(engine.get_tensor_dtype(name)))
        for name in names
    }
    arrays = {**inputs, **outputs}
    addresses = {}
    # An input that nothing reads may be none of the engine's: its own list says what it wants.
    for name in [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]:
        array = np.ascontiguousarray(arrays[name], dtype=trt.nptype(engine.get_tensor_dtype(name)))
        addresses[name] = driver.allocate(array.nbytes)
        if name in inputs:
            driver.upload(addresses[name], array)
        if not context.set_tensor_address(name, addresses[name]):
            raise RuntimeError(f"TensorRT does not take an address for its tensor {name!r}")
    return outputs, addresses


def _enqueue_on(driver: cuda.Driver, owners: tuple[Any, Any, Any], log: Any) -> Callable[[], None]:
    execute, stream = owners[-1].execute_async_v3, driver.stream.value

    def enqueue(_: tuple[Any, Any, Any] = owners) -> None:
        if not execute(stream):
            raise RuntimeError(f"TensorRT could not enqueue the network: {_said(log)}")

    return enqueue


def _explain(trt: Any, engine: Any, task: Task) -> dict[str, Any]:
    """The layers of the engine, from its own inspector."""
    assert task.onnx is not None
    text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    layers = [layer if isinstance(layer, str) else layer["Name"] for layer in json.loads(text)["Layers"]]
    return {
        "nodes_before": len(onnx_graph.read_operators(task.onnx)),
        "nodes_after": len(layers),
        "nodes_fused": sum(map(_is_fused, layers)),
        "fallbacks": 0,  # an engine runs on the GPU as a whole, or is not built
    }


def _is_fused(layer: str) -> bool:
    """Whether the name of a layer says that it is several: ``conv + relu``, ``{ForeignNode[first...last]}``."""
    return " + " in layer or "..." in layer


def probe() -> str:
    """Why TensorRT cannot work here: no driver, no GPU that this process may see, or libraries that do not load."""
    return cuda.lacks("tensorrt", f"from {__name__} import diagnose; print(diagnose(), end='')")


def diagnose() -> str:
    """Why TensorRT, which loads, cannot use the GPU of this very process, or ``""``."""
    import tensorrt as trt

    log = _make_log(trt)
    try:
        trt.Builder(log)
    except Exception as error:  # noqa: BLE001  what it raises differs by version, and its log has the reason
        said = "; ".join(log.errors) or f"{type(error).__name__}: {error}"
        return f"TensorRT {trt.__version__} does not work with this GPU and driver: {said}"
    return ""


COMPILER = Compiler(
    name="tensorrt",
    summary="NVIDIA TensorRT, on an NVIDIA GPU",
    forms={"onnx": ()},
    packages=("tensorrt",),
    install="pip install 'ngbkit[tensorrt]' with NVIDIA's own package index; a Jetson has it in its JetPack",
    compile=compile,
    caches=True,
    accelerators={"cuda": probe},
    options={
        "precision": Option(
            default="f32",
            help="the precision to compute in; left to itself TensorRT picks tf32 for matrix products",
            choices=("f32", "tf32", "f16"),
        ),
        "level": Option(
            default=_DEFAULT_LEVEL,
            help="how hard the builder tries, from 0 to 5: above 3 it takes much longer and may find faster kernels",
            choices=_LEVELS,
        ),
        "cuda_graph": Option(
            default=False,
            help="record the network's launches once and launch them as one; it helps where the network is small",
            choices=(False, True),
        ),
    },
    refusals=(
        r"UNSUPPORTED_(NODE|GRAPH)",
        r"No importer registered for op",
        r"[Pp]lugin not found",
    ),
)
