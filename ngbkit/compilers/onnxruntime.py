"""ONNX Runtime from an ONNX file, on the CPU or on an NVIDIA GPU."""

from __future__ import annotations

from typing import Any

from ngbkit.compilers import onnxruntime_session as strict
from ngbkit.compilers.base import Compiler, Option, Program, Task, always
from ngbkit.compilers.onnxruntime_session import CPU, Provider
from ngbkit.errors import UnsupportedError
from ngbkit.registry import version
from ngbkit.sweep.records import Contract

CUDA_PROVIDER = "CUDAExecutionProvider"
RUNTIME = f"onnxruntime {CPU.name}"
REFUSALS = (
    r"is not a registered function/op",
    r"No Op registered for",
    r"^NotImplemented:|NOT_IMPLEMENTED",
    r"Could not find an implementation for",
    # A node on the CPU, or one that decides what comes next, cannot be in a CUDA graph.
    r"cannot use the graph capture feature",
)
#: The distribution that brings ``import onnxruntime`` here: the one with CUDA has a name of its own.
PACKAGE = next((name for name in ("onnxruntime-gpu", "onnxruntime") if version(name)), "onnxruntime")
GPU_INSTALL = "pip uninstall onnxruntime; pip install 'onnxruntime-gpu[cuda,cudnn]'"

_LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "off": "ORT_DISABLE_ALL",
}
# Two branches of a graph at a time: its networks rarely have more, and each takes a thread from within the operators.
_BRANCHES = 2
_TF32_SINCE = (8, 0)


def compile(task: Task) -> Program:
    """Open the ONNX file of `task` with the options that were asked for.

    Raises
    ------
    UnsupportedError
        The GPU, or what was asked of it, cannot be had: never is the CPU taken in its place.
    """
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
    """A session on the ONNX file of `task` at a level of graph optimisation, with inputs and outputs bound.

    Parameters
    ----------
    task
        Its accelerator is what the session runs on.
    optimization, spinning, execution, precision, cuda_graph
        As the options of the same names.
    runtime
        What the contract calls it on the CPU; on a GPU the provider's name stands in the place of the CPU's.

    Raises
    ------
    UnsupportedError
        One of these is not for this accelerator, or the accelerator's provider does not come.
    """
    notes = "idle threads spin" if spinning else ""
    if task.accelerator != "cpu":
        if execution != "sequential":
            raise UnsupportedError(f"execution={execution!r} is for the CPU, and {task.accelerator} is not one")
        return _open_on_gpu(task, optimization, runtime, spinning, precision, cuda_graph)
    if precision != "f32" or cuda_graph:
        asked = f"precision={precision!r}" if precision != "f32" else "cuda_graph=True"
        raise UnsupportedError(f"{asked} is for an NVIDIA GPU, and this device's accelerator is the CPU")
    session = strict.open_session(_file(task), make_settings(task, optimization, spinning, execution), CPU)
    run, fetch = strict.run_on_cpu(session, task)
    if execution == "parallel":
        notes = "; ".join(filter(None, (notes, f"{_BRANCHES} operators at a time")))
    return Program(
        run=run,
        fetch=fetch,
        contract=Contract(runtime=runtime, precision=strict.precision(session), threads=task.threads, notes=notes),
        facts={"provider": CPU.name, "optimization": optimization},
        explain=lambda: strict.explain(
            task,
            make_settings(task, optimization, spinning, execution),
            CPU,
            lambda session: strict.bind_on_cpu(session, task),
        ),
    )


