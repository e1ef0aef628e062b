"""NVIDIA TensorRT, from an ONNX file, through its own Python API and the CUDA driver."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import nvidia, onnx_graph
from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.compilers.profiles import tensorrt as profiler
from ngbkit.errors import UnsupportedError
from ngbkit.files import write_atomically
from ngbkit.hardware.accelerators import cuda, cuda_graphs
from ngbkit.sweep.records import Contract
from ngbkit.user_text import parse_json

if TYPE_CHECKING:
    import numpy as np

_LEVELS = (0, 1, 2, 3, 4, 5)
_DEFAULT_LEVEL = 3  # TensorRT's own default


def compile(task: Task) -> Program:
    """Build an engine from the ONNX file of `task`, unless the cache has one, and bind its tensors on the GPU."""
    import tensorrt as trt

    driver = cuda.Driver()
    nvidia.check_precision(str(task.options["precision"]), driver)
    log = _make_log(trt)
    # The runtime must outlive its engine, and the engine its context: `enqueue` references all three.
    runtime = trt.Runtime(log)
    plan, engine, cache_facts = _load_or_build(trt, log, runtime, task, driver)
    context = engine.create_execution_context()
    if context is None:
        raise RuntimeError(f"TensorRT cannot create a context of its engine: {_join_errors(log)}")
    outputs, addresses = _bind(trt, driver, engine, context, task, plan.outputs)
    enqueue = _build_enqueue(driver, (runtime, engine, context), log)
    if task.options["cuda_graph"]:
        enqueue = cuda_graphs.capture(driver, enqueue)

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
        facts={"engine_bytes": len(plan.content), **cache_facts, **plan.facts},
        explain=lambda: _explain(trt, engine, task),
        enqueue=enqueue,
        stream=driver.stream.value or 0,
        feed=lambda arrays: _upload(driver, task, addresses, arrays),
        profile=lambda: profiler.open_profiler(
            trt, driver, _get_file(task), engine, addresses, graph=bool(task.options["cuda_graph"])
        ),
    )


def _upload(driver: cuda.Driver, task: Task, addresses: Mapping[str, int], arrays: Sequence[np.ndarray]) -> None:
    """Upload values over those of the inputs that the engine has, which may have dropped one that nothing reads."""
    for spec, array in zip(task.inputs, arrays, strict=True):
        if spec.name in addresses:
            driver.upload(addresses[spec.name], array)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """A serialised engine, the names of its outputs in the order of the graph, and the facts of its build."""

    content: bytes
    outputs: Sequence[str]
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _CacheFiles:
    """The cache files of an engine, and of the timings of its tactics."""

    engine: Path
    timings: Path

    @classmethod
    def of(cls, task: Task, version: str, driver: cuda.Driver) -> _CacheFiles:
        """Key the engine by graph, precision, level, TensorRT and GPU; timings serve any graph and level."""
        assert task.onnx is not None
        precision, level = str(task.options["precision"]), str(task.options["level"])
        machine = _hash(version, driver.name, *map(str, driver.compute_capability), str(driver.multiprocessors))
        content = hashlib.sha256(task.onnx.read_bytes()).hexdigest()
        folder = task.cache / "tensorrt" / machine
        return cls(folder / f"{_hash(content, precision, level)}.engine", folder / f"{precision}.timings")

    def read(self) -> _Plan | None:
        try:
            line, _, content = self.engine.read_bytes().partition(b"\n")
            header = parse_json(line)
            return _Plan(content=content, outputs=header["outputs"], facts=header["facts"])
        except (OSError, ValueError, KeyError):  # missing or incomplete: build it
            return None

    def write(self, plan: _Plan) -> None:
        header = json.dumps({"outputs": plan.outputs, "facts": plan.facts})
        with write_atomically(self.engine) as draft:
            draft.write_bytes(header.encode() + b"\n" + plan.content)


def _load_or_build(
    trt: Any, log: Any, runtime: Any, task: Task, driver: cuda.Driver
) -> tuple[_Plan, Any, dict[str, str]]:
    """Return the plan, its engine, and whether the cache had the engine and the timings of its tactics."""
    cache = _CacheFiles.of(task, trt.__version__, driver)
    plan = cache.read()
    engine = runtime.deserialize_cuda_engine(plan.content) if plan else None
    if plan is not None and engine is not None:
        return plan, engine, {"cache": "hit"}
    timings = "hit" if cache.timings.exists() else "miss"
    plan = _build(trt, log, task, cache.timings)
    engine = runtime.deserialize_cuda_engine(plan.content)
    if engine is None:
        raise RuntimeError(f"TensorRT cannot load the engine that it built: {_join_errors(log)}")
    cache.write(plan)
    return plan, engine, {"cache": "miss", "timing_cache": timings}


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _make_log(trt: Any) -> Any:
    """Build a logger that collects errors for the message of an exception."""

    class Log(trt.ILogger):  # type: ignore[misc]  # TensorRT has no types
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                self.errors.append(message)

    return Log()


def _join_errors(log: Any) -> str:
    return "; ".join(log.errors) or "its log has no error"


def _build(trt: Any, log: Any, task: Task, timings: Path) -> _Plan:
    """Build an engine, and save the tactic timings in `timings`, so that the next build need not measure them again."""
    builder = trt.Builder(log)
    quantised = any(node.op_type == "QuantizeLinear" for node in onnx_graph.read_operators(_get_file(task)))
    # Explicit batch is the only kind since TensorRT 10.
    network = builder.create_network(_build_network_flags(trt) if quantised else 0)
    config = builder.create_builder_config()
    config.builder_optimization_level = task.options["level"]
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED  # the engine lists the nodes of each layer
    facts = _set_precision(trt, config, str(task.options["precision"]))
    _parse(trt, log, network, task, converted=bool(facts.get("converted_to_f16")))
    _use_timings(config, timings)
    content = builder.build_serialized_network(network, config)
    if content is None:
        raise RuntimeError(f"TensorRT built no engine: {_join_errors(log)}")
    with write_atomically(timings) as draft:
        draft.write_bytes(memoryview(config.get_timing_cache().serialize()))
    outputs = [network.get_output(index).name for index in range(network.num_outputs)]
    return _Plan(content=bytes(memoryview(content)), outputs=outputs, facts=facts)


def _build_network_flags(trt: Any) -> int:
    """Build the flags of a network with QDQ nodes: its types are those of the graph, as they always are since 11."""
    strong = getattr(getattr(trt, "NetworkDefinitionCreationFlag", None), "STRONGLY_TYPED", None)
    return 0 if strong is None else 1 << int(strong)


def _get_file(task: Task) -> Path:
    if task.onnx is None:
        raise ValueError("invalid task: got form 'onnx' without a file; expected a file.")
    return task.onnx


def _set_precision(trt: Any, config: Any, precision: str) -> dict[str, Any]:
    """Set the builder's precision, and return the facts about it."""
    if precision != "tf32":  # TensorRT's default
        config.clear_flag(trt.BuilderFlag.TF32)
    if precision != "f16":
        return {}
    # Until TensorRT 10 the builder may choose f16 for each layer that it speeds up; since 11 the graph sets the types.
    typed = not hasattr(trt.BuilderFlag, "FP16")
    if not typed:
        config.set_flag(trt.BuilderFlag.FP16)
    return {"converted_to_f16": typed}


