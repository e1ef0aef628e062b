"""The best use of each compiler that its vendor documents, written by hand and as plainly as the vendor's examples.

Each is a column of a sweep like any other (``onnxruntime-by-hand``), so that it is interleaved with ngbkit's own use of
that compiler. It uses nothing of ``ngbkit.compilers`` but the protocol, so that it cannot repeat a mistake there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ngbkit.compilers.base import Compiler, Form, Program, Task
from ngbkit.sweep.records import Contract

Call = Callable[[], Any]


def _build_compiler(
    name: str, form: Form, build: Callable[[Task], Call], packages: tuple[str, ...], preload: tuple[str, ...] = ()
) -> Compiler:
    def compile(task: Task) -> Program:
        task.cache.mkdir(parents=True, exist_ok=True)
        call = build(task)
        return Program(run=call, fetch=_to_arrays, contract=Contract(runtime=f"{name}, by hand", threads=task.threads))

    return Compiler(
        name=f"{name}-by-hand",
        summary=f"{name} as its vendor documents its best use",
        forms={form: preload or (("torch",) if form == "module" else ())},
        packages=packages,
        install=f"pip install 'ngbkit[{packages[0]}]'",
        compile=compile,
    )


def _to_arrays(outputs: Any) -> list[Any]:
    if isinstance(outputs, dict):
        return _to_arrays(list(outputs.values()))
    if isinstance(outputs, (list, tuple)):
        return [array for output in outputs for array in _to_arrays(output)]
    if hasattr(outputs, "detach"):
        return [outputs.detach().numpy()]
    if hasattr(outputs, "to_host"):
        return [outputs.to_host()]
    return [outputs.numpy() if hasattr(outputs, "numpy") else outputs]


def _prepare_torch(task: Task) -> tuple[Any, tuple[Any, ...]]:
    import torch

    torch.set_num_threads(task.threads)
    return task.module, tuple(torch.from_numpy(array) for array in task.arrays)


def _build_call(module: Any, inputs: tuple[Any, ...]) -> Call:
    import torch

    def call() -> Any:
        with torch.inference_mode():
            return module(*inputs)

    return call


def _compile_identity(task: Task) -> Call:
    """PyTorch's inference mode."""
    return _build_call(*_prepare_torch(task))


def _compile_torchscript(task: Task) -> Call:
    """PyTorch's TorchScript inference recipe: trace, freeze, optimise, two runs to warm the profiling executor up."""
    import torch

    module, inputs = _prepare_torch(task)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        scripted = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(module, inputs)))
    call = _build_call(scripted, inputs)
    call()
    call()
    return call


def _compile_inductor(task: Task) -> Call:
    """PyTorch's `torch.compile`, with the freezing that its page on the CPU backend recommends for inference."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(task.cache)
    import torch
    from torch._inductor import config

    module, inputs = _prepare_torch(task)
    config.freezing = True
    call = _build_call(torch.compile(module), inputs)
    with torch.no_grad():
        call()
    return call


def _compile_aotinductor(task: Task) -> Call:
    """PyTorch's AOTInductor tutorial: export, compile and package, load; frozen, for its CPU backend."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(task.cache)
    import torch
    from torch._inductor import config

    module, inputs = _prepare_torch(task)
    config.freezing = True
    with torch.no_grad():
        exported = torch.export.export(module, inputs)
        package = torch._inductor.aoti_compile_and_package(exported, package_path=str(task.cache / "model.pt2"))
    return _build_call(torch._inductor.aoti_load_package(package), inputs)


def _compile_onnxruntime(task: Task) -> Call:
    """ONNX Runtime's performance page: all optimisations (the default), so many threads, inputs and outputs bound."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = task.threads
    # By default idle threads spin, which would disturb the next turn.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(task.onnx), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for spec, array in zip(task.inputs, task.arrays, strict=True):
        binding.bind_cpu_input(spec.name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name)

    def call() -> Any:
        session.run_with_iobinding(binding)
        return binding.get_outputs()

    return call


def _compile_openvino(task: Task) -> Call:
    """OpenVINO's latency hint, one request, outputs shared and not copied."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    hints = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": task.threads,
    }
    request = openvino.Core().compile_model(str(task.onnx), "CPU", hints).create_infer_request()
    for spec, array in zip(task.inputs, task.arrays, strict=True):
        request.set_tensor(spec.name, openvino.Tensor(array))

    def call() -> Any:
        request.infer()
        return [tensor.data for tensor in request.output_tensors]

    return call


