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
from ngbkit.registry import version
from ngbkit.sweep.records import Contract
from ngbkit.workloads import files

if TYPE_CHECKING:
    import numpy as np

_PACKAGES = ("iree-base-compiler", "iree-base-runtime", "onnx")
# Data tiling for wide vectors needs more stack than the 32 KiB that the compiler allows itself (a LayerNorm in a vision
# transformer: 73 KiB), and the workers more than the 128 KiB that they get.
_STACK_LIMIT_BYTES, _WORKER_STACK_BYTES = 1 << 18, 1 << 20
_WORKER = "iree-worker-"
_WORKERS_START_S = 2.0
# What tells processors of the same make apart, on x86 and on Arm.
_PROCESSOR = ("model name", "flags", "CPU implementer", "CPU part", "Features")
_OPERATOR = re.compile(r'torch\.operator "onnx\.(\w+)".*-> \(?!torch\.vtensor<\[[^]]*\],(\w+)>')
_HEAVY = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
_FLOATS = {"f64", "f32", "f16", "bf16"}


def compile(task: Task) -> Program:
    """Compile the ONNX file of `task`, or take what is kept of it, load it and copy its inputs to the device."""
    kept = _name(task)
    hit = kept.exists()
    if not hit:
        _build(task, kept)
    told = json.loads(kept.with_suffix(".json").read_text())

    import iree.runtime as iree

    # The task system reads its flags when the first device is made, and knows no other way to be told.
    iree.flags.parse_flags(
        f"--task_topology_group_count={task.threads}", f"--task_worker_stack_size={_WORKER_STACK_BYTES}"
    )
    device = iree.get_device("local-task")
    instance = iree.VmInstance()
    module = iree.VmModule.mmap(instance, str(kept))
    context = iree.VmContext(instance, [iree.create_hal_module(instance, device), module])
    # The other two are the initialiser, which has run, and what returns before the outputs are ready.
    name = next(name for name in module.function_names if name != "__init" and not name.endswith("$async"))
    function = module.lookup_function(name)
    arguments = iree.VmVariantList(len(task.arrays))
    for array in task.arrays:
        arguments.push_ref(_bind(iree, device, array))

    def run() -> Any:
        results = iree.VmVariantList(1)
        context.invoke(function, arguments, results)
        return results

    return Program(
        run=run,
        fetch=lambda results: _fetch(iree, results),
        contract=Contract(
            runtime="iree local-task, llvm-cpu", precision=told["precision"], threads=_count_workers(task.threads)
        ),
        facts={"cache": "hit" if hit else "miss", "program_bytes": kept.stat().st_size},
        explain=lambda: _explain(task, told["commands"]),
    )


def _flags(task: Task) -> list[str]:
    """What `iree-compile` is told: all that its documentation gives for speed on a CPU, as the options have it."""
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


def _name(task: Task) -> Path:
    """Where the compiled program is kept, by all that it depends on, the processor included."""
    assert task.onnx is not None
    depends = [files.digest(task.onnx), *_flags(task), *(f"{one} {version(one)}" for one in _PACKAGES), _processor()]
    name = hashlib.blake2b("\n".join(depends).encode(), digest_size=16).hexdigest()
    return task.cache / "iree" / f"{name}.vmfb"


