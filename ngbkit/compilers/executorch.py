"""ExecuTorch on the CPU: a module exported ahead of time, with all that XNNPACK can do delegated to it."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.registry import version
from ngbkit.sweep.records import Contract

if TYPE_CHECKING:
    import numpy as np
    import torch

_PACKAGES = ("executorch", "torch")
_PRECISIONS = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}


def compile(task: Task) -> Program:
    """Export and lower the module of `task`, or take what is kept of that; load it and bind its inputs."""
    import torch
    from executorch.extension.pybindings import portable_lib

    if task.module is None:
        raise ValueError("a task of the form 'module' came without a module.")
    inputs = tuple(torch.tensor(array) for array in task.arrays)
    kept = _name(task)
    hit = kept.exists()
    if not hit:
        _build(task, inputs, kept)
    told = json.loads(kept.with_suffix(".json").read_text())

    # All programs of a process share one pool, of which the thread that calls is a part.
    portable_lib._unsafe_reset_threadpool(task.threads)
    loaded = portable_lib._load_program(str(kept))
    method = loaded.load_method("forward")
    method.set_inputs(inputs)

    def run() -> Any:
        method.execute()
        return loaded, method

    return Program(
        run=run,
        fetch=lambda ran: _fetch(ran[1]),
        contract=Contract(
            runtime="executorch XNNPACK",
            precision=told["precision"],
            threads=portable_lib._threadpool_get_thread_count(),
        ),
        facts={"cache": "hit" if hit else "miss", "delegates": told["delegates"], "program_bytes": kept.stat().st_size},
        explain=lambda: {"nodes_before": told["operators"], **_explain(kept, inputs)},
    )


def _name(task: Task) -> Path:
    """Where the exported program is kept; its folder is this network's own, with these very weights."""
    shapes = [f"{array.dtype}{array.shape}" for array in task.arrays]
    depends = [*shapes, json.dumps(dict(task.options), sort_keys=True), *(f"{one} {version(one)}" for one in _PACKAGES)]
    name = hashlib.blake2b("\n".join(depends).encode(), digest_size=16).hexdigest()
    return task.cache / "executorch" / f"{name}.pte"


def _build(task: Task, inputs: tuple[torch.Tensor, ...], kept: Path) -> None:
    """Export, lower and write the program, in the way of ExecuTorch's own example for XNNPACK."""
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
    # Memory that is planned for an input is given to others once it was read, so that it would hold for one call only.
    planning = MemoryPlanningPass(alloc_graph_input=False)
    program = lowered.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    told = {
        "operators": sum(_computes(node) for node in exported.graph.nodes),
        "precision": _precision(task.module),
        "delegates": len(program.executorch_program.execution_plan[0].delegates),
    }
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        written, beside = Path(folder, "network.pte"), Path(folder, "told.json")
        with written.open("wb") as stream:
            program.write_to_file(stream)
        beside.write_text(json.dumps(told))
        beside.replace(kept.with_suffix(".json"))
        written.replace(kept)  # the last: where it is, all is


def _computes(node: Any) -> bool:
    """Whether a node of an exported graph is an operator, and not an input, the output or a piece of a tuple."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") != "getitem"


def _precision(module: torch.nn.Module) -> str:
    """Of the weights: XNNPACK computes in the types of the graph."""
    dtypes = [str(weight.dtype).removeprefix("torch.") for weight in module.parameters() if weight.is_floating_point()]
    return "+".join(sorted({_PRECISIONS.get(dtype, dtype) for dtype in dtypes})) or "f32"


def _fetch(method: Any) -> list[np.ndarray]:
    import torch

    outputs = [value for value in method.get_outputs() if isinstance(value, torch.Tensor)]
    return [(one.float() if one.dtype is torch.bfloat16 else one).numpy(force=True) for one in outputs]


def _explain(kept: Path, inputs: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    """What a second program like the first traces in one call: XNNPACK's operators, and ExecuTorch's own kernels."""
    from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc
    from executorch.extension.pybindings import portable_lib

    program = portable_lib._load_program(str(kept), enable_etdump=True)
    method = program.load_method("forward")
    method.set_inputs(inputs)
    method.execute()
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        trace = Path(folder, "trace.etdump")
        program.write_etdump_result_to_file(str(trace))
        runs = deserialize_from_etdump_flatcc(trace.read_bytes()).run_data
    return _count([event.profile_event for run in runs for event in run.events if event.profile_event])


def _count(events: Sequence[Any]) -> dict[str, Any]:
    """What was executed, by the events of a trace. XNNPACK's operators are numbered by kind: ``Add (ND) #3``."""
    kernels = [event.name for event in events if event.name and event.name.startswith("native_call_")]
    delegated = [event.delegate_debug_id_str for event in events if event.delegate_debug_id_str]
    calls = sum(event.name == "DELEGATE_CALL" for event in events)
    told: dict[str, Any] = {
        "delegate_calls": calls,
        "fallbacks": len(kernels),
        "kernels": dict(Counter(name.removeprefix("native_call_") for name in kernels)),
    }
    if calls and not delegated:  # a build whose XNNPACK traces nothing
        return told
    operators = Counter(re.sub(r" #\d+$", "", name) for name in delegated)
    return told | {"nodes_after": len(kernels) + len(delegated), "operators": dict(operators)}


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
            help="what XNNPACK is given at a time: the largest parts of a network that it can do, or single operators",
            choices=("subgraphs", "operators"),
        ),
    },
    refusals=(
        r"^Unsupported:|_dynamo\.exc\.Unsupported",
        r"Missing out variants",
        r"is not (Core|in Core) ATen",
        # A branch or a shape that depends on values.
        r"GuardOnDataDependentSymNode",
        # ExecuTorch's own numbers: NotSupported, NotImplemented, OperatorMissing.
        r"error:? 0x:?1[014]\b",
    ),
)
