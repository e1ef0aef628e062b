"""The vendors' own benchmarks, each run in a process of its own, on the very network and file that ngbkit measures.

Run as ``python -m ngbkit.runs.selfcheck.vendors TOOL SPEC``; its last line of output is the median latency, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngbkit import options, registry
from ngbkit.compilers.base import Compiler
from ngbkit.device import preparation
from ngbkit.errors import DeviceError, NgbkitError
from ngbkit.hardware import subprocesses
from ngbkit.workloads import feeds
from ngbkit.workloads.base import Source, TensorSpec, Workload

# Calls that are not timed last so long; those that are, as long as the spec says.
_WARM_UP_S = 0.5
_TIMEOUT_S = 300.0
_MEDIAN = re.compile(r"Median:\s+([\d.]+) (ms|us)\b")
_UNITS = {"ms": 1e-3, "us": 1e-6}


class VendorError(NgbkitError):
    """A vendor's tool gave no latency; the message holds what it printed last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A vendor's benchmark.

    Parameters
    ----------
    name
        What its vendor calls it.
    compiler
        Which of our compilers runs the same thing.
    measure
        ``measure(spec)`` gives the median latency in seconds, in a process of its own. `spec` holds ``workload``,
        ``factors``, ``seed``, ``threads``, ``seconds``, ``onnx``, ``inputs``, ``examples`` and ``artifacts``.
    """

    name: str
    compiler: str
    measure: Callable[[Mapping[str, Any]], float]

    def missing(self) -> str:
        """Why it cannot be run here, with the way out; empty where it can."""
        compiler: Compiler = registry.load(registry.COMPILERS, self.compiler)
        return compiler.unavailable() or ""


def run(tool: str, spec: Mapping[str, Any], environment: Mapping[str, str]) -> float:
    """The median latency that a vendor's tool measures, in seconds, at batch size 1.

    Parameters
    ----------
    tool
        A key of `TOOLS`.
    spec
        What to run.
    environment
        Of the tool's process: that of ngbkit's own children.

    Raises
    ------
    VendorError
        The tool failed, or printed no latency.
    """
    command = [sys.executable, "-m", "ngbkit.runs.selfcheck.vendors", tool, json.dumps(spec)]
    places = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        return float(subprocesses.answer(command, environment=places, timeout_s=_TIMEOUT_S)["latency_s"])
    except (DeviceError, KeyError, TypeError) as error:
        raise VendorError(f"{TOOLS[tool].name} gave no latency: {error}") from None


def _torch_timer(spec: Mapping[str, Any]) -> float:
    """The module as it is, timed by `torch.utils.benchmark.Timer`."""
    import torch
    from torch.utils.benchmark import Timer

    workload = Workload.from_json(spec["workload"], preparation.locator(spec["artifacts"]))
    source: Source = registry.load(registry.WORKLOADS, workload.source)
    with options.set_options(seed=spec["seed"]):
        network = source.build(workload, spec["factors"])
    inputs = tuple(torch.tensor(array) for array in feeds.draw(network.inputs, network.examples, 1, spec["seed"]))
    with contextlib.suppress(RuntimeError):
        torch.set_num_interop_threads(1)
    torch.set_num_threads(spec["threads"])
    # Its threads are one by default, whatever torch is told.
    timer = Timer("module(*inputs)", globals={"module": network.module, "inputs": inputs}, num_threads=spec["threads"])
    with torch.inference_mode():
        timer.blocked_autorange(min_run_time=_WARM_UP_S)
        return float(timer.blocked_autorange(min_run_time=spec["seconds"]).median)


def _onnxruntime_profiler(spec: Mapping[str, Any]) -> float:
    """A session with the options of ours, whose own profiler times each ``model_run``."""
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        chosen = onnxruntime.SessionOptions()
        chosen.intra_op_num_threads = spec["threads"]
        chosen.inter_op_num_threads = 1
        chosen.add_session_config_entry("session.intra_op.allow_spinning", "0")
        chosen.enable_profiling = True
        chosen.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(spec["onnx"], chosen, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for name, array in _feed(spec).items():
            binding.bind_cpu_input(name, array)
        for output in session.get_outputs():
            binding.bind_output(output.name, "cpu")
        warm_up = _call_for(_WARM_UP_S, lambda: session.run_with_iobinding(binding))
        _call_for(spec["seconds"], lambda: session.run_with_iobinding(binding))
        events = json.loads(Path(session.end_profiling()).read_text())
    durations = [event["dur"] for event in events if event.get("name") == "model_run"]
    return _median(durations[warm_up:]) * 1e-6


def _benchmark_app(spec: Mapping[str, Any]) -> float:
    """OpenVINO's benchmark_app, one request at a time, and the median that it prints."""
    words = (
        f"-d CPU -hint none -nstreams 1 -nthreads {spec['threads']} -infer_precision f32 -api sync -nireq 1 "
        # Left to itself it takes three channels for an image, and feeds and converts bytes.
        f"-ip f32 -op f32 -t {math.ceil(spec['seconds'])}"
    )
    start = "from openvino.tools.benchmark.main import main; main()"
    command = [sys.executable, "-c", start, "-m", spec["onnx"], *words.split()]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    found = _MEDIAN.search(done.stdout)
    if found is None:
        raise RuntimeError(" ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]))
    return float(found[1]) * _UNITS[found[2]]


TOOLS: Mapping[str, Tool] = {
    tool.compiler: tool
    for tool in (
        Tool(name="torch.utils.benchmark", compiler="identity", measure=_torch_timer),
        Tool(name="ONNX Runtime's profiler", compiler="onnxruntime", measure=_onnxruntime_profiler),
        Tool(name="benchmark_app", compiler="openvino", measure=_benchmark_app),
    )
}
"""By the compiler of ours that runs the same."""


def _feed(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The very inputs that ngbkit feeds, by name."""
    inputs = [TensorSpec.from_json(one) for one in spec["inputs"]]
    arrays = feeds.draw(inputs, preparation.read_arrays(spec["examples"]), 1, spec["seed"])
    return {one.name: array for one, array in zip(inputs, arrays, strict=True)}


def _call_for(seconds: float, call: Callable[[], object]) -> int:
    """Call something until so many seconds have passed; how often that was."""
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        call()
        count += 1
    return count


def _median(values: list[float]) -> float:
    import numpy as np

    return float(np.median(values))


def main() -> None:
    """Measure with the tool that the command line names, and print the latency."""
    tool, spec = TOOLS[sys.argv[1]], json.loads(sys.argv[2])
    latency_s = tool.measure(spec)
    sys.stdout.write(f"\n{json.dumps({'latency_s': latency_s})}\n")


if __name__ == "__main__":
    main()
