"""Compares ngbkit with the vendors' own tools, and with a benchmark as it is often written, on the same network.

    python tests/bench/vendors.py bias --rounds 6 > notebooks/data/02-bias.json
    python tests/bench/vendors.py precautions --rounds 2 -r 20 > notebooks/data/02-disturbances.json

Claim of `bias`: our median latency over that of each vendor's own tool is from 0.97 to 1.03. In each round, in shuffled
order, a small sweep of ngbkit and each tool take turns, so that drift cancels; a tool runs in a process of its own with
the environment of ngbkit's children. Output: JSON with one ratio a network and tool, with its 95 % interval (from 6
rounds on), or why there is none.

`precautions` measures the effect of each precaution of ngbkit, quiet and beside a busy process: settings of it, such as
the allocator and OpenMP's wait policy, and two of a whole benchmark of another kind, every compiler in one process,
and a module in training mode. Output: JSON, one row an effect.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import disturbances
import numpy as np
from programs import compile_network, load_compiler

from ngbkit import options, runs
from ngbkit.device.isolation.settings import build_child_settings
from ngbkit.device.timing import intervals
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import DeviceError
from ngbkit.hardware import environment, subprocesses
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.json_values import to_json_value
from ngbkit.workloads import blocks, building, feeds, timm
from ngbkit.workloads.base import Network, Workload
from ngbkit.workloads.export import export_for, to_tensor
from ngbkit.workloads.subprocesses import SAFE_PATH, build_python_path

Spec = Mapping[str, Any]
"""A network for a process of its own: its workload, its seed, the file at batch size 1, its inputs, and the threads."""

REPEATS, SAMPLES_A_TURN = 50, 5
# How long a tool times its calls, and how long it warms up.
SECONDS, WARM_UP_S = 4.0, 0.5
TIMEOUT_S = 600.0
TARGET = (0.97, 1.03)
_MEDIAN = re.compile(r"Median:\s+([\d.]+) (ms|us)\b")
_UNITS = {"ms": 1e-3, "us": 1e-6}


def prepare(workload: Workload, threads: int, folder: Path) -> dict[str, Any]:
    """Export a network (with one value of each factor) and draw its inputs, as a sweep does."""
    folder.mkdir(exist_ok=True)
    seed = options.get_options()["seed"]
    spec = {"workload": workload.to_json(), "seed": seed, "threads": threads, "inputs": str(folder / "inputs.npz")}
    network = build_network(spec)
    np.savez(spec["inputs"], *feeds.draw(network.inputs, network.examples, 1, seed))
    return {**spec, "onnx": str(export_for(network, folder, [1], seed)[1])}


def build_network(spec: Spec) -> Network:
    workload = Workload.from_json(spec["workload"], locate=Path)
    with options.set_options(seed=spec["seed"]):
        return building.build(workload, {name: values[0] for name, values in workload.factors.items()})


def read_inputs(spec: Spec) -> list[np.ndarray]:
    with np.load(spec["inputs"]) as arrays:
        return list(arrays.values())


def run_apart(command: str, spec: Spec) -> dict[str, float]:
    """Run a command of this file in a process with the settings of ngbkit's children; return latencies in seconds."""
    variables = {**os.environ, **build_child_settings(spec["threads"]), "PYTHONPATH": build_python_path()}
    words = [sys.executable, __file__, command, json.dumps(dict(spec))]
    latency_s: dict[str, float] = subprocesses.run_json(words, environment=variables, timeout_s=TIMEOUT_S)
    return latency_s


def time_by_torch(spec: Spec) -> float:
    """Time the uncompiled module with `torch.utils.benchmark.Timer`."""
    import torch
    from torch.utils.benchmark import Timer

    inputs = tuple(map(to_tensor, read_inputs(spec)))
    with contextlib.suppress(RuntimeError):
        torch.set_num_interop_threads(1)
    torch.set_num_threads(spec["threads"])
    names = {"module": build_network(spec).module, "inputs": inputs}
    # It uses one thread by default, whatever the setting of torch.
    timer = Timer("module(*inputs)", globals=names, num_threads=spec["threads"])
    with torch.inference_mode():
        timer.blocked_autorange(min_run_time=WARM_UP_S)
        return float(timer.blocked_autorange(min_run_time=SECONDS).median)


