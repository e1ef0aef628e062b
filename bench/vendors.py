"""The vendors' own benchmarks, each in a process of its own, on exactly the network and file that ngbkit measures.

``python bench/vendors.py TOOL SPEC`` prints the median latency as JSON on its last line.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prepared import build_network, draw_inputs

from ngbkit import registry
from ngbkit.compilers.base import Compiler
from ngbkit.errors import DeviceError, NgbkitError
from ngbkit.hardware import subprocesses
from ngbkit.workloads import feeds
from ngbkit.workloads.export import to_tensor
from ngbkit.workloads.subprocesses import SAFE_PATH, build_python_path

# The duration of the untimed calls; the spec says that of the timed ones.
_WARM_UP_S = 0.5
_TIMEOUT_S = 300.0
_MEDIAN = re.compile(r"Median:\s+([\d.]+) (ms|us)\b")
_UNITS = {"ms": 1e-3, "us": 1e-6}


class VendorError(NgbkitError):
    """A vendor's tool failed; the message quotes its last output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A vendor's benchmark, and which of our compilers runs the same computation."""

    name: str
    compiler: str
    # Measures the median latency in seconds of a spec as `prepare` returns it, with ``seconds``.
    measure: Callable[[Mapping[str, Any]], float]

    def missing(self) -> str:
        """Return why it does not run here and how to install it; empty where it runs."""
        compiler: Compiler = registry.load(registry.COMPILERS, self.compiler)
        return compiler.unavailable() or ""


def run(tool: str, spec: Mapping[str, Any], environment: Mapping[str, str]) -> float:
    """Run a tool (a key of `TOOLS`) in a process with that environment: its median latency in seconds at batch 1."""
    command = [sys.executable, __file__, tool, json.dumps(spec)]
    environment = {**environment, "PYTHONPATH": build_python_path()}
    try:
        return float(subprocesses.run_json(command, environment=environment, timeout_s=_TIMEOUT_S)["latency_s"])
    except (DeviceError, KeyError, TypeError) as error:
        raise VendorError(f"{TOOLS[tool].name} failed: {error}") from None


def _measure_with_torch_timer(spec: Mapping[str, Any]) -> float:
    """Time the uncompiled module with `torch.utils.benchmark.Timer`."""
    import torch
    from torch.utils.benchmark import Timer

    network = build_network(spec)
    inputs = tuple(to_tensor(array) for array in feeds.draw(network.inputs, network.examples, 1, spec["seed"]))
    with contextlib.suppress(RuntimeError):
        torch.set_num_interop_threads(1)
    torch.set_num_threads(spec["threads"])
    # It uses one thread by default, whatever the setting of torch.
    timer = Timer("module(*inputs)", globals={"module": network.module, "inputs": inputs}, num_threads=spec["threads"])
    with torch.inference_mode():
        timer.blocked_autorange(min_run_time=_WARM_UP_S)
        return float(timer.blocked_autorange(min_run_time=spec["seconds"]).median)


def _measure_with_onnxruntime_profiler(spec: Mapping[str, Any]) -> float:
    """Time each ``model_run`` of a session with our options by ONNX Runtime's own profiler."""
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = spec["threads"]
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(spec["onnx"], options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for tensor, array in zip(*draw_inputs(spec), strict=True):
            binding.bind_cpu_input(tensor.name, array)
        for output in session.get_outputs():
            binding.bind_output(output.name, "cpu")
        warm_up_calls = _call_for(_WARM_UP_S, lambda: session.run_with_iobinding(binding))
        _call_for(spec["seconds"], lambda: session.run_with_iobinding(binding))
        events = json.loads(Path(session.end_profiling()).read_text())
    durations = [event["dur"] for event in events if event.get("name") == "model_run"]
    return float(statistics.median(durations[warm_up_calls:])) * 1e-6


def _measure_with_benchmark_app(spec: Mapping[str, Any]) -> float:
    """Run OpenVINO's benchmark_app, one request at a time, and parse the median that it prints."""
    arguments = (
        f"-d CPU -hint none -nstreams 1 -nthreads {spec['threads']} -infer_precision f32 -api sync -nireq 1 "
        # By default it takes an input of three channels for an image, and feeds and converts bytes.
        f"-ip f32 -op f32 -t {math.ceil(spec['seconds'])}"
    )
    code = f"{SAFE_PATH}from openvino.tools.benchmark.main import main; main()"
    command = [sys.executable, "-c", code, "-m", spec["onnx"], *arguments.split()]
    process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    match = _MEDIAN.search(process.stdout)
    if match is None:
        raise RuntimeError(" ".join((process.stderr.strip() or process.stdout.strip()).splitlines()[-3:]))
    return float(match[1]) * _UNITS[match[2]]


TOOLS: Mapping[str, Tool] = {
    tool.compiler: tool
    for tool in (
        Tool(name="torch.utils.benchmark", compiler="identity", measure=_measure_with_torch_timer),
        Tool(name="ONNX Runtime's profiler", compiler="onnxruntime", measure=_measure_with_onnxruntime_profiler),
        Tool(name="benchmark_app", compiler="openvino", measure=_measure_with_benchmark_app),
    )
}
"""By our compiler that runs the same computation."""


def _call_for(seconds: float, call: Callable[[], object]) -> int:
    """Call repeatedly for some seconds; return the number of calls."""
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        call()
        count += 1
    return count


def main() -> None:
    """Measure with the tool on the command line, and print the latency."""
    tool, spec = TOOLS[sys.argv[1]], json.loads(sys.argv[2])
    latency_s = tool.measure(spec)
    sys.stdout.write(f"\n{json.dumps({'latency_s': latency_s})}\n")


if __name__ == "__main__":
    main()
