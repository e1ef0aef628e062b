"""Apache TVM's Relax for the CPU, untuned: the default schedules, for this machine's instruction set."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import onnx_graph
from ngbkit.compilers.base import Compiler, Program, Task
from ngbkit.records import Contract

if TYPE_CHECKING:
    import numpy as np


def compile(task: Task) -> Program:
    """Import the ONNX file of `task` into Relax and build it with LLVM for this machine."""
    # The thread pool reads both when it starts, and knows no other way to be told. Left to itself it pins its threads
    # to the machine's first cores, whichever this process may use.
    os.environ["TVM_NUM_THREADS"], os.environ["TVM_BIND_THREADS"] = str(task.threads), "0"
    from ngbkit.compilers.tvm_runtime import from_onnx, onnx, relax, tvm

    model = onnx.load(str(task.onnx))
    imported = from_onnx(model)
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": task.threads})
    call = relax.VirtualMachine(tvm.compile(imported, target=target), tvm.cpu())["main"]

    arrays = {spec.name: array for spec, array in zip(task.inputs, task.arrays, strict=True)}
    inputs = [tvm.runtime.tensor(arrays[value.name]) for value in model.graph.input if value.name in arrays]
    return Program(
        run=lambda: call(*inputs),
        fetch=_fetch,
        contract=Contract(
            runtime="tvm relax VM, llvm",
            precision=_precision(onnx, model),
            threads=tvm.get_global_func("runtime.NumThreads")(),
            notes="untuned",
        ),
        facts={"target": str(target)},
        explain=lambda: _explain(task, target),
    )


def _explain(task: Task, target: Any) -> dict[str, Any]:
    """What the virtual machine calls, from the module lowered once more: the built one no longer tells."""
    from ngbkit.compilers.tvm_runtime import from_onnx, onnx, relax

    assert task.onnx is not None
    with target:
        lowered = relax.get_default_pipeline(target)(from_onnx(onnx.load(str(task.onnx))))
    called: list[str] = []

    def visit(expression: Any) -> None:
        if isinstance(expression, relax.Call):
            name = getattr(expression.op, "name_hint", None) or getattr(expression.op, "global_symbol", None)
            # Memory and checks are the machine's own business, and so is every operator that it has built in.
            if name and (name == "vm.builtin.reshape" or not name.startswith("vm.builtin.")):
                called.append(name)

    relax.analysis.post_order_visit(lowered["main"], visit)
    return {
        "nodes_before": len(onnx_graph.read_operators(task.onnx)),
        "nodes_after": len(called),
        "nodes_fused": sum(name.startswith("fused_") for name in called),
    }


def _fetch(outputs: Any) -> list[np.ndarray]:
    """One tensor, or the tensors of a nested tuple in order."""
    if hasattr(outputs, "numpy"):
        return [outputs.numpy()]
    return [array for part in outputs for array in _fetch(part)]


def _precision(onnx: Any, model: Any) -> str:
    """Of the first floating-point output, or input where no output is one; TVM computes in the types of the graph."""
    kinds = onnx.TensorProto
    names = {kinds.FLOAT: "f32", kinds.DOUBLE: "f64", kinds.FLOAT16: "f16", kinds.BFLOAT16: "bf16"}
    found = [value.type.tensor_type.elem_type for value in (*model.graph.output, *model.graph.input)]
    return next((names[kind] for kind in found if kind in names), kinds.DataType.Name(found[0]).lower())


COMPILER = Compiler(
    name="tvm",
    summary="Apache TVM (Relax, LLVM), compiled and not tuned",
    forms={"onnx": ("ngbkit.compilers.tvm_runtime",)},
    packages=("apache-tvm", "apache-tvm-ffi", "onnx"),
    install="pip install 'ngbkit[tvm]'",
    compile=compile,
    refusals=(
        r"^Op(NotImplemented|AttributeUnImplemented|AttributeInvalid|AttributeRequired)",
        r"^NotImplementedError",
        r"operators are not supported for frontend",
        r"^ValueError: .*([Uu]nsupported|[Nn]ot (yet )?supported)",
    ),
)
