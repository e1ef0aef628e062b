"""Apache TVM's Relax on a CPU or a CUDA GPU: with its default schedules, or tuned by MetaSchedule."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import onnx_graph
from ngbkit.compilers.base import Compiler, Option, Program, Task, always
from ngbkit.errors import UsageError
from ngbkit.sweep.records import Contract
from ngbkit.workloads.canonical import Importer

if TYPE_CHECKING:
    import numpy as np

    from ngbkit.compilers.tvm_relax.library import Build, Library
    from ngbkit.compilers.tvm_relax.onnx_network import OnnxNetwork
    from ngbkit.compilers.tvm_relax.tuning_store import Subject

_BUDGET = ("trials", "early_stop", "total", "seconds")
# NVRTC, which compiles TVM's CUDA code, is a separate package and needs headers of the CUDA toolkit.
_PROBE = """
from ngbkit.compilers.tvm_runtime import tvm
from tvm.support import nvcc
if not tvm.cuda(0).exist:
    print("TVM found no CUDA GPU: this build of apache-tvm lacks CUDA, or does not match the driver")
else:
    try:
        nvcc.compile_cuda('extern "C" __global__ void nothing() {}', "cubin", "sm_80")
    except Exception as error:
        reason = str(error).splitlines()[0]
        print(
            f"TVM cannot compile for CUDA ({reason}): it needs NVIDIA's CUDA toolkit, with CUDA_PATH set to its "
            "folder, and: pip install cuda-bindings"
        )
