"""Apache TVM's Relax on a CPU or a CUDA GPU: with its default schedules, or tuned by MetaSchedule."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import onnx_graph
from ngbkit.compilers.base import Compiler, Option, Program, Task, always
from ngbkit.errors import UsageError
from ngbkit.sweep.records import Contract

if TYPE_CHECKING:
    import numpy as np

    from ngbkit.compilers.tvm_relax.library import Library
    from ngbkit.compilers.tvm_relax.network import Network

_BUDGET = ("trials", "early_stop", "total", "seconds")
# Its CUDA code is compiled by NVRTC, which comes apart from it, with headers of the CUDA toolkit.
_PROBE = """
from ngbkit.compilers.tvm_runtime import tvm
from tvm.support import nvcc
if not tvm.cuda(0).exist:
    print("TVM finds no CUDA GPU: this build of apache-tvm has no CUDA, or does not fit the driver")
else:
    try:
        nvcc.compile_cuda('extern "C" __global__ void nothing() {}', "cubin", "sm_80")
    except Exception as error:
        why = str(error).splitlines()[0]
        print(
            f"TVM cannot compile for CUDA ({why}): it needs NVIDIA's CUDA toolkit, with CUDA_PATH set to its folder, "
            "and: pip install cuda-bindings"
        )
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A library, and what is to be said of it."""

    library: Library
    facts: Mapping[str, Any]
    notes: str
    reused_s: float = 0.0


def compile(task: Task) -> Program:
    """Build the ONNX file of `task` with Relax, or load what is kept of it."""
    budget = _budget(task.options)
    # The thread pool reads both when it starts, and knows no other way to be told. Left to itself it pins its threads
    # to the machine's first cores, whichever this process may use.
    os.environ["TVM_NUM_THREADS"], os.environ["TVM_BIND_THREADS"] = str(task.threads), "0"
    from ngbkit.compilers.tvm_relax import targets
    from ngbkit.compilers.tvm_relax.network import Network
    from ngbkit.compilers.tvm_runtime import tvm

    assert task.onnx is not None
    network = Network.read(task.onnx)
    target = targets.find_target(task.accelerator, task.threads)
    made = (_tuned if tunes(task.options) else _untuned)(task, network, target, budget)

    device = targets.find_device(task.accelerator)
    arrays = {spec.name: array for spec, array in zip(task.inputs, task.arrays, strict=True)}
    names = network.input_names(list(arrays))
    call = made.library.bind([tvm.runtime.tensor(arrays[name], device) for name in names])
    gpu = task.accelerator == "cuda"
    run = _waiting(call, device.sync) if gpu else call
    if gpu:
        run()  # kernels are compiled from CUDA's C++ and loaded when they are first called: that is compile time
    return Program(
        run=run,
        fetch=_fetch,
        contract=Contract(
            runtime=f"tvm relax VM, {target.kind.name}",
            precision=network.precision(),
            threads=tvm.get_global_func("runtime.NumThreads")(),
            transfers="excluded" if gpu else "none",
            # TVM has NVRTC approximate divisions, roots and exponentials, and cannot be told not to.
            notes=f"{made.notes}, fast math" if gpu else made.notes,
        ),
        facts={"target": str(target), **made.facts},
        explain=lambda: _explain(task, made.library),
        enqueue=call if gpu else None,
        reused_s=made.reused_s,
    )


def tunes(options: Mapping[str, Any]) -> bool:
    """Whether any of the options sets a budget for tuning."""
    return any(options[name] > 0 for name in _BUDGET)


def _budget(options: Mapping[str, Any]) -> dict[str, float]:
    budget = {name: options[name] for name in _BUDGET}
    for name, value in budget.items():
        if not 0 <= value < float("inf"):
            raise UsageError(f"tvm option {name}={value!r} does not fit; valid: 0 or more ({_OPTIONS[name].help}).")
    return budget


def _untuned(task: Task, network: Network, target: Any, budget: Mapping[str, float]) -> _Made:
    from ngbkit.compilers.tvm_relax import library, lowering, targets
    from ngbkit.compilers.tvm_relax.store import Subject

    del budget
    device = targets.find_device(task.accelerator)
    folder = task.cache / "tvm" / _subject(Subject, task, network, target, {}).key
    hit = library.is_kept(folder)
    if hit:
        made = library.load(folder, device)
    else:
        lowered = lowering.generate_code(lowering.fuse_default(network.import_relax(), target), target)
        kept = library.keep(lowered, folder, {})
        made = library.load(folder, device) if kept else library.take(lowered, {}, device)
    return _Made(library=made, facts={"cache": "hit" if hit else "miss"}, notes="untuned")


def _tuned(task: Task, network: Network, target: Any, budget: Mapping[str, float]) -> _Made:
    from ngbkit.compilers.tvm_relax.store import Store, Subject
    from ngbkit.compilers.tvm_relax.tuned import Workshop

    store = Store(task.tuning.folder / "tvm", _subject(Subject, task, network, target, budget))
    tuned = Workshop(
        network=network,
        target=target,
        accelerator=task.accelerator,
        threads=task.threads,
        store=store,
        tuning=task.tuning,
    ).make()
    return _Made(
        library=tuned.library,
        facts=tuned.facts,
        notes=f"tuned, {tuned.candidates} candidates",
        reused_s=tuned.reused_s,
    )


def _subject(make: Callable[..., Any], task: Task, network: Network, target: Any, budget: Mapping[str, float]) -> Any:
    from ngbkit.compilers.tvm_relax import targets

    return make(
        network=network.digest(),
        batch_size=task.batch_size,
        target=str(target),
        versions=targets.versions(),
        budget=budget,
    )


def _waiting(call: Callable[[], Any], wait: Callable[[], None]) -> Callable[[], Any]:
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
    """One tensor, or the tensors of a nested tuple in order."""
    if hasattr(outputs, "numpy"):
        return [outputs.numpy()]
    return [array for part in outputs for array in _fetch(part)]


def _probe_cuda() -> str:
    from ngbkit.hardware.accelerators import cuda

    return cuda.lacks("tvm", _PROBE)


_OPTIONS = {
    "trials": Option(default=0, help="candidates to try for each function of the network at most; 0: no limit"),
    "early_stop": Option(
        default=0, help="give a function up after so many candidates that were no better; 0: go on to the end"
    ),
    "total": Option(default=0, help="candidates to try for the whole network at most; 0: no limit"),
    "seconds": Option(default=0.0, help="how long to tune the whole network at most, in seconds; 0: no limit"),
}

COMPILER = Compiler(
    name="tvm",
    summary="Apache TVM (Relax), untuned unless one of its options says how long to tune",
    forms={"onnx": ("ngbkit.compilers.tvm_runtime",)},
    packages=("apache-tvm", "apache-tvm-ffi", "onnx"),
    install="pip install 'ngbkit[tvm]'",
    compile=compile,
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
