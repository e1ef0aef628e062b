"""ONNX Runtime, from an ONNX file, on the CPU or on an NVIDIA GPU."""

from __future__ import annotations

from functools import partial
from typing import Any

from ngbkit.compilers import nvidia, onnx_graph
from ngbkit.compilers import onnxruntime_session as strict
from ngbkit.compilers.base import Compiler, Option, Program, Task, always
from ngbkit.compilers.onnxruntime_session import CPU, Provider
from ngbkit.compilers.profiles import onnxruntime as profiler
from ngbkit.errors import UnsupportedError
from ngbkit.registry import find_version
from ngbkit.sweep.records import Contract

CUDA_PROVIDER = "CUDAExecutionProvider"
RUNTIME = f"onnxruntime {CPU.name}"
REFUSALS = (
    r"is not a registered function/op",
    r"No Op registered for",
    r"^NotImplemented:|NOT_IMPLEMENTED",
    r"Could not find an implementation for",
    # A CUDA graph cannot include nodes on the CPU or control flow.
    r"cannot use the graph capture feature",
)
#: The installed distribution of ``import onnxruntime``: the one with CUDA has another name.
PACKAGE = next((name for name in ("onnxruntime-gpu", "onnxruntime") if find_version(name)), "onnxruntime")
GPU_INSTALL = "pip uninstall onnxruntime; pip install 'onnxruntime-gpu[cuda,cudnn]'"

_LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "off": "ORT_DISABLE_ALL",
}
# Branches run at a time: networks rarely have more, and each takes a thread from the operators.
_BRANCHES = 2


def compile(task: Task) -> Program:
    """Open the ONNX file of `task` with its options, and never on the CPU in place of an unavailable GPU."""
    options = task.options
    return open_program(
        task,
        str(options["optimization"]),
        spinning=bool(options["spinning"]),
        execution=str(options["execution"]),
        precision=str(options["precision"]),
        cuda_graph=bool(options["cuda_graph"]),
    )


def open_program(
    task: Task,
    optimization: str,
    runtime: str = RUNTIME,
    *,
    spinning: bool = False,
    execution: str = "sequential",
    precision: str = "f32",
    cuda_graph: bool = False,
) -> Program:
    """Open a session on the ONNX file of `task` and bind inputs and outputs; `runtime` is its name on the CPU."""
    notes = "idle threads spin" if spinning else ""
    if task.accelerator != "cpu":
        if execution != "sequential":
            raise UnsupportedError(
                f"invalid option execution: got {execution!r} on {task.accelerator}; it is for the CPU. Leave it out."
            )
        return _open_gpu_program(task, optimization, runtime, spinning, precision, cuda_graph)
    if precision != "f32" or cuda_graph:
        option = f"precision={precision!r}" if precision != "f32" else "cuda_graph=True"
        raise UnsupportedError(f"{option} is for an NVIDIA GPU, but this device's accelerator is the CPU")
    session = strict.open_session(_get_file(task), make_settings(task.threads, optimization, spinning, execution), CPU)
    run, fetch = strict.build_cpu_calls(session, task)
    if execution == "parallel":
        notes = "; ".join(filter(None, (notes, f"{_BRANCHES} operators at a time")))
    return Program(
        run=run,
        fetch=fetch,
        contract=Contract(
            runtime=runtime, precision=strict.find_precision(session, task), threads=task.threads, notes=notes
        ),
        facts={"provider": CPU.name, "optimization": optimization},
        explain=lambda: strict.explain(
            task,
            make_settings(task.threads, optimization, spinning, execution),
            CPU,
            lambda session: strict.build_cpu_calls(session, task)[0],
        ),
        feed=strict.find_feed(task),
        memory=strict.find_memory(task),
        profile=lambda: profiler.open_profiler(task, make_settings(task.threads, optimization, spinning, execution)),
    )


def _open_gpu_program(
    task: Task, optimization: str, runtime: str, spinning: bool, precision: str, cuda_graph: bool
) -> Program:
    from ngbkit.compilers.onnxruntime_runtime import preload_cuda
    from ngbkit.hardware.accelerators.cuda import Driver

    driver = Driver()
    nvidia.check_precision(precision, driver)
    preload_cuda()
    stream = driver.stream.value or 0
    provider = build_cuda_provider(stream, precision, cuda_graph=cuda_graph)
    session = strict.open_session(_get_file(task), make_settings(task.threads, optimization, spinning), provider)
    return strict.build_gpu_program(
        task,
        session,
        driver,
        Contract(
            runtime=runtime.replace(CPU.name, CUDA_PROVIDER),
            precision="tf32" if precision == "tf32" else strict.find_precision(session, task),
            threads=task.threads,
            transfers="excluded",
            notes="; ".join(
                filter(None, ("idle threads spin" if spinning else "", "CUDA graph" if cuda_graph else ""))
            ),
        ),
        {"provider": CUDA_PROVIDER, "optimization": optimization},
        # No node of a captured graph shows in a profile.
        lambda: strict.explain(
            task,
            make_settings(task.threads, optimization, spinning),
            build_cuda_provider(stream, precision),
            lambda session: partial(session.run_with_iobinding, strict.bind_on_gpu(session, task, driver).binding),
        ),
        waits=cuda_graph,  # the replay of a graph ends with a wait, whatever the run's options say (1.31)
    )


