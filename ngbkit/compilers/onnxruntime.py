"""ONNX Runtime on the CPU, from an ONNX file."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import onnx_graph
from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.records import Contract

if TYPE_CHECKING:
    import numpy as np

PROVIDER = "CPUExecutionProvider"
RUNTIME = f"onnxruntime {PROVIDER}"
REFUSALS = (
    r"is not a registered function/op",
    r"No Op registered for",
    r"^NotImplemented:|NOT_IMPLEMENTED",
    r"Could not find an implementation for",
)

_LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "off": "ORT_DISABLE_ALL",
}
_PRECISIONS = {
    "tensor(float)": "f32",
    "tensor(double)": "f64",
    "tensor(float16)": "f16",
    "tensor(bfloat16)": "bf16",
}


def compile(task: Task) -> Program:
    """Open the ONNX file of `task` with the graph optimisations that were asked for."""
    spinning = bool(task.options["spinning"])
    return open_program(task, str(task.options["optimization"]), runtime=RUNTIME, spinning=spinning)


def open_program(task: Task, optimization: str, runtime: str, *, spinning: bool = False) -> Program:
    """A session on the ONNX file of `task` at a level of graph optimisation, with inputs and outputs bound.

    A call costs 11 µs so, 14 µs by ``session.run`` and 43 µs by ``run_with_ort_values``: two 8-channel convolutions on
    16 x 16, one thread, ONNX Runtime 1.31.
    """
    session = _open(task, _settings(task, optimization, spinning))
    binding = _bind(task, session)

    def run() -> Any:
        session.run_with_iobinding(binding)
        return binding

    return Program(
        run=run,
        fetch=_fetch,
        contract=Contract(
            runtime=runtime,
            precision=_precision(session),
            threads=task.threads,
            notes="idle threads spin" if spinning else "",
        ),
        facts={"provider": PROVIDER, "optimization": optimization},
        explain=lambda: _explain(task, _settings(task, optimization, spinning)),
    )


def _settings(task: Task, optimization: str, spinning: bool) -> Any:
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = task.threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[optimization])
    # Threads that spin between two calls would be timed with whatever else the group runs in that pause.
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
    return options


def _open(task: Task, options: Any) -> Any:
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    session = onnxruntime.InferenceSession(str(task.onnx), options, providers=[PROVIDER])
    # ONNX Runtime only warns when a provider cannot be had, and takes another.
    if session.get_providers()[0] != PROVIDER:
        raise RuntimeError(f"ONNX Runtime took {session.get_providers()[0]}; {PROVIDER} was asked for.")
    return session


def _bind(task: Task, session: Any) -> Any:
    binding = session.io_binding()
    for spec, array in zip(task.inputs, task.arrays, strict=True):
        binding.bind_cpu_input(spec.name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")
    return binding


def _explain(task: Task, options: Any) -> dict[str, Any]:
    """What a second session like the first writes down: its optimised graph, and where each node of one call ran."""
    assert task.onnx is not None
    before = onnx_graph.read_operators(task.onnx)
    with tempfile.TemporaryDirectory(prefix="ngbkit-explain-") as folder:
        optimised = Path(folder, "optimised.onnx")
        options.optimized_model_filepath = str(optimised)
        # Weights apart, or a graph of more than 2 GB could not be written.
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder, "profile"))
        options.log_severity_level = 3  # it warns that such a graph is for this machine only
        session = _open(task, options)
        session.run_with_iobinding(_bind(task, session))
        events = json.loads(Path(session.end_profiling()).read_text())
        after = onnx_graph.read_operators(optimised)
    return {
        "nodes_before": len(before),
        "nodes_after": len(after),
        "nodes_fused": onnx_graph.count_fused(before, after),
        "fallbacks": _count_fallbacks(events),
    }


def _count_fallbacks(events: Sequence[dict[str, Any]]) -> int:
    """The nodes in a profile that ran on another provider than the one that was asked for."""
    nodes = {(event["name"], event["args"].get("provider")) for event in events if event.get("cat") == "Node"}
    return sum(provider not in {None, PROVIDER} for _, provider in nodes)


def _fetch(binding: Any) -> list[np.ndarray]:
    return list(binding.copy_outputs_to_cpu())


def _precision(session: Any) -> str:
    """Of the first floating-point output, or input where no output is one: the runtime does not tell more."""
    types = [value.type for value in (*session.get_outputs(), *session.get_inputs())]
    return next((_PRECISIONS[kind] for kind in types if kind in _PRECISIONS), types[0])


COMPILER = Compiler(
    name="onnxruntime",
    summary="ONNX Runtime's CPU provider",
    forms={"onnx": ("ngbkit.compilers.onnxruntime_runtime",)},
    packages=("onnxruntime",),
    install="pip install 'ngbkit[onnxruntime]'",
    compile=compile,
    options={
        "optimization": Option(
            default="all",
            help="how far the graph is optimised when it is loaded",
            choices=tuple(_LEVELS),
        ),
        "spinning": Option(
            default=False,
            help="let idle worker threads spin, ONNX Runtime's own default; it disturbs whatever is measured beside it",
            choices=(False, True),
        ),
    },
    refusals=REFUSALS,
)