def _open_on_gpu(
    task: Task, optimization: str, runtime: str, spinning: bool, precision: str, cuda_graph: bool
) -> Program:
    from ngbkit.compilers.onnxruntime_runtime import preload_cuda
    from ngbkit.hardware.accelerators.cuda import Driver

    driver = Driver()
    capability = driver.compute_capability
    if precision == "tf32" and capability < _TF32_SINCE:
        raise UnsupportedError(
            f"tf32 needs compute capability {_TF32_SINCE[0]}.{_TF32_SINCE[1]}, and {driver.name} has "
            f"{capability[0]}.{capability[1]}: ask for precision f32"
        )
    preload_cuda()
    stream = driver.stream.value or 0
    provider = cuda_provider(stream, precision, cuda_graph=cuda_graph)
    session = strict.open_session(_file(task), make_settings(task, optimization, spinning), provider)
    return strict.gpu_program(
        task,
        session,
        driver,
        Contract(
            runtime=runtime.replace(CPU.name, CUDA_PROVIDER),
            precision="tf32" if precision == "tf32" else strict.precision(session),
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
            make_settings(task, optimization, spinning),
            cuda_provider(stream, precision),
            lambda session: strict.bind_on_gpu(session, task, driver)[0],
        ),
        waits=cuda_graph,  # the replay of a graph ends with a wait, whatever the run's options say (1.31)
    )


def cuda_provider(stream: int, precision: str = "f32", *, cuda_graph: bool = False) -> Provider:
    """The CUDA provider on the first GPU, on that stream."""
    from ngbkit.compilers.onnxruntime_runtime import find_unloadable

    def reason() -> str:
        problem = find_unloadable()
        return f"{problem or 'its own log says why'}; it comes by: {GPU_INSTALL}"

    return Provider(
        name=CUDA_PROVIDER,
        options={
            "device_id": "0",
            "user_compute_stream": str(stream),
            # By trying them all, once, before anything is timed; its other ways guess.
            "cudnn_conv_algo_search": "EXHAUSTIVE",
            "use_tf32": str(int(precision == "tf32")),
            "enable_cuda_graph": str(int(cuda_graph)),
        },
        reason=reason,
    )


def make_settings(task: Task, optimization: str, spinning: bool, execution: str = "sequential") -> Any:
    """The ``SessionOptions`` of a session that works with `task.threads` threads in all.

    The thread that calls works as well, and so does every thread of either pool but one: the total is what both are
    given, less one.

    Raises
    ------
    UnsupportedError
        Branches are to run in parallel, and there is one thread.
    """
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = task.threads, 1
    if execution == "parallel":
        if task.threads < _BRANCHES:
            raise UnsupportedError(
                f"execution='parallel' needs {_BRANCHES} threads, and this device has {task.threads}: "
                "give it more in the devices file, or run sequentially"
            )
        settings.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
        settings.intra_op_num_threads, settings.inter_op_num_threads = task.threads - _BRANCHES + 1, _BRANCHES
    settings.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[optimization])
    # Threads that spin between two calls would be timed with whatever else the group runs in that pause.
    for pool in ("intra", "inter"):
        settings.add_session_config_entry(f"session.{pool}_op.allow_spinning", str(int(spinning)))
    return settings


def _file(task: Task) -> Any:
    if task.onnx is None:
        raise ValueError("a task of the form 'onnx' came without a file.")
    return task.onnx


def lacks_cuda() -> str:
    """Why ONNX Runtime cannot use a GPU here, or ``""``."""
    from ngbkit.hardware.accelerators import cuda

    return cuda.lacks("onnxruntime", f"from {__name__} import diagnose; print(diagnose(), end='')")


def diagnose() -> str:
    """Why the CUDA provider does not come, found in this very process by asking for it; ``""`` where it does."""
    from onnx import TensorProto, helper

    from ngbkit.compilers.onnxruntime_runtime import onnxruntime, preload_cuda

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "smallest", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    preload_cuda()
    provider = cuda_provider(0)
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
    install="pip install 'ngbkit[onnxruntime]'",
    compile=compile,
    accelerators={"cpu": always, "cuda": lacks_cuda},
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
        "execution": Option(
            default="sequential",
            help="on a CPU: one operator after the other, or two branches of the graph at a time, sharing the threads",
            choices=("sequential", "parallel"),
        ),
        "precision": Option(
            default="f32",
            help="what a GPU computes convolutions and matrix products in; ONNX Runtime itself would take tf32",
            choices=("f32", "tf32"),
        ),
        "cuda_graph": Option(
            default=False,
            help="on a GPU: record the kernels' launches once and replay them; timed by the host's clock",
            choices=(False, True),
        ),
    },
    refusals=REFUSALS,
)
