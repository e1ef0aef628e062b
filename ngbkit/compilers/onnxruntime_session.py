"""Strict sessions of ONNX Runtime: on the requested provider or none, with tensors bound in that provider's memory.

If the requested provider is unavailable, ONNX Runtime logs a warning and computes on the CPU. A CPU number labelled as
a GPU's is the worst result of a benchmark, so this module raises `UnsupportedError` instead.
"""

from __future__ import annotations

import ctypes
import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import onnx_graph
from ngbkit.compilers.base import Program, Task
from ngbkit.errors import UnsupportedError
from ngbkit.sweep.records import Contract
from ngbkit.workloads.feeds import NARROW_DTYPES, find_dtype, is_floating
from ngbkit.workloads.outputs import to_arrays

if TYPE_CHECKING:
    import numpy as np

    from ngbkit.hardware.accelerators.cuda import Driver

_PRECISIONS = {
    "tensor(float)": "f32",
    "tensor(double)": "f64",
    "tensor(float16)": "f16",
    "tensor(bfloat16)": "bf16",
}
# NumPy dtypes of the outputs that can be bound on a GPU.
_DTYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(int8)": "int8",
    "tensor(uint8)": "uint8",
    "tensor(bool)": "bool",
}


# The first call of a session takes longer.
_PROFILED_CALLS = 3
# Types with several values to a byte.
_BITS = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}


def _refer_to_log() -> str:
    return "its own log has the reason"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """An execution provider of ONNX Runtime, and how to request it."""

    name: str  # such as "CUDAExecutionProvider"
    options: Mapping[str, str] = field(default_factory=dict)
    devices: Sequence[Any] = ()  # the `OrtEpDevice` to use, for providers that are plugins
    reason: Callable[[], str] = _refer_to_log  # finds why it is unavailable, and the remedy


CPU = Provider(name="CPUExecutionProvider")


def open_session(onnx: Path | bytes, settings: Any, provider: Provider) -> Any:
    """Open a session on `provider` and no other; nodes that it has no kernel for run on the CPU (see `explain`)."""
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    providers = None
    if provider.devices:
        settings.add_provider_for_devices(list(provider.devices), dict(provider.options))
    else:
        _check_built_in(provider, onnxruntime.get_available_providers())
        providers = [(provider.name, dict(provider.options))]
    if provider.name != CPU.name:
        settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    model = onnx if isinstance(onnx, bytes) else str(onnx)
    # With the fallback enabled, a session that fails is opened once more, on the CPU.
    session = onnxruntime.InferenceSession(model, settings, providers=providers, enable_fallback=0)
    if session.get_providers()[0] != provider.name:
        raise UnsupportedError(
            f"requested {provider.name}, but ONNX Runtime chose {session.get_providers()[0]}: {provider.reason()}"
        )
    _check_assigned(provider, session)
    return session


def _check_built_in(provider: Provider, available: Sequence[str]) -> None:
    if provider.name not in available:
        raise UnsupportedError(
            f"requested {provider.name}, but this build of ONNX Runtime has {', '.join(available)}: {provider.reason()}"
        )


def _check_assigned(provider: Provider, session: Any) -> None:
    """Check that the provider runs any node: a session keeps its name even if all nodes fall back to the CPU."""
    if provider.name == CPU.name or not hasattr(session, "get_provider_graph_assignment_info"):
        return
    parts = session.get_provider_graph_assignment_info()
    owners = {part.ep_name for part in parts}
    if parts and provider.name not in owners:
        raise UnsupportedError(
            f"{provider.name} supports no node of this network; all would run on {', '.join(sorted(owners))}. "
            "Use a device whose accelerator is the CPU, or another compiler."
        )


def find_precision(session: Any, task: Task) -> str:
    """Return the precision of the first floating-point output, or else input; the runtime reports no better one."""
    types = [value.type for value in (*session.get_outputs(), *session.get_inputs())]
    return next((_PRECISIONS[kind] for kind in types if kind in _PRECISIONS), task.body_precision)


