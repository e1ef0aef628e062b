"""A benchmark as it is often written, to be compared with: everything in one process, one loop after the other.

Run as ``python -m ngbkit.runs.selfcheck.naive SPEC``; the last line that it prints holds the median latencies, as JSON.
`SPEC` is a JSON object: what `ngbkit.runs.selfcheck.vendors.run` takes, with ``compilers``, ``repeats``, and
``training``: whether the module is left as it was created, in training mode.
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

from ngbkit import options, registry
from ngbkit.compilers.base import Compiler, Program, Task, Tuning
from ngbkit.device import preparation
from ngbkit.device.timing.rounds import shuffled
from ngbkit.device.timing.sampling import sample
from ngbkit.device.timing.warming import warm_up
from ngbkit.workloads import feeds
from ngbkit.workloads.base import Network, Source, TensorSpec, Workload

SAMPLES_A_TURN = 5


def measure(spec: Mapping[str, Any]) -> dict[str, float]:
    """The median latency of each compiler in seconds, all of them in this process and taking turns."""
    programs = {name: _compile(name, spec) for name in spec["compilers"]}
    found: dict[str, list[float]] = {name: [] for name in programs}
    with ExitStack() as within:
        for program in programs.values():
            within.enter_context(program.within())
            program.run()
            warm_up(program.run)
        for number in range(-(-spec["repeats"] // SAMPLES_A_TURN)):
            for name in shuffled(list(programs), spec["seed"], number):
                found[name] += sample(programs[name].run, SAMPLES_A_TURN, settle=1)
    return {name: median(durations) * 1e-9 for name, durations in found.items()}


def _compile(name: str, spec: Mapping[str, Any]) -> Program:
    compiler: Compiler = registry.load(registry.COMPILERS, name)
    network = _build(spec) if "module" in compiler.forms else None
    inputs = [TensorSpec.from_json(one) for one in spec["inputs"]]
    examples = preparation.read_arrays(spec["examples"])
    kept = Path(tempfile.mkdtemp(prefix="ngbkit-naive-"))
    (kept / "cache").mkdir()
    task = Task(
        form="module" if network is not None else "onnx",
        module=None if network is None else network.module,
        onnx=Path(spec["onnx"]),
        inputs=tuple(inputs),
        arrays=tuple(feeds.draw(inputs, examples, 1, spec["seed"])),
        batch_size=1,
        options=compiler.settle({}),
        threads=spec["threads"],
        cache=kept / "cache",
        tuning=Tuning(folder=kept / "tuning"),
    )
    return compiler.compile(task)


def _build(spec: Mapping[str, Any]) -> Network:
    workload = Workload.from_json(spec["workload"], preparation.locator(spec["artifacts"]))
    source: Source = registry.load(registry.WORKLOADS, workload.source)
    with options.set_options(seed=spec["seed"]):
        network = source.build(workload, spec["factors"])
    assert network.module is not None
    network.module.train(bool(spec["training"]))
    return network


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))  # noqa: T201  the answer
