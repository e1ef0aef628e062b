"""A process that compiles a tiny network with TVM, and prints the result as JSON.

python tvm_child.py '{"onnx": …, "folder": …, "options": {…}, "seconds": null, "die_at": null}'
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit.compilers.base import Task, Tuning, TuningProgress
from ngbkit.compilers.tvm import COMPILER
from ngbkit.workloads.base import BATCH, TensorSpec


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Compile as requested."""
    reports: list[TuningProgress] = []

    def report(progress: TuningProgress) -> None:
        reports.append(progress)
        if request["die_at"] is not None and progress.done >= request["die_at"]:
            os.kill(os.getpid(), signal.SIGKILL)

    folder = Path(request["folder"])
    array = np.random.default_rng(0).standard_normal((1, 3, 16, 16), np.float32)
    task = Task(
        form="onnx",
        module=None,
        onnx=Path(request["onnx"]),
        inputs=[TensorSpec(name="input", shape=(BATCH, 3, 16, 16))],
        arrays=[array],
        batch_size=1,
        options=COMPILER.settle(request["options"]),
        threads=2,
        cache=folder / "cache",
        tuning=Tuning(folder=folder, seconds=request["seconds"], report=report),
    )
    try:
        program = COMPILER.compile(task)
    except Exception as error:  # noqa: BLE001  the test asserts which one
        return {"error": f"{type(error).__name__}: {error}"}
    return {
        "facts": program.facts,
        "notes": program.contract.notes,
        "reused_s": program.reused_s,
        "output": program.fetch(program.run())[0].tolist(),
        "reports": [[progress.done, progress.total, progress.best_s] for progress in reports],
        "torch": "torch" in sys.modules,
    }


def write_network(path: Path) -> None:
    """Write a convolution with its activation and a pooling: two functions to tune, besides a change of layout."""
    import onnx

    helper, kinds = onnx.helper, onnx.TensorProto
    weight = np.random.default_rng(1).standard_normal((8, 3, 3, 3), np.float32)
    nodes = [
        helper.make_node("Conv", ["input", "weight"], ["mixed"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["mixed"], ["active"]),
        helper.make_node("GlobalAveragePool", ["active"], ["output"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("input", kinds.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("output", kinds.FLOAT, [1, 8, 1, 1])],
        [onnx.numpy_helper.from_array(weight, "weight")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1]))))