def bind_on_cpu(session: Any, task: Task) -> Any:
    """Bind the inputs of `task` in place, and outputs that the runtime allocates."""
    binding = session.io_binding()
    for spec, array in zip(task.inputs, task.arrays, strict=True):
        if spec.dtype in NARROW_DTYPES:
            binding.bind_ortvalue_input(spec.name, _wrap_narrow(spec.dtype, array))
        else:
            binding.bind_cpu_input(spec.name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")
    return binding


def build_cpu_calls(session: Any, task: Task) -> tuple[Callable[[], Any], Callable[[Any], list[np.ndarray]]]:
    """Return ``run`` and ``fetch`` of a program on the CPU.

    A call costs 11 µs this way, 14 µs by ``session.run`` and 43 µs by ``run_with_ort_values``: two 8-channel
    convolutions on 16 x 16, one thread, ONNX Runtime 1.31. Only ``session.run`` takes and returns text, sequences and
    maps: a binding ends the process.
    """
    if not can_bind(session):
        feed = {spec.name: array for spec, array in zip(task.inputs, task.arrays, strict=True)}
        return lambda: session.run(None, feed), to_arrays
    binding = bind_on_cpu(session, task)

    def run() -> Any:
        session.run_with_iobinding(binding)
        return binding

    return run, lambda binding: [_fetch(value) for value in binding.get_outputs()]


def find_feed(task: Task) -> Callable[[Sequence[np.ndarray]], None] | None:
    """Return a function that overwrites the inputs of `task`, which are bound in place; None if some were packed."""
    if any(spec.dtype in _BITS for spec in task.inputs):
        return None

    def feed(arrays: Sequence[np.ndarray]) -> None:
        for bound, array in zip(task.arrays, arrays, strict=True):
            bound[...] = array

    return feed


def find_memory(task: Task) -> list[list[np.ndarray]]:
    """Return the inputs of `task`, which are bound in place; none if some were packed."""
    return [] if any(spec.dtype in _BITS for spec in task.inputs) else [[array] for array in task.arrays]


def can_bind(session: Any) -> bool:
    """Return whether all inputs and outputs are tensors of numbers, which a binding takes."""
    types = [value.type for value in (*session.get_inputs(), *session.get_outputs())]
    return all(kind.startswith("tensor(") and kind != "tensor(string)" for kind in types)


def _wrap_narrow(dtype: str, array: np.ndarray) -> Any:
    """Wrap an array of a dtype that NumPy lacks in ONNX Runtime's own value."""
    import numpy as np
    import onnx

    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    raw: Any = array.view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
    if bits := _BITS.get(dtype):  # several to a byte, at the beginning of the buffer
        count = 8 // bits
        padded = np.append(raw.ravel() & (1 << bits) - 1, np.zeros(-raw.size % count, np.uint8)).reshape(-1, count)
        packed = np.bitwise_or.reduce(padded << np.arange(0, 8, bits, dtype=np.uint8), axis=1)
        raw = np.append(packed, np.zeros(raw.size - packed.size, np.uint8)).reshape(array.shape)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, kind)