def _parse(trt: Any, log: Any, network: Any, task: Task, converted: bool) -> None:
    parser = trt.OnnxParser(network, log)
    parsed = parser.parse(nvidia.convert_to_f16(task.onnx)) if converted else parser.parse_from_file(str(task.onnx))
    if not parsed:
        errors = [parser.get_error(index).desc() for index in range(parser.num_errors)]
        raise UnsupportedError(f"TensorRT's ONNX parser rejects the graph: {'; '.join(errors)}")


def _use_timings(config: Any, timings: Path) -> None:
    """Build with the cached tactic timings; those that TensorRT rejects are discarded."""
    for content in ([timings.read_bytes()] if timings.exists() else []) + [b""]:
        cache = config.create_timing_cache(content)
        if cache is not None and config.set_timing_cache(cache, False):
            return


def _bind(
    trt: Any, driver: cuda.Driver, engine: Any, context: Any, task: Task, names: Sequence[str]
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Allocate every tensor on the GPU, upload the inputs, and return host arrays of the outputs and all addresses."""
    import numpy as np

    inputs = {spec.name: array for spec, array in zip(task.inputs, task.arrays, strict=True)}
    outputs = {
        name: np.empty(tuple(engine.get_tensor_shape(name)), trt.nptype(engine.get_tensor_dtype(name)))
        for name in names
    }
    arrays = {**inputs, **outputs}
    addresses = {}
    # The engine may drop an input that nothing reads, so iterate over its own list.
    for name in [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]:
        array = np.ascontiguousarray(arrays[name], dtype=trt.nptype(engine.get_tensor_dtype(name)))
        addresses[name] = driver.allocate(array.nbytes)
        if name in inputs:
            driver.upload(addresses[name], array)
        if not context.set_tensor_address(name, addresses[name]):
            raise RuntimeError(f"TensorRT rejects the address of its tensor {name!r}")
    return outputs, addresses


def _build_enqueue(driver: cuda.Driver, owners: tuple[Any, Any, Any], log: Any) -> Callable[[], None]:
    execute, stream = owners[-1].execute_async_v3, driver.stream.value

    def enqueue(_: tuple[Any, Any, Any] = owners) -> None:
        if not execute(stream):
            raise RuntimeError(f"TensorRT cannot enqueue the network: {_join_errors(log)}")

    return enqueue


def _explain(trt: Any, engine: Any, task: Task) -> dict[str, Any]:
    """Count the layers of the engine, by its own inspector."""
    assert task.onnx is not None
    text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    layers = [layer if isinstance(layer, str) else layer["Name"] for layer in json.loads(text)["Layers"]]
    return {
        "nodes_before": len(onnx_graph.read_operators(task.onnx)),
        "nodes_after": len(layers),
        "nodes_fused": sum(map(_is_fused, layers)),
        "fallbacks": 0,  # an engine runs on the GPU as a whole, or cannot be built
    }


def _is_fused(layer: str) -> bool:
    """Return whether a layer's name joins several: ``conv + relu``, ``{ForeignNode[first...last]}``."""
    return " + " in layer or "..." in layer


def probe() -> str:
    """Return the reason why TensorRT cannot work here: no driver, no visible GPU, or libraries that do not load."""
    return nvidia.find_problem("tensorrt", __name__)


def diagnose() -> str:
    """Return the reason why TensorRT, which loads, cannot use the GPU of this process, or ``""``."""
    import tensorrt as trt

    log = _make_log(trt)
    try:
        trt.Builder(log)
    except Exception as error:  # noqa: BLE001  its type differs by version, and the log has the reason
        reason = "; ".join(log.errors) or f"{type(error).__name__}: {error}"
        return f"TensorRT {trt.__version__} does not work with this GPU and driver: {reason}"
    return ""


COMPILER = Compiler(
    name="tensorrt",
    summary="NVIDIA TensorRT, on an NVIDIA GPU",
    forms={"onnx": ()},
    packages=("tensorrt",),
    install="pip install 'ngbkit[tensorrt]' from NVIDIA's own package index; on a Jetson, JetPack includes it",
    compile=compile,
    caches=True,
    accelerators={"cuda": probe},
    options={
        "precision": nvidia.PRECISION,
        "level": Option(
            default=_DEFAULT_LEVEL,
            help="optimisation effort of the builder, 0 to 5: above 3 it takes much longer and may find faster kernels",
            choices=_LEVELS,
        ),
        "cuda_graph": nvidia.CUDA_GRAPH,
    },
    refusals=(
        r"UNSUPPORTED_(NODE|GRAPH)",
        r"No importer registered for op",
        r"[Pp]lugin not found",
    ),
)