def build_cuda_provider(stream: int, precision: str = "f32", *, cuda_graph: bool = False) -> Provider:
    """Build the CUDA provider on the first GPU, on a stream."""
    from ngbkit.compilers.onnxruntime_runtime import find_load_error

    def explain_absence() -> str:
        problem = find_load_error()
        return f"{problem or 'its own log has the reason'}; install with: {GPU_INSTALL}"

    return Provider(
        name=CUDA_PROVIDER,
        options={
            "device_id": "0",
            "user_compute_stream": str(stream),
            # Try all algorithms once, before anything is timed; the other modes guess.
            "cudnn_conv_algo_search": "EXHAUSTIVE",
            "use_tf32": str(int(precision == "tf32")),
            "enable_cuda_graph": str(int(cuda_graph)),
        },
        reason=explain_absence,
    )


def make_settings(threads: int, optimization: str, spinning: bool, execution: str = "sequential") -> Any:
    """Build the ``SessionOptions`` of so many threads in all; the calling thread works in both of the two pools."""
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    if execution == "parallel":
        if threads < _BRANCHES:
            raise UnsupportedError(
                f"execution='parallel' needs {_BRANCHES} threads, but this device has {threads}: "
                "give it more in the devices file, or use execution='sequential'"
            )
        settings.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
        settings.intra_op_num_threads, settings.inter_op_num_threads = threads - _BRANCHES + 1, _BRANCHES
    settings.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[optimization])
    # Threads that spin between two calls would be timed with whatever else the group runs in that pause.
    for pool in ("intra", "inter"):
        settings.add_session_config_entry(f"session.{pool}_op.allow_spinning", str(int(spinning)))
    return settings


def _get_file(task: Task) -> Any:
    if task.onnx is None:
        raise ValueError("invalid task: got form 'onnx' without a file; expected a file.")
    return task.onnx


def probe_cuda() -> str:
    """Return the reason why ONNX Runtime cannot use a GPU here, or ``""``."""
    return nvidia.find_problem("onnxruntime", __name__)


def diagnose() -> str:
    """Return the reason why the CUDA provider does not load in this process, or ``""``."""
    from onnx import TensorProto, helper

    from ngbkit.compilers.onnxruntime_runtime import onnxruntime, preload_cuda

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "smallest", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    preload_cuda()
    provider = build_cuda_provider(0)
    try:
        strict.open_session(model.SerializeToString(), onnxruntime.SessionOptions(), provider)
    except UnsupportedError as error:
        return str(error)
    return ""


COMPILER = Compiler(
    name="onnxruntime",
    summary="ONNX Runtime: its CPU provider, and its CUDA provider on an NVIDIA GPU",
    forms={"onnx": ("ngbkit.compilers.onnxruntime_runtime",)},
    packages=(PACKAGE,),
    distribution=PACKAGE,
    beside=onnx_graph.PACKAGES,
    numpy_2="1.19",
    limits=(
        r"max supported IR version: (?P<most_ir>\d+)",
        r"support for domain ai\.onnx is till opset (?P<most_opset>\d+)",
    ),
    install="pip install 'ngbkit[onnxruntime]'",
    compile=compile,
    accelerators={"cpu": always, "cuda": probe_cuda},
    options={
        "optimization": Option(
            default="all",
            help="level of graph optimisation at load time",
            choices=tuple(_LEVELS),
        ),
        "spinning": Option(
            default=False,
            help="let idle worker threads spin, ONNX Runtime's own default; this disturbs measurements beside it",
            choices=(False, True),
        ),
        "execution": Option(
            default="sequential",
            help="on a CPU: run one operator at a time, or two branches of the graph in parallel on the same threads",
            choices=("sequential", "parallel"),
        ),
        "precision": Option(
            default="f32",
            help="on a GPU: precision of convolutions and matrix products; ONNX Runtime's own default is tf32",
            choices=("f32", "tf32"),
        ),
        "cuda_graph": Option(
            default=False,
            help="on a GPU: record the kernel launches once and replay them; timed by the host's clock",
            choices=(False, True),
        ),
    },
    refusals=REFUSALS,
)
