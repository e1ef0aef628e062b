"""A benchmark as it is often written, for comparison: every compiler in one process, timed in one loop.

``python bench/naive.py SPEC`` prints the median latencies as JSON. `SPEC` is a JSON object as `prepare`
returns it, with ``compilers``, ``repeats``, and ``training``: whether the module is in training mode.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from prepared import build_network, draw_inputs

from ngbkit import registry
from ngbkit.compilers.base import Compiler, Program, Task, Tuning
from ngbkit.device.timing.rounds import shuffle
from ngbkit.device.timing.sampling import sample
from ngbkit.device.timing.warming import warm_up

SAMPLES_A_TURN = 5


def measure(spec: Mapping[str, Any]) -> dict[str, float]:
    """Measure the median latency of each compiler in seconds, all in this process and in turns."""
    programs = {name: _compile(name, spec) for name in spec["compilers"]}
    samples_ns: dict[str, list[float]] = {name: [] for name in programs}
    with ExitStack() as stack:
        for program in programs.values():
            stack.enter_context(program.within())
            program.run()
            warm_up(program.run)
        for number in range(-(-spec["repeats"] // SAMPLES_A_TURN)):
            for name in shuffle(list(programs), spec["seed"], number):
                samples_ns[name] += sample(programs[name].run, SAMPLES_A_TURN, settle=1)
    return {name: median(samples) * 1e-9 for name, samples in samples_ns.items()}


def _compile(name: str, spec: Mapping[str, Any]) -> Program:
    compiler: Compiler = registry.load(registry.COMPILERS, name)
    module = None
    if "module" in compiler.forms:
        module = build_network(spec).module
        assert module is not None
        module.train(bool(spec["training"]))
    inputs, arrays = draw_inputs(spec)
    folder = Path(tempfile.mkdtemp(prefix="ngbkit-naive-"))
    (folder / "cache").mkdir()
    task = Task(
        form="onnx" if module is None else "module",
        module=module,
        onnx=Path(spec["onnx"]),
        inputs=tuple(inputs),
        arrays=tuple(arrays),
        batch_size=1,
        options=compiler.settle({}),
        threads=spec["threads"],
        cache=folder / "cache",
        tuning=Tuning(folder=folder / "tuning"),
    )
    return compiler.compile(task)


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