def time_by_onnxruntime(spec: Spec) -> float:
    """Time each ``model_run`` of a session with our options by ONNX Runtime's own profiler."""
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = spec["threads"], 1
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        settings.enable_profiling, settings.profile_file_prefix = True, str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(spec["onnx"], settings, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for tensor, array in zip(session.get_inputs(), read_inputs(spec), strict=True):
            binding.bind_cpu_input(tensor.name, array)
        for output in session.get_outputs():
            binding.bind_output(output.name, "cpu")
        counts = []
        for seconds in (WARM_UP_S, SECONDS):
            count, end = 0, time.perf_counter() + seconds
            while time.perf_counter() < end:
                session.run_with_iobinding(binding)
                count += 1
            counts.append(count)
        events = json.loads(Path(session.end_profiling()).read_text())
    durations = [event["dur"] for event in events if event.get("name") == "model_run"]
    return float(statistics.median(durations[counts[0] :])) * 1e-6


def time_by_openvino(spec: Spec) -> float:
    """Run OpenVINO's benchmark_app, one request at a time, and parse the median that it prints."""
    arguments = (
        f"-d CPU -hint none -nstreams 1 -nthreads {spec['threads']} -infer_precision f32 -api sync -nireq 1 "
        # By default it takes an input of three channels for an image, and feeds and converts bytes.
        f"-ip f32 -op f32 -t {math.ceil(SECONDS)}"
    )
    code = f"{SAFE_PATH}from openvino.tools.benchmark.main import main; main()"
    command = [sys.executable, "-c", code, "-m", spec["onnx"], *arguments.split()]
    process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    match = _MEDIAN.search(process.stdout)
    if match is None:
        raise RuntimeError(" ".join((process.stderr.strip() or process.stdout.strip()).splitlines()[-3:]))
    return float(match[1]) * _UNITS[match[2]]


TOOLS: Mapping[str, tuple[str, Callable[[Spec], float]]] = {
    "identity": ("torch.utils.benchmark", time_by_torch),
    "onnxruntime": ("ONNX Runtime's profiler", time_by_onnxruntime),
    "openvino": ("benchmark_app", time_by_openvino),
}
"""By our compiler that runs the same computation: the vendor's tool, and the median latency in seconds by it."""


@dataclass(slots=True)
class Comparison:
    """A network: its latencies by ngbkit and by the tools, one per compiler and round, and why some are missing."""

    workload: Workload
    spec: Spec
    ours: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    theirs: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    problems: dict[str, str] = field(default_factory=dict)

    def run_sweep(self, compilers: Sequence[str]) -> None:
        """Add the median latency of each compiler in one sweep of ngbkit; NaN where it was not measured."""
        run = runs.start(Grid(self.workload, compilers=compilers, repeats=REPEATS, threads=self.spec["threads"]))
        latency: Any = run.result()["latency"]
        for compiler in compilers:
            self.ours[compiler].append(float(latency.sel(compiler=compiler).median()))
        for failure in run.failures():
            self.problems.setdefault(run.trial(failure.trial_id).compiler, f"ngbkit: {failure.error}")

    def run_tool(self, compiler: str) -> None:
        """Add the median latency of a vendor's tool in one process; NaN where it was not measured."""
        try:
            self.theirs[compiler].append(run_apart(compiler, self.spec)[compiler])
        except DeviceError as error:
            self.problems.setdefault(compiler, f"{TOOLS[compiler][0]} failed: {error}")
            self.theirs[compiler].append(math.nan)

    def compare(self, compiler: str, missing: str) -> dict[str, Any]:
        """Compute our latency over theirs in the same round, the median over the rounds, or say why there is none."""
        ours, theirs = np.array(self.ours[compiler], float), np.array(self.theirs[compiler], float)
        paired = np.isfinite(ours) & np.isfinite(theirs) if len(ours) == len(theirs) else np.zeros(0, bool)
        row: dict[str, Any] = {"network": self.workload.name, "compiler": compiler, "tool": TOOLS[compiler][0]}
        if not paired.any():
            values = dict.fromkeys(("ratio", "low", "high", "ours_s", "theirs_s"), math.nan)
            problem = missing or self.problems.get(compiler, "nothing was measured")
            return {**row, **values, "rounds": 0, "problem": problem, "within": False}
        logs = np.log(ours[paired] / theirs[paired])
        ratio, low, high = np.exp([np.median(logs), *intervals.compute_median_interval(logs, LEVEL)]).tolist()
        medians = {"ours_s": float(np.median(ours[paired])), "theirs_s": float(np.median(theirs[paired]))}
        row |= {"ratio": ratio, "low": low, "high": high, **medians, "rounds": int(paired.sum()), "problem": ""}
        return {**row, "within": TARGET[0] <= ratio <= TARGET[1]}


def measure_bias(rounds: int, threads: int) -> dict[str, Any]:
    """Measure the bias for each network and tool on this machine; a tool that fails has its problem instead."""

    missing = {compiler: load_compiler(compiler).unavailable() or "" for compiler in TOOLS}
    compilers = [compiler for compiler, reason in missing.items() if not reason]
    with tempfile.TemporaryDirectory() as folder:
        # A complete network, and a block whose calls are short.
        workloads = (timm.model("resnet18"), blocks.conv(64, 2, size=(56, 56)))
        comparisons = [
            Comparison(workload, prepare(workload, threads, Path(folder, str(place))))
            for place, workload in enumerate(workloads)
        ]
        order = random.Random(options.get_options()["seed"])
        for number in range(rounds if compilers else 0):
            for comparison in order.sample(comparisons, len(comparisons)):
                for compiler in order.sample(["", *compilers], 1 + len(compilers)):
                    name = TOOLS[compiler][0] if compiler else "ngbkit"
                    print(f"round {number + 1} of {rounds}: {comparison.workload.name}, {name}", file=sys.stderr)
                    if compiler:
                        comparison.run_tool(compiler)
                    else:
                        comparison.run_sweep(compilers)
    return {"bias": [comparison.compare(tool, missing[tool]) for comparison in comparisons for tool in TOOLS]}


def time_in_one_process(spec: Spec) -> dict[str, float]:
    """Time every compiler in this process, in one loop, as benchmarks are often written."""
    from ngbkit.device.timing.rounds import shuffle
    from ngbkit.device.timing.sampling import sample
    from ngbkit.device.timing.warming import warm_up

    network = build_network(spec)
    assert network.module is not None
    network.module.train(bool(spec["training"]))
    samples_ns: dict[str, list[float]] = {name: [] for name in spec["compilers"]}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        settings = {"arrays": read_inputs(spec), "onnx": Path(spec["onnx"]), "threads": spec["threads"]}
        programs = {name: compile_network(network, name, Path(folder, name), **settings) for name in samples_ns}
        for program in programs.values():
            stack.enter_context(program.within())
            program.run()
            warm_up(program.run)
        for number in range(-(-spec["repeats"] // SAMPLES_A_TURN)):
            for name in shuffle(list(programs), spec["seed"], number):
                samples_ns[name] += sample(programs[name].run, SAMPLES_A_TURN, settle=1)
    return {name: statistics.median(samples) * 1e-9 for name, samples in samples_ns.items()}


def measure_naively(spec: Spec) -> disturbances.Numbers:
    """Measure the network of a spec in one process: the latency of the baseline, and the speed-ups of the others."""
    return to_numbers(run_apart("naive", spec))


def measure_in_blocks(repeats: int, threads: int) -> disturbances.Numbers:
    """Measure the compilers one after the other."""
    compilers = disturbances.COMPILERS
    sweep = Grid(disturbances.NETWORK, compilers, interleave=False, repeats=repeats, threads=threads)
    latency: Any = runs.start(sweep).result()["latency"].median("repeat")
    return to_numbers({name: latency.sel(compiler=name).item() for name in compilers})


def to_numbers(latency_s: Mapping[str, float]) -> disturbances.Numbers:
    return {name: seconds if name == BASELINE else latency_s[BASELINE] / seconds for name, seconds in latency_s.items()}


def measure_precautions(rounds: int, repeats: int, threads: int) -> Any:
    """Measure the effects of the disturbances of ngbkit, and of a benchmark in one process."""
    comparisons = {
        "one process for all compilers": (disturbances.COMPILERS, False),
        "eval() is missing": ((BASELINE,), True),
    }
    with tempfile.TemporaryDirectory() as folder:
        spec = {**prepare(timm.model(disturbances.NETWORK), threads, Path(folder)), "repeats": repeats}
        others = [
            disturbances.Disturbance(name="sequential blocks", measure=partial(measure_in_blocks, repeats, threads)),
            *(
                disturbances.Disturbance(
                    name=name, measure=partial(measure_naively, {**spec, "compilers": compilers, "training": training})
                )
                for name, (compilers, training) in comparisons.items()
            ),
        ]
        return disturbances.measure(others, rounds, repeats, threads)


def main() -> None:
    if sys.argv[1:2] == ["naive"]:
        print(json.dumps(time_in_one_process(json.loads(sys.argv[2]))))
        return
    if sys.argv[1:2] and sys.argv[1] in TOOLS:
        compiler, spec = sys.argv[1:]
        print(f"\n{json.dumps({compiler: TOOLS[compiler][1](json.loads(spec))})}")
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("bias", "precautions"))
    parser.add_argument(
        "--rounds", type=int, help=f"rounds in which all take turns (default: 8, or {disturbances.ROUNDS})"
    )
    parser.add_argument("-r", "--repeats", type=int, default=disturbances.REPEATS, help="samples of each precaution")
    parser.add_argument("--threads", type=int, default=environment.count_usable_cores())
    args = parser.parse_args()
    if args.command == "bias":
        result: Any = measure_bias(args.rounds or 8, args.threads)
    else:
        result = measure_precautions(args.rounds or disturbances.ROUNDS, args.repeats, args.threads)
    print(json.dumps(to_json_value(result), indent=1))


if __name__ == "__main__":
    main()
