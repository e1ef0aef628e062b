"""IREE on the CPU, from an ONNX file: compiled ahead of time by LLVM for this machine, run by worker threads."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import onnx_graph
from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.files import hash_file
from ngbkit.registry import find_version
from ngbkit.sweep.records import Contract
from ngbkit.workloads.canonical import Importer
from ngbkit.workloads.subprocesses import build_arguments

if TYPE_CHECKING:
    import numpy as np

_PACKAGES = ("iree-base-compiler", "iree-base-runtime", "onnx")
# Data tiling for wide vectors needs more stack than the compiler's limit of 32 KiB (a LayerNorm in a vision
# transformer: 73 KiB, a detector of text lines: 400 KiB), and the workers need more than their 128 KiB.
_STACK_LIMIT_BYTES, _WORKER_STACK_BYTES = 1 << 19, 1 << 21
_WORKER = "iree-worker-"
_WORKERS_START_S = 2.0
# Fields that distinguish processors of one vendor, on x86 and on Arm.
_PROCESSOR = ("model name", "flags", "CPU implementer", "CPU part", "Features")
_OPERATOR = re.compile(r'torch\.operator "onnx\.(\w+)".*-> \(?!torch\.vtensor<\[[^]]*\],(\w+)>')
_HEAVY = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
_FLOATS = {"f64", "f32", "f16", "bf16"}


def compile(task: Task) -> Program:
    """Compile the ONNX file of `task`, unless the cache has its program, load it and copy its inputs to the device."""
    path = _build_path(task)
    hit = path.exists()
    if not hit:
        _build(task, path)
    metadata = json.loads(path.with_suffix(".json").read_text())

    import iree.runtime as iree

    # The task system reads its flags when the first device is created; it has no other setting for them.
    iree.flags.parse_flags(
        f"--task_topology_group_count={task.threads}", f"--task_worker_stack_size={_WORKER_STACK_BYTES}"
    )
    device = iree.get_device("local-task")
    instance = iree.VmInstance()
    module = iree.VmModule.mmap(instance, str(path))
    context = iree.VmContext(instance, [iree.create_hal_module(instance, device), module])
    # The other two functions are the initialiser, already run, and one that returns before the outputs are ready.
    name = next(name for name in module.function_names if name != "__init" and not name.endswith("$async"))
    function = module.lookup_function(name)
    arguments, memory = _bind(iree, device, task.arrays)

    def run() -> Any:
        results = iree.VmVariantList(1)
        context.invoke(function, arguments, results)
        return results

    def feed(arrays: Sequence[np.ndarray]) -> None:
        for mapped, array in zip(memory, arrays, strict=True):
            mapped[...] = array

    return Program(
        run=run,
        feed=feed,
        memory=[[mapped] for mapped in memory],
        fetch=lambda results: _fetch(iree, results),
        contract=Contract(
            runtime="iree local-task, llvm-cpu",
            precision=metadata["precision"] or task.body_precision,
            threads=_count_workers(task.threads),
        ),
        facts={"cache": "hit" if hit else "miss", "program_bytes": path.stat().st_size},
        explain=lambda: _explain(task, metadata["commands"]),
    )


def _build_flags(task: Task) -> list[str]:
    """Build the flags of `iree-compile`: those that its documentation recommends for a CPU, as the options set them."""
    return [
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=host",
        f"--iree-opt-level={task.options['optimization']}",
        f"--iree-opt-data-tiling={str(task.options['data_tiling']).lower()}",
        f"--iree-global-opt-use-im2col-for-convs={str(task.options['im2col']).lower()}",
        f"--iree-llvmcpu-enable-ukernels={task.options['microkernels']}",
        f"--iree-llvmcpu-stack-allocation-limit={_STACK_LIMIT_BYTES}",
    ]


def _build_path(task: Task) -> Path:
    """Build the path of the compiled program, by everything it depends on, the processor included."""
    assert task.onnx is not None
    packages = (f"{package} {find_version(package)}" for package in _PACKAGES)
    components = [hash_file(task.onnx), *_build_flags(task), *packages, _describe_processor()]
    name = hashlib.blake2b("\n".join(components).encode(), digest_size=16).hexdigest()
    return task.cache / "iree" / f"{name}.vmfb"


def _describe_processor() -> str:
    """Describe the ``host`` processor: machines may share a cache on a network file system."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return "\n".join(sorted({line for line in lines if line.startswith(_PROCESSOR)}))