def _fetch(value: Any) -> np.ndarray:
    """Copy an output to an array; floating numbers that NumPy lacks become float32."""
    import numpy as np

    name = value.data_type().removeprefix("tensor(").removesuffix(")").replace("float8e", "float8_e")
    if name not in NARROW_DTYPES:
        return np.array(value.numpy())  # the next call overwrites it
    dtype, count = find_dtype(name), math.prod(value.shape())
    bits = _BITS.get(name, 8 * dtype.itemsize)
    address = ctypes.cast(value.data_ptr(), ctypes.POINTER(ctypes.c_uint8 * -(-count * bits // 8)))
    raw: np.ndarray = np.frombuffer(address.contents, np.uint8)
    if name in _BITS:
        raw = (raw[:, np.newaxis] >> np.arange(0, 8, bits, dtype=np.uint8) & (1 << bits) - 1).ravel()[:count]
    kind = np.float32 if is_floating(dtype) else np.int8
    return raw.view(dtype).astype(kind).reshape(value.shape())


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuBinding:
    """Inputs and outputs of a session in GPU memory: the addresses, and a host array of each output."""

    binding: Any
    inputs: Sequence[int]
    outputs: Sequence[tuple[int, np.ndarray]]


def bind_on_gpu(session: Any, task: Task, driver: Driver) -> GpuBinding:
    """Bind inputs and outputs in GPU memory, at fixed addresses as CUDA graphs require, and upload the inputs."""
    import numpy as np

    binding = session.io_binding()
    inputs = []
    for spec, array in zip(task.inputs, task.arrays, strict=True):
        address = driver.allocate(array.nbytes)
        driver.upload(address, array)
        inputs.append(address)
        binding.bind_input(spec.name, "cuda", 0, array.dtype, array.shape, address)
    outputs = []
    for output in session.get_outputs():
        if output.type not in _DTYPES or not all(isinstance(size, int) for size in output.shape):
            raise UnsupportedError(
                f"invalid output {output.name}: got {output.type} of shape {output.shape}; on a GPU expected a fixed "
                f"shape and one of {', '.join(_DTYPES)}. Export the network that way."
            )
        array = np.empty(output.shape, _DTYPES[output.type])
        address = driver.allocate(array.nbytes)
        binding.bind_output(output.name, "cuda", 0, array.dtype, array.shape, address)
        outputs.append((address, array))
    return GpuBinding(binding=binding, inputs=inputs, outputs=outputs)


def build_gpu_program(
    task: Task,
    session: Any,
    driver: Driver,
    contract: Contract,
    facts: dict[str, Any],
    explain: Callable[[], dict[str, Any]],
    *,
    waits: bool = False,
) -> Program:
    """Build a program after a first call with all lazy work; events time it unless the session `waits` in calls."""
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    bound = bind_on_gpu(session, task, driver)
    no_wait = onnxruntime.RunOptions()
    no_wait.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def enqueue() -> None:
        session.run_with_iobinding(bound.binding, no_wait)

    def run() -> None:
        enqueue()
        driver.synchronize()

    def feed(arrays: Sequence[np.ndarray]) -> None:
        for address, array in zip(bound.inputs, arrays, strict=True):
            driver.upload(address, array)

    run()
    return Program(
        run=run,
        fetch=lambda _: [driver.download(address, array).copy() for address, array in bound.outputs],
        feed=feed,
        contract=contract,
        facts=facts,
        explain=explain,
        enqueue=None if waits else enqueue,
        stream=driver.stream.value or 0,
    )


def explain(
    task: Task,
    settings: Any,
    provider: Provider,
    prepare: Callable[[Any], Callable[[], Any]],
    *,
    onnx: Path | bytes | None = None,
) -> dict[str, Any]:
    """Profile some calls of a second session with new `settings`: its optimised graph, and its nodes with their times.

    `prepare` binds the inputs to a session, and returns the call. `onnx` is the file that the session was opened on, if
    not the file of `task`. A graph with nodes that a plugin compiled cannot be written.
    """
    assert task.onnx is not None
    before = onnx_graph.read_operators(task.onnx)
    with tempfile.TemporaryDirectory(prefix="ngbkit-explain-") as folder:
        optimised = Path(folder, "optimised.onnx")
        if not provider.devices:
            write_to(settings, optimised)
        settings.enable_profiling = True
        settings.profile_file_prefix = str(Path(folder, "profile"))
        settings.log_severity_level = 3  # it warns that such a graph only fits this machine
        session = open_session(onnx or task.onnx, settings, provider)
        call = prepare(session)
        for _ in range(_PROFILED_CALLS):
            call()
        events = json.loads(Path(session.end_profiling()).read_text())
        after = None if provider.devices else onnx_graph.read_operators(optimised)
    nodes = _find_executed(events)
    wide = {} if after is None else onnx_graph.describe_wide_layers(before, after)
    operators = sum_operators(events, is_timed=provider.name == CPU.name)
    if wide and (seconds := operators.get("operator_s")):
        wide["f32_time_share"] = sum(seconds.get(kind, 0.0) for kind in wide["f32_reasons"]) / sum(seconds.values())
    return {
        "nodes_before": len(before),
        "nodes_after": len(nodes) if after is None else len(after),
        **({} if after is None else {"nodes_fused": onnx_graph.count_fused(before, after)}),
        "fallbacks": count_fallbacks(events, provider.name),
        **operators,
        **wide,
    }


def sum_operators(events: Sequence[dict[str, Any]], *, is_timed: bool) -> dict[str, Any]:
    """Count the operators of a profile by kind, and sum up the median seconds of each; on a GPU they only launch it."""
    durations: dict[str, dict[str, list[float]]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            details = event["args"]
            nodes = durations.setdefault(str(details.get("op_name")), {})
            # A node may have no name.
            nodes.setdefault(str(details.get("node_index", event["name"])), []).append(1e-6 * event["dur"])
    counts = {kind: len(nodes) for kind, nodes in durations.items()}
    seconds = {kind: sum(map(median, nodes.values())) for kind, nodes in durations.items()}
    return {"operators": counts, **({"operator_s": seconds} if is_timed else {})}


def write_to(settings: Any, path: Path) -> None:
    """Let the next session of these settings write its optimised graph."""
    settings.optimized_model_filepath = str(path)
    # Weights in a file of their own, or a graph of more than 2 GB could not be written.
    settings.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")


def _find_executed(events: Sequence[dict[str, Any]]) -> set[tuple[str, str]]:
    """Return the nodes of a profile, each once with its provider."""
    nodes = ((event["name"], event["args"].get("provider")) for event in events if event.get("cat") == "Node")
    return {(name, provider) for name, provider in nodes if provider is not None}


def count_fallbacks(events: Sequence[dict[str, Any]], requested: str) -> int:
    """Count the nodes in a profile that ran on another provider than the requested one."""
    return sum(provider != requested for _, provider in _find_executed(events))