def _processor() -> str:
    """What ``host`` stands for: a cache may lie on a file system that machines share."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return "\n".join(sorted({line for line in lines if line.startswith(_PROCESSOR)}))


def _build(task: Task, kept: Path) -> None:
    """Import and compile with IREE's own tools, each in a process of its own.

    There the 100 MB of the compiler, and the weights as text, are no memory of the program's, and it is only an error
    where the compiler crashes.
    """
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        imported, compiled, statistics = (Path(folder, name) for name in ("network.mlir", "network.vmfb", "calls.csv"))
        _call("import_onnx", [str(task.onnx), "-o", str(imported)], folder)
        dump = ["--iree-scheduling-dump-statistics-format=csv", f"--iree-scheduling-dump-statistics-file={statistics}"]
        quiet = "--mlir-print-op-on-diagnostic=false"
        _call("scripts.iree_compile", [str(imported), *_flags(task), *dump, quiet, "-o", str(compiled)], folder)
        told = Path(folder, "told.json")
        told.write_text(json.dumps({"precision": _precision(imported), "commands": list(_commands(statistics))}))
        told.replace(kept.with_suffix(".json"))
        compiled.replace(kept)  # the last: where it is, all is


def _call(tool: str, arguments: Sequence[str], folder: str) -> None:
    """Run a tool of the compiler's package to its end.

    Raises
    ------
    RuntimeError
        It failed; the message begins with the first error that it told.
    """
    done = subprocess.run(
        [sys.executable, "-m", f"iree.compiler.tools.{tool}", *arguments],
        env={**os.environ, "TMPDIR": folder},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        errors = re.findall(r"\berror: (.+)", done.stderr) or done.stderr.strip().splitlines()[-1:]
        said = errors[0] if errors else "it said nothing"
        raise RuntimeError(f"{said} (iree.compiler.tools.{tool} ended with {done.returncode})")


def _precision(imported: Path) -> str:
    """Of the convolutions and matrix products, or of all operators where there are none: nothing is demoted."""
    heavy: set[str] = set()
    others: set[str] = set()
    with imported.open() as lines:
        for line in lines:
            if line.startswith("{-#"):  # the weights: the rest of the file
                break
            if found := _OPERATOR.search(line):
                (heavy if found[1] in _HEAVY else others).add(found[2])
    return "+".join(sorted(heavy & _FLOATS or others & _FLOATS)) or "f32"


def _commands(statistics: Path) -> Iterator[str]:
    """What a call executes, in order: ``fill``, ``copy``, or the symbol of what is dispatched.

    The statistics have a section for each command buffer; those of initialisers run once, when a program is loaded.
    """
    called = False
    with statistics.open(newline="") as stream:
        for row in csv.reader(stream):
            if row and row[0].startswith(";"):
                called = "util.func" in row[0]
            elif called and len(row) > 2 and row[1] in {"dispatch", "fill", "copy"}:
                yield row[2].rpartition("::")[2] if row[1] == "dispatch" else row[1]


def _bind(iree: Any, device: Any, array: np.ndarray) -> Any:
    return device.allocator.allocate_buffer_copy(
        memory_type=iree.MemoryType.DEVICE_LOCAL,
        allowed_usage=iree.BufferUsage.DEFAULT,
        device=device,
        buffer=array,
        element_type=iree.array_interop.map_dtype_to_element_type(array.dtype),
    )


def _fetch(iree: Any, results: Any) -> list[np.ndarray]:
    views = [results.get_as_object(index, iree.HalBufferView) for index in range(len(results))]
    return [iree.DeviceArray(None, view, implicit_host_transfer=True).to_host().copy() for view in views]


def _count_workers(expected: int) -> int:
    """The workers that this process has, by the names that they give themselves as soon as they have started."""
    deadline = time.monotonic() + _WORKERS_START_S
    while True:
        found = 0
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended
                found += (task / "comm").read_text().startswith(_WORKER)
        if found >= expected or time.monotonic() > deadline:
            return found
        time.sleep(0.001)


def _explain(task: Task, commands: Sequence[str]) -> dict[str, Any]:
    """What a call executes, all of it on the device that was asked for. Which of it was fused its names do not tell."""
    assert task.onnx is not None
    return {
        "nodes_before": len(onnx_graph.read_operators(task.onnx)),
        "nodes_after": len(commands),
        "fallbacks": 0,
        "commands": dict(Counter(map(_family, commands))),
    }


def _family(command: str) -> str:
    """What kind of work it is: ``main_graph$async_dispatch_3_matmul_like_64x3136x576_f32`` is ``matmul_like``."""
    found = re.search(r"_(?:dispatch|encoding)_\d+_([a-z_]*[a-z])", command)
    return found[1] if found else command


COMPILER = Compiler(
    name="iree",
    summary="IREE's llvm-cpu compiler and its local-task runtime",
    forms={"onnx": ("iree.runtime",)},
    packages=_PACKAGES,
    install="pip install 'ngbkit[iree]'",
    compile=compile,
    caches=True,
    options={
        "optimization": Option(
            default="O3",
            help="IREE's global optimisation level; left to itself it takes O0",
            choices=("O0", "O1", "O2", "O3"),
        ),
        "data_tiling": Option(
            default=True,
            help="lay the factors of matrix products out in tiles; IREE itself leaves it off",
            choices=(True, False),
        ),
        "im2col": Option(
            default=True,
            help="turn convolutions into matrix products, for which data tiling and microkernels are made",
            choices=(True, False),
        ),
        "microkernels": Option(
            default="default",
            help="whether to use IREE's hand-written kernels where it does by default, or wherever there is one",
            choices=("default", "all"),
        ),
    },
    refusals=(
        r"failed to legalize operation",
        r"No Op registered for",
        r"[Uu]nsupported (onnx|operator|op)\b",
    ),
)