"""


def compile(task: Task) -> Program:
    """Build the ONNX file of `task` with Relax, unless the cache has its library."""
    budget = _read_budget(task.options)
    # The thread pool reads both variables when it starts, and has no other setting for them. By default it pins its
    # threads to the machine's first cores, whichever ones this process may use.
    os.environ["TVM_NUM_THREADS"], os.environ["TVM_BIND_THREADS"] = str(task.threads), "0"
    from ngbkit.compilers.tvm_relax import targets
    from ngbkit.compilers.tvm_relax.onnx_network import OnnxNetwork
    from ngbkit.compilers.tvm_runtime import tvm

    assert task.onnx is not None
    network = OnnxNetwork.read(task.onnx)
    target = targets.find_target(task.accelerator, task.threads)
    if tunes(task.options):
        build = _build_tuned(task, network, target, budget)
    else:
        build = _build_untuned(task, network, target)

    device = targets.find_device(task.accelerator)
    arrays = {spec.name: array for spec, array in zip(task.inputs, task.arrays, strict=True)}
    names = network.list_inputs(list(arrays))
    tensors = {name: tvm.runtime.tensor(arrays[name], device) for name in names}
    call = build.library.bind(list(tensors.values()))
    gpu = task.accelerator == "cuda"
    run = wait_after(call, device.sync) if gpu else call
    if gpu:
        run()  # the first call compiles the kernels from CUDA's C++ and loads them: that is compile time
    return Program(
        run=run,
        fetch=_fetch,
        contract=Contract(
            runtime=f"tvm relax VM, {target.kind.name}",
            precision=network.find_precision() or task.body_precision,
            threads=tvm.get_global_func("runtime.NumThreads")(),
            transfers="excluded" if gpu else "none",
            # TVM makes NVRTC approximate divisions, roots and exponentials, with no option to disable it.
            notes=f"{build.notes}, fast math" if gpu else build.notes,
        ),
        facts={"target": str(target), **build.facts},
        explain=lambda: _explain(task, build.library),
        enqueue=call if gpu else None,
        reused_s=build.reused_s,
        feed=lambda arrays: _feed(task, tensors, arrays),
        memory=[] if gpu else _map_memory(task, tensors),
    )


def _feed(task: Task, tensors: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> None:
    """Copy values over those that the program reads; it has no tensor for an input that nothing reads."""
    for spec, array in zip(task.inputs, arrays, strict=True):
        if spec.name in tensors:
            tensors[spec.name].copyfrom(array)


def _map_memory(task: Task, tensors: Mapping[str, Any]) -> list[list[np.ndarray]]:
    """Map the memory of the inputs; none if NumPy lacks the type of one."""
    import numpy as np

    try:
        memory = [
            np.from_dlpack(tensors[spec.name]) if spec.name in tensors else array
            for spec, array in zip(task.inputs, task.arrays, strict=True)
        ]
    except (BufferError, RuntimeError, TypeError):
        return []
    # NumPy before 2.2.5 maps it read-only.
    views = [{**array.__array_interface__, "data": (array.ctypes.data, False)} for array in memory]
    return [[np.asarray(SimpleNamespace(__array_interface__=view, base=memory))] for view in views]


def tunes(options: Mapping[str, Any]) -> bool:
    """Return whether any of the options sets a budget for tuning."""
    return any(options[name] > 0 for name in _BUDGET)


def _read_budget(options: Mapping[str, Any]) -> dict[str, float]:
    budget = {name: options[name] for name in _BUDGET}
    for name, value in budget.items():
        if not 0 <= value < float("inf"):
            raise UsageError(
                f"invalid option {name} of tvm: got {value!r}; expected 0 or more ({_OPTIONS[name].help})."
            )
    return budget


def _build_untuned(task: Task, network: OnnxNetwork, target: Any) -> Build:
    from ngbkit.compilers.tvm_relax import library, lowering, targets

    device = targets.find_device(task.accelerator)
    folder = task.cache / "tvm" / _build_subject(task, network, target, {}).key
    hit = library.exists(folder)
    if hit:
        built = library.load(folder, device)
    else:
        lowered = lowering.generate_code(lowering.fuse_default(network.import_relax(), target), target)
        saved = library.save(lowered, folder, {})
        built = library.load(folder, device) if saved else library.from_lowered(lowered, {}, device)
    return library.Build(library=built, facts={"cache": "hit" if hit else "miss"}, notes="untuned")


def _build_tuned(task: Task, network: OnnxNetwork, target: Any, budget: Mapping[str, float]) -> Build:
    from ngbkit.compilers.tvm_relax.tuned import Tuner
    from ngbkit.compilers.tvm_relax.tuning_store import TuningStore

    subject = _build_subject(task, network, target, budget)
    return Tuner(
        network=network,
        target=target,
        accelerator=task.accelerator,
        threads=task.threads,
        store=TuningStore(task.tuning.folder / "tvm", subject),
        folder=task.cache / "tvm" / subject.key,
        tuning=task.tuning,
    ).load_or_tune()


def _build_subject(task: Task, network: OnnxNetwork, target: Any, budget: Mapping[str, float]) -> Subject:
    from ngbkit.compilers.tvm_relax import targets
    from ngbkit.compilers.tvm_relax.tuning_store import Subject

    return Subject(
        network=network.digest(),
        batch_size=task.batch_size,
        target=str(target),
        versions=targets.list_versions(),
        budget=budget,
    )


def wait_after(call: Callable[[], Any], wait: Callable[[], None]) -> Callable[[], Any]:
    def run() -> Any:
        outputs = call()
        wait()
        return outputs

    return run


def _explain(task: Task, library: Library) -> dict[str, Any]:
    assert task.onnx is not None
    return {
        "nodes_before": len(onnx_graph.read_operators(task.onnx)),
        "nodes_after": len(library.calls),
        "nodes_fused": sum(name.startswith("fused_") for name in library.calls),
    }


def _fetch(outputs: Any) -> list[np.ndarray]:
    """Flatten one tensor, or the tensors of a nested tuple, to arrays in order."""
    if hasattr(outputs, "numpy"):
        return [outputs.numpy()]
    return [array for output in outputs for array in _fetch(output)]


def _probe_cuda() -> str:
    from ngbkit.hardware.accelerators import cuda

    return cuda.find_problem("tvm", _PROBE)


_OPTIONS = {
    "trials": Option(default=0, help="most candidates to try per function of the network; 0: no limit"),
    "early_stop": Option(
        default=0, help="stop tuning a function after this many candidates without improvement; 0: never"
    ),
    "total": Option(default=0, help="most candidates to try for the whole network; 0: no limit"),
    "seconds": Option(default=0.0, help="most seconds to tune the whole network; 0: no limit"),
}

COMPILER = Compiler(
    name="tvm",
    summary="Apache TVM (Relax), untuned unless an option sets a tuning budget",
    forms={"onnx": ("ngbkit.compilers.tvm_runtime",)},
    packages=("apache-tvm", "apache-tvm-ffi", "onnx"),
    install="pip install 'ngbkit[tvm]'",
    compile=compile,
    importer=Importer(folds=True),
    accelerators={"cpu": always, "cuda": _probe_cuda},
    options=_OPTIONS,
    tunes=tunes,
    caches=True,
    refusals=(
        r"^Op(NotImplemented|AttributeUnImplemented|AttributeInvalid|AttributeRequired)",
        r"^NotImplementedError",
        r"operators are not supported for frontend",
        r"^ValueError: .*([Uu]nsupported|[Nn]ot (yet )?supported)",
    ),
)
