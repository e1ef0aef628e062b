"""ExecuTorch on the CPU: a module exported ahead of time, delegated to XNNPACK as far as XNNPACK supports it."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.compilers.torch_runtime import feed, map_memory
from ngbkit.registry import find_version
from ngbkit.sweep.records import Contract
from ngbkit.workloads.export import to_tensor

if TYPE_CHECKING:
    import numpy as np
    import torch

_PACKAGES = ("executorch", "torch")
# Of the files in the cache: the description of a program is beside it.
_LAYOUT = "2"
_PRECISIONS = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}


def compile(task: Task) -> Program:
    """Export and lower the module of `task`, unless the cache has its program, then load it and bind its inputs."""
    from executorch.extension.pybindings import portable_lib

    if task.module is None:
        raise ValueError("invalid task: got form 'module' without a module; expected a module.")
    inputs = tuple(map(to_tensor, task.arrays))
    path = _build_path(task)
    hit = path.exists()
    if not hit:
        _build(task, inputs, path)
    metadata = json.loads(path.with_suffix(".json").read_text())

    # All programs of a process share one thread pool, which includes the calling thread.
    portable_lib._unsafe_reset_threadpool(task.threads)
    loaded = portable_lib._load_program(str(path))
    method = loaded.load_method("forward")
    method.set_inputs(inputs)

    def run() -> Any:
        method.execute()
        return loaded, method

    return Program(
        run=run,
        fetch=lambda outputs: _fetch(outputs[1]),
        contract=Contract(
            runtime="executorch XNNPACK",
            precision=metadata["precision"],
            threads=portable_lib._threadpool_get_thread_count(),
        ),
        facts={
            "cache": "hit" if hit else "miss",
            "delegates": metadata["delegates"],
            "program_bytes": path.stat().st_size,
        },
        explain=lambda: {"nodes_before": metadata["operators"], **_explain(path, inputs)},
        feed=partial(feed, inputs),
        memory=[[map_memory(tensor)] for tensor in inputs],
    )


def _build_path(task: Task) -> Path:
    """Build the path of the exported program in the cache of this network and its weights."""
    shapes = [f"{array.dtype}{array.shape}" for array in task.arrays]
    packages = (f"{package} {find_version(package)}" for package in _PACKAGES)
    components = [_LAYOUT, *shapes, json.dumps(dict(task.options), sort_keys=True), *packages]
    name = hashlib.blake2b("\n".join(components).encode(), digest_size=16).hexdigest()
    return task.cache / "executorch" / f"{name}.pte"


def _build(task: Task, inputs: tuple[torch.Tensor, ...], path: Path) -> None:
    """Export, lower and write the program, as ExecuTorch's own example for XNNPACK does."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.utils.configs import get_transform_passes
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
    from executorch.exir.passes import MemoryPlanningPass

    assert task.module is not None
    with torch.no_grad():
        exported = torch.export.export(task.module, inputs)
    lowered = to_edge_transform_and_lower(
        exported,
        transform_passes=get_transform_passes(),
        partitioner=[XnnpackPartitioner(per_op_mode=task.options["partition"] == "operators")],
        compile_config=EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=True),
    )
    # Memory planned for an input is reused after it is read, so the input would be valid for one call only.
    planning = MemoryPlanningPass(alloc_graph_input=False)
    program = lowered.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    metadata = {
        "operators": sum(_is_operator(node) for node in exported.graph.nodes),
        "precision": _find_precision(task.module),
        "delegates": len(program.executorch_program.execution_plan[0].delegates),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        program_path, metadata_path = Path(folder, "network.pte"), Path(folder, "network.json")
        with program_path.open("wb") as stream:
            program.write_to_file(stream)
        metadata_path.write_text(json.dumps(metadata))
        metadata_path.replace(path.with_suffix(".json"))
        program_path.replace(path)  # last of all: if it exists, the program is complete


def _is_operator(node: Any) -> bool:
    """Return whether a node of an exported graph is an operator, rather than an input, the output or a tuple access."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") != "getitem"


def _find_precision(module: torch.nn.Module) -> str:
    """Return the precision of the weights: XNNPACK computes in the types of the graph."""
    dtypes = [str(weight.dtype).removeprefix("torch.") for weight in module.parameters() if weight.is_floating_point()]
    return "+".join(sorted({_PRECISIONS.get(dtype, dtype) for dtype in dtypes})) or "f32"


def _fetch(method: Any) -> list[np.ndarray]:
    import torch

    outputs = [value for value in method.get_outputs() if isinstance(value, torch.Tensor)]
    return [(tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy(force=True) for tensor in outputs]


def _explain(path: Path, inputs: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    """Trace one call of a second program: the operators of XNNPACK, and ExecuTorch's own kernels."""
    from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc
    from executorch.extension.pybindings import portable_lib

    program = portable_lib._load_program(str(path), enable_etdump=True)
    method = program.load_method("forward")
    method.set_inputs(inputs)
    method.execute()
    with tempfile.TemporaryDirectory(prefix="ngbkit-trace-") as folder:
        trace = Path(folder, "trace.etdump")
        program.write_etdump_result_to_file(str(trace))
        runs = deserialize_from_etdump_flatcc(trace.read_bytes()).run_data
    return _count([event.profile_event for run in runs for event in run.events or () if event.profile_event])


def _count(events: Sequence[Any]) -> dict[str, Any]:
    """Count the operators in the events of a trace. XNNPACK numbers operators by kind: ``Add (ND) #3``."""
    kernels = [event.name for event in events if event.name and event.name.startswith("native_call_")]
    delegated = [event.delegate_debug_id_str for event in events if event.delegate_debug_id_str]
    calls = sum(event.name == "DELEGATE_CALL" for event in events)
    facts: dict[str, Any] = {
        "delegate_calls": calls,
        "fallbacks": len(kernels),
        "kernels": dict(Counter(name.removeprefix("native_call_") for name in kernels)),
    }
    if calls and not delegated:  # this build's XNNPACK traces nothing
        return facts
    operators = Counter(re.sub(r" #\d+$", "", name) for name in delegated)
    return facts | {"nodes_after": len(kernels) + len(delegated), "operators": dict(operators)}


COMPILER = Compiler(
    name="executorch",
    summary="ExecuTorch with the XNNPACK backend",
    forms={
        "module": (
            "torch",
            "executorch.backends.xnnpack.partition.xnnpack_partitioner",
            "executorch.extension.pybindings.portable_lib",
        )
    },
    packages=_PACKAGES,
    install="pip install 'ngbkit[executorch]'",
    compile=compile,
    caches=True,
    options={
        "partition": Option(
            default="subgraphs",
            help="partition delegated to XNNPACK: the largest supported subgraphs, or single operators",
            choices=("subgraphs", "operators"),
        ),
    },
    refusals=(
        r"^Unsupported:|_dynamo\.exc\.Unsupported",
        r"Missing out variants",
        r"is not (Core|in Core) ATen",
        # Branches or shapes that depend on values.
        r"GuardOnDataDependentSymNode",
        # ExecuTorch's own numbers: NotSupported, NotImplemented, OperatorMissing.
        r"error:? 0x:?1[014]\b",
    ),
)