def _build(task: Task, path: Path) -> None:
    """Import and compile with IREE's own tools, each in a process of its own.

    The 100 MB of the compiler and the weights as text then do not count as the program's memory, and a crash of the
    compiler is only an error.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        imported, compiled, statistics = (Path(folder, name) for name in ("network.mlir", "network.vmfb", "calls.csv"))
        _run_tool("import_onnx", [str(task.onnx), "-o", str(imported)], folder)
        dump = ["--iree-scheduling-dump-statistics-format=csv", f"--iree-scheduling-dump-statistics-file={statistics}"]
        quiet = "--mlir-print-op-on-diagnostic=false"
        _run_tool(
            "scripts.iree_compile", [str(imported), *_build_flags(task), *dump, quiet, "-o", str(compiled)], folder
        )
        metadata_path = Path(folder, "network.json")
        metadata = {"precision": _read_precision(imported), "commands": list(_read_commands(statistics))}
        metadata_path.write_text(json.dumps(metadata))
        metadata_path.replace(path.with_suffix(".json"))
        compiled.replace(path)  # last of all: if it exists, the program is complete


def _run_tool(tool: str, arguments: Sequence[str], folder: str) -> None:
    """Run a tool of the compiler's package; a failure raises its first error."""
    process = subprocess.run(
        [sys.executable, *build_arguments(f"iree.compiler.tools.{tool}", *arguments)],
        env={**os.environ, "TMPDIR": folder},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if process.returncode:
        errors = re.findall(r"\berror: (.+)", process.stderr) or process.stderr.strip().splitlines()[-1:]
        error = errors[0] if errors else "it reported nothing"
        raise RuntimeError(f"{error} (iree.compiler.tools.{tool} ended with {process.returncode})")


def _read_precision(imported: Path) -> str:
    """Return the precision of the convolutions and matrix products, or of all operators; empty without a float."""
    heavy: set[str] = set()
    others: set[str] = set()
    with imported.open() as lines:
        for line in lines:
            if line.startswith("{-#"):  # the weights, up to the end of the file
                break
            if operator := _OPERATOR.search(line):
                (heavy if operator[1] in _HEAVY else others).add(operator[2])
    return "+".join(sorted(heavy & _FLOATS or others & _FLOATS))


def _read_commands(statistics: Path) -> Iterator[str]:
    """Yield the commands of a call, in order: ``fill``, ``copy``, or the symbol of a dispatch."""
    called = False
    with statistics.open(newline="") as stream:
        for row in csv.reader(stream):
            if row and row[0].startswith(";"):
                called = "util.func" in row[0]
            elif called and len(row) > 2 and row[1] in {"dispatch", "fill", "copy"}:
                yield row[2].rpartition("::")[2] if row[1] == "dispatch" else row[1]


def _bind(iree: Any, device: Any, arrays: Sequence[np.ndarray]) -> tuple[Any, list[np.ndarray]]:
    """Copy the inputs to the device, as the arguments of a call; return these with the memory of each."""
    import numpy as np

    arguments = iree.VmVariantList(len(arrays))
    memory = []
    for array in arrays:
        buffer = device.allocator.allocate_buffer_copy(
            memory_type=iree.MemoryType.DEVICE_LOCAL,
            allowed_usage=iree.BufferUsage.DEFAULT,
            device=device,
            buffer=array,
            element_type=iree.array_interop.map_dtype_to_element_type(array.dtype),
        )
        arguments.push_ref(buffer)
        raw = buffer.map().asarray((array.nbytes,), np.dtype(np.uint8))
        memory.append(raw.view(array.dtype).reshape(array.shape))
    return arguments, memory


def _fetch(iree: Any, results: Any) -> list[np.ndarray]:
    views = [results.get_as_object(index, iree.HalBufferView) for index in range(len(results))]
    return [iree.DeviceArray(None, view, implicit_host_transfer=True).to_host().copy() for view in views]


def _count_workers(expected: int) -> int:
    """Count the worker threads of this process, by the names that they set as soon as they start."""
    deadline = time.monotonic() + _WORKERS_START_S
    while True:
        workers = 0
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # the thread has ended
                workers += (task / "comm").read_text().startswith(_WORKER)
        if workers >= expected or time.monotonic() > deadline:
            return workers
        time.sleep(0.001)


def _explain(task: Task, commands: Sequence[str]) -> dict[str, Any]:
    """Count the commands of a call, all on the requested device. Their names do not show which of them are fused."""
    assert task.onnx is not None
    return {
        "nodes_before": len(onnx_graph.read_operators(task.onnx)),
        "nodes_after": len(commands),
        "fallbacks": 0,
        "commands": dict(Counter(map(_find_family, commands))),
    }


def _find_family(command: str) -> str:
    """Return the kind of a command: ``main_graph$async_dispatch_3_matmul_like_64x3136x576_f32`` is ``matmul_like``."""
    match = re.search(r"_(?:dispatch|encoding)_\d+_([a-z_]*[a-z])", command)
    return match[1] if match else command


COMPILER = Compiler(
    name="iree",
    summary="IREE's llvm-cpu compiler and its local-task runtime",
    forms={"onnx": ("iree.runtime",)},
    packages=_PACKAGES,
    install="pip install 'ngbkit[iree]'",
    compile=compile,
    importer=Importer(opset=17),
    caches=True,
    options={
        "optimization": Option(
            default="O3",
            help="IREE's global optimisation level; IREE's own default is O0",
            choices=("O0", "O1", "O2", "O3"),
        ),
        "data_tiling": Option(
            default=True,
            help="lay out the factors of matrix products in tiles; off by IREE's own default",
            choices=(True, False),
        ),
        "im2col": Option(
            default=True,
            help="convert convolutions to matrix products, which data tiling and microkernels support",
            choices=(True, False),
        ),
        "microkernels": Option(
            default="default",
            help="use IREE's hand-written kernels where IREE does by default, or wherever one exists",
            choices=("default", "all"),
        ),
    },
    refusals=(
        r"failed to legalize operation",
        r"No Op registered for",
        r"[Uu]nsupported (onnx|operator|op)\b",
    ),
)