def _compile_tvm(task: Task) -> Call:
    """TVM's tutorial: import from ONNX, build with the default pipeline of the target, call the virtual machine."""
    os.environ["TVM_NUM_THREADS"], os.environ["TVM_BIND_THREADS"] = str(task.threads), "0"
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    target = tvm.target.Target({"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu()})
    executable = tvm.compile(from_onnx(onnx.load(str(task.onnx))), target=target)
    main = relax.VirtualMachine(executable, tvm.cpu())["main"]
    inputs = [tvm.runtime.tensor(array) for array in task.arrays]
    return lambda: main(*inputs)


def _compile_iree(task: Task) -> Call:
    """IREE's guide to CPU deployment: import, compile for the host's features at O3, tiled, run as local tasks."""
    import iree.runtime as runtime

    imported, built = task.cache / "model.mlir", task.cache / "model.vmfb"
    arguments = [sys.executable, "-m", "iree.compiler.tools.import_onnx", str(task.onnx), "-o", str(imported)]
    subprocess.run(arguments, check=True, capture_output=True)
    arguments = ["iree-compile", str(imported), "-o", str(built), "--iree-hal-target-device=local"]
    arguments += [
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=host",
        "--iree-opt-level=O3",
        "--iree-opt-data-tiling=true",
        "--iree-global-opt-use-im2col-for-convs=true",
    ]
    # A transformer's LayerNorm exceeds the default stack limit.
    arguments += ["--iree-llvmcpu-stack-allocation-limit=262144"]
    subprocess.run([str(Path(sys.executable).parent / arguments[0]), *arguments[1:]], check=True, capture_output=True)
    runtime.flags.parse_flags(f"--task_topology_group_count={task.threads}", "--task_worker_stack_size=1048576")
    config = runtime.Config("local-task")
    module = runtime.load_vm_module(runtime.VmModule.mmap(config.vm_instance, str(built)), config)
    inputs = [runtime.asdevicearray(config.device, array) for array in task.arrays]
    return lambda: module.main_graph(*inputs)


def _compile_executorch(task: Task) -> Call:
    """ExecuTorch's page on XNNPACK: export, lower with its partitioner, run by the Python bindings."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.extension.pybindings import portable_lib
    from executorch.runtime import Runtime

    module, inputs = _prepare_torch(task)
    with torch.no_grad():
        exported = torch.export.export(module, inputs)
        lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch()
    path = task.cache / "model.pte"
    path.write_bytes(lowered.buffer)
    portable_lib._unsafe_reset_threadpool(task.threads)
    method = Runtime.get().load_program(str(path)).load_method("forward")
    return lambda: method.execute(list(inputs))


IDENTITY = _build_compiler("identity", "module", _compile_identity, ("torch",))
TORCHSCRIPT = _build_compiler("torchscript", "module", _compile_torchscript, ("torch",))
INDUCTOR = _build_compiler("inductor", "module", _compile_inductor, ("torch",))
AOTINDUCTOR = _build_compiler("aotinductor", "module", _compile_aotinductor, ("torch",))
ONNXRUNTIME = _build_compiler("onnxruntime", "onnx", _compile_onnxruntime, ("onnxruntime",))
OPENVINO = _build_compiler("openvino", "onnx", _compile_openvino, ("openvino",))
TVM = _build_compiler("tvm", "onnx", _compile_tvm, ("apache-tvm", "onnx"))
IREE = _build_compiler("iree", "onnx", _compile_iree, ("iree-base-compiler", "iree-base-runtime"))
EXECUTORCH = _build_compiler("executorch", "module", _compile_executorch, ("executorch",))
