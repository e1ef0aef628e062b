"""A strict session of ONNX Runtime: on the provider that was asked for or none, its tensors bound where it computes.

Asked for a provider that it cannot have, ONNX Runtime writes a warning and computes on the CPU. A number of a CPU under
the name of a GPU is the worst that a benchmark can give, so here that is an `UnsupportedError`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import onnx_graph
from ngbkit.compilers.base import Program, Task
from ngbkit.errors import UnsupportedError
from ngbkit.sweep.records import Contract

if TYPE_CHECKING:
    import numpy as np

    from ngbkit.hardware.accelerators.cuda import Driver

_PRECISIONS = {
    "tensor(float)": "f32",
    "tensor(double)": "f64",
    "tensor(float16)": "f16",
    "tensor(bfloat16)": "bf16",
}
# What NumPy calls the types of outputs that can be bound on a GPU.
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


def _unknown() -> str:
    return "its own log says why"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """An execution provider of ONNX Runtime, as it is asked for.

    Parameters
    ----------
    name
        ``"CUDAExecutionProvider"``.
    options
        Its own options.
    devices
        The ``OrtEpDevice`` to use, of a provider that came as a plugin; none of one that is built in.
    reason
        Finds out why it did not come, and what to do: the end of an error message.
    """

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    devices: Sequence[Any] = ()
    reason: Callable[[], str] = _unknown


CPU = Provider(name="CPUExecutionProvider")


def open_session(onnx: Path | bytes, settings: Any, provider: Provider) -> Any:
    """A session on that provider.

    Parameters
    ----------
    onnx
        The file, or the model itself.
    settings
        A ``SessionOptions`` of this session's own.
    provider
        The only one that will do. Nodes that it has no kernel for run on the CPU, and `explain` counts them.

    Raises
    ------
    UnsupportedError
        The provider is not there, another came in its place, or it took none of the nodes.
    """
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    asked = None
    if provider.devices:
        settings.add_provider_for_devices(list(provider.devices), dict(provider.options))
    else:
        _check_built_in(provider, onnxruntime.get_available_providers())
        asked = [(provider.name, dict(provider.options))]
    if provider.name != CPU.name:
        settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    model = onnx if isinstance(onnx, bytes) else str(onnx)
    # With its fallback a session that fails is opened once more, on the CPU.
    session = onnxruntime.InferenceSession(model, settings, providers=asked, enable_fallback=0)
    if session.get_providers()[0] != provider.name:
        raise UnsupportedError(
            f"{provider.name} was asked for and ONNX Runtime took {session.get_providers()[0]}: {provider.reason()}"
        )
    _check_assigned(provider, session)
    return session


def _check_built_in(provider: Provider, available: Sequence[str]) -> None:
    if provider.name not in available:
        raise UnsupportedError(
            f"{provider.name} was asked for and this build of ONNX Runtime has {', '.join(available)}: "
            f"{provider.reason()}"
        )


def _check_assigned(provider: Provider, session: Any) -> None:
    """That the provider took any node: a session bears its name even where all of them fell to the CPU."""
    if provider.name == CPU.name or not hasattr(session, "get_provider_graph_assignment_info"):
        return
    parts = session.get_provider_graph_assignment_info()
    owners = {part.ep_name for part in parts}
    if parts and provider.name not in owners:
        raise UnsupportedError(
            f"{provider.name} takes no node of this network, and all would run on {', '.join(sorted(owners))}: "
            f"{provider.reason()}"
        )


def precision(session: Any) -> str:
    """Of the first floating-point output, or input where no output is one: the runtime does not tell more."""
    types = [value.type for value in (*session.get_outputs(), *session.get_inputs())]
    return next((_PRECISIONS[kind] for kind in types if kind in _PRECISIONS), types[0])


def bind_on_cpu(session: Any, task: Task) -> Any:
    """A binding of the inputs of `task` where they are, and of outputs that the runtime makes."""
    binding = session.io_binding()
    for spec, array in zip(task.inputs, task.arrays, strict=True):
        binding.bind_cpu_input(spec.name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")
    return binding


def run_on_cpu(session: Any, task: Task) -> tuple[Callable[[], Any], Callable[[Any], list[np.ndarray]]]:
    """``run`` and ``fetch`` of a program on the CPU.

    A call costs 11 µs so, 14 µs by ``session.run`` and 43 µs by ``run_with_ort_values``: two 8-channel convolutions on
    16 x 16, one thread, ONNX Runtime 1.31.
    """
    binding = bind_on_cpu(session, task)

    def run() -> Any:
        session.run_with_iobinding(binding)
        return binding

    return run, lambda done: list(done.copy_outputs_to_cpu())


def bind_on_gpu(session: Any, task: Task, driver: Driver) -> tuple[Any, list[tuple[int, np.ndarray]]]:
    """A binding of inputs and outputs in memory of the GPU, the inputs' values in it, and of each output its address
    there and an array to read it into.

    The addresses stay what they are, which a CUDA graph needs. The memory lives as long as the process.

    Raises
    ------
    UnsupportedError
        The type or the shape of an output is not known before it is computed.
    """
    import numpy as np

    binding = session.io_binding()
    for spec, array in zip(task.inputs, task.arrays, strict=True):
        address = driver.allocate(array.nbytes)
        driver.upload(address, array)
        binding.bind_input(spec.name, "cuda", 0, array.dtype, array.shape, address)
    outputs = []
    for output in session.get_outputs():
        if output.type not in _DTYPES or not all(isinstance(size, int) for size in output.shape):
            raise UnsupportedError(
                f"the output {output.name} is a {output.type} of shape {output.shape}, and ngbkit binds outputs on a "
                f"GPU whose shape is fixed and whose type is one of {', '.join(_DTYPES)}: export the network so"
            )
        array = np.empty(output.shape, _DTYPES[output.type])
        address = driver.allocate(array.nbytes)
        binding.bind_output(output.name, "cuda", 0, array.dtype, array.shape, address)
        outputs.append((address, array))
    return binding, outputs


def gpu_program(
    task: Task,
    session: Any,
    driver: Driver,
    contract: Contract,
    facts: dict[str, Any],
    explain: Callable[[], dict[str, Any]],
    *,
    waits: bool = False,
) -> Program:
    """A program on the GPU, all that its first call would search for, compile or capture done.

    Parameters
    ----------
    task, session, driver
        The session works on the driver's stream.
    contract, facts, explain
        Of the program.
    waits
        Whether the session waits for the GPU in each call, so that it cannot be put between CUDA events.
    """
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    binding, outputs = bind_on_gpu(session, task, driver)
    no_wait = onnxruntime.RunOptions()
    no_wait.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def enqueue() -> None:
        session.run_with_iobinding(binding, no_wait)

    def run() -> None:
        enqueue()
        driver.synchronize()

    run()
    return Program(
        run=run,
        fetch=lambda _: [driver.download(address, array).copy() for address, array in outputs],
        contract=contract,
        facts=facts,
        explain=explain,
        enqueue=None if waits else enqueue,
        stream=driver.stream.value or 0,
    )


def explain(
    task: Task, settings: Any, provider: Provider, bind: Callable[[Any], Any], *, onnx: Path | bytes | None = None
) -> dict[str, Any]:
    """What a session like the first writes down: its optimised graph, and where each node of one call ran.

    Parameters
    ----------
    task, provider
        Of the first session.
    settings
        A ``SessionOptions`` like the first session's.
    bind
        Makes the session's binding.
    onnx
        What the session was opened on where that is not the file of `task`. A plugin compiles its nodes, and a graph
        with compiled nodes cannot be written.
    """
    assert task.onnx is not None
    before = onnx_graph.read_operators(task.onnx)
    with tempfile.TemporaryDirectory(prefix="ngbkit-explain-") as folder:
        optimised = Path(folder, "optimised.onnx")
        if not provider.devices:
            settings.optimized_model_filepath = str(optimised)
            # Weights apart, or a graph of more than 2 GB could not be written.
            settings.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
        settings.enable_profiling = True
        settings.profile_file_prefix = str(Path(folder, "profile"))
        settings.log_severity_level = 3  # it warns that such a graph is for this machine only
        session = open_session(onnx or task.onnx, settings, provider)
        session.run_with_iobinding(bind(session))
        events = json.loads(Path(session.end_profiling()).read_text())
        after = None if provider.devices else onnx_graph.read_operators(optimised)
    nodes = _executed(events)
    return {
        "nodes_before": len(before),
        "nodes_after": len(nodes) if after is None else len(after),
        **({} if after is None else {"nodes_fused": onnx_graph.count_fused(before, after)}),
        "fallbacks": count_fallbacks(events, provider.name),
    }


def _executed(events: Sequence[dict[str, Any]]) -> set[tuple[str, str]]:
    """The nodes of a profile, each with its provider, however often it ran."""
    named = ((event["name"], event["args"].get("provider")) for event in events if event.get("cat") == "Node")
    return {(name, provider) for name, provider in named if provider is not None}


def count_fallbacks(events: Sequence[dict[str, Any]], asked: str) -> int:
    """The nodes in a profile that ran on another provider than the one that was asked for."""
    return sum(provider != asked for _, provider in _executed(events))
