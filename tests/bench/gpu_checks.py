"""The checks of `gpu.py`, each in a process of its own, since one that has called CUDA cannot fork others that use it.

    python tests/bench/gpu_checks.py CHECK [COMPILER]

The last line that it prints is one JSON object: what was seen, with ``ok`` and one ``line`` for a reader.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnx.parser
from programs import compile_network, load_compiler

from ngbkit import registry
from ngbkit.compilers.base import Program
from ngbkit.device.timing.sampling import choose_block_size, sample
from ngbkit.errors import NgbkitError
from ngbkit.hardware import telemetry
from ngbkit.hardware.accelerators import events, probing
from ngbkit.hardware.accelerators.cuda import Driver
from ngbkit.testing.networks import relative_rmse, run_reference
from ngbkit.workloads import feeds, timm
from ngbkit.workloads.base import BATCH, Network, TensorSpec

ACCELERATOR = "cuda"
ROUNDS, SAMPLE_S = 30, 0.02
#: In f32 a product of 1024 factors errs by some 1e-7 of its size; with factors rounded to 10 bits by some 3e-4.
F32_ERROR, TF32_ERROR = 2e-5, 5e-5
ENERGY_S = 4.0
Result = dict[str, Any]


def build_resnet() -> Network:
    return timm.build(timm.model("resnet18"), {})


def build_products() -> Network:
    """Build a network of one convolution and one product, large enough for a GPU's matrix units."""
    import torch
    from torch import nn

    class Products(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = nn.Conv2d(128, 128, 3, padding=1, bias=False)
            self.product = nn.Linear(1024, 1024, bias=False)

        def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.convolution(image), self.product(image.flatten(2))

    torch.manual_seed(0)
    return Network(inputs=[TensorSpec(name="input", shape=(BATCH, 128, 32, 32))], module=Products().eval())


def compile_for_gpu(network: Network, compiler: str, batch_size: int, folder: Path, **options: Any) -> Program:
    return compile_network(network, compiler, folder, batch_size=batch_size, accelerator=ACCELERATOR, **options)


def check_machine() -> Result:
    """Describe the machine, and what each compiler lacks here."""
    gpu = probing.describe()
    names = registry.list_names(registry.COMPILERS)
    reasons = {name: load_compiler(name).unavailable(ACCELERATOR) for name in names}
    supporting = [name for name in names if ACCELERATOR in load_compiler(name).accelerators]
    packages = {str(package.name): package.version for package in metadata.distributions()}
    line = f"{gpu.get('name', 'no GPU')}, driver {gpu.get('driver_version', '?')}, Python {platform.python_version()}; "
    available = [name for name in supporting if not reasons[name]]
    return {
        "ok": bool(gpu),
        "line": line + f"compilers that work on it: {', '.join(available) or 'none'}",
        "gpu": gpu,
        "problem": telemetry.find_problem(f"{ACCELERATOR}:0"),
        "available": available,
        "unavailable": {name: reasons[name] for name in supporting if reasons[name]},
        "packages": packages,
    }


def check_clocks(compiler: str) -> Result:
    """Time by CUDA events and by the host's clock in turns, with the L2 cache warm and flushed."""
    rows, lines = [], []
    for batch_size in (1, 16):
        with TemporaryDirectory() as folder:
            program = compile_for_gpu(build_resnet(), compiler, batch_size, Path(folder))
            if program.enqueue is None:
                return {"ok": True, "line": "it has no call that only enqueues: the host's clock times it"}
            program.run()
            row = {"batch_size": batch_size, **time_by_both(program)}
        rows.append(row)
        lines.append(
            f"batch {batch_size}: {row['host_ms']:.3f} ms by the host, events {format_ratio(row['events_over_host'])} "
            f"of it, enqueueing {row['enqueue_over_events']:.2f} of the GPU's time, flushed L2 "
            f"{format_ratio(row['flushed_over_warm'])}"
        )
    # The events leave out the launch of the first kernel and the wait's return, and can hardly exceed the host's time.
    ok = all(0.3 < row["events_over_host"][1] < 1.02 for row in rows)
    return {"ok": ok, "line": "; ".join(lines), "rows": rows}


def time_by_both(program: Program) -> Result:
    methods = {
        "host": events.choose_method(program.enqueue, program.stream, gpu_timer="host", flush_l2=False),
        "events": events.choose_method(program.enqueue, program.stream, gpu_timer="events", flush_l2=False),
        "flushed": events.choose_method(program.enqueue, program.stream, gpu_timer="events", flush_l2=True),
    }
    driver = Driver(program.stream)

    def enqueue(calls: int) -> float:
        assert program.enqueue is not None
        start = time.perf_counter()
        for _ in range(calls):
            program.enqueue()
        elapsed = time.perf_counter() - start
        driver.synchronize()
        return elapsed / calls

    with program.within():
        for _ in range(20):
            program.run()
        block = choose_block_size(sample(program.run, 5, settle=2)[-1] * 1e-9, SAMPLE_S)
        rounds: dict[str, list[float]] = {name: [] for name in (*methods, "enqueue")}
        for _ in range(ROUNDS):
            for name, method in methods.items():
                measure, prepare = method.measure, method.prepare
                rounds[name] += sample(program.run, 1, block=block, settle=1, measure=measure, prepare=prepare)
            # Few calls: a full queue would make the CPU wait for the GPU.
            rounds["enqueue"].append(enqueue(min(block, 8)) * 1e9)
    return {
        "block": block,
        "host_ms": statistics.median(rounds["host"]) * 1e-6,
        "events_ms": statistics.median(rounds["events"]) * 1e-6,
        "events_over_host": compute_ratio(rounds["events"], rounds["host"]),
        "flushed_over_warm": compute_ratio(rounds["flushed"], rounds["events"]),
        "enqueue_over_events": compute_ratio(rounds["enqueue"], rounds["events"])[1],
    }


def check_graphs(compiler: str) -> Result:
    """Record a network's launches as a CUDA graph, compare its outputs, and time it beside plain launches in turns."""
    with TemporaryDirectory() as folder:
        network = build_resnet()
        plain = compile_for_gpu(network, compiler, 1, Path(folder) / "plain")
        captured = compile_for_gpu(network, compiler, 1, Path(folder) / "graph", cuda_graph=True)
        outputs = [program.fetch(program.run()) for program in (plain, captured)]
        rounds: tuple[list[float], list[float]] = ([], [])
        with plain.within():
            for _ in range(ROUNDS):
                for program, samples in zip((captured, plain), rounds, strict=True):
                    samples += sample(program.run, 1, block=10, settle=2)
    error = max(map(relative_rmse, outputs[0], outputs[1]))
    ratio = compute_ratio(*rounds)
    line = f"a graph takes {format_ratio(ratio)} of the time of plain launches; outputs differ by {error:.1e}"
    return {"ok": error < 1e-5, "line": line, "ratio": ratio, "error": error}


def check_precision(compiler: str) -> Result:
    """Compare products and convolutions with float64: in f32 none may round its factors, in tf32 they must."""
    network = build_products()
    errors: dict[str, float | str] = {}
    option = load_compiler(compiler).options.get("precision")
    choices = option.choices if option else ("f32",)
    for precision in (name for name in ("f32", "tf32") if name in choices):
        with TemporaryDirectory() as folder:
            options: dict[str, Any] = {"precision": precision} if option else {}
            try:
                program = compile_for_gpu(network, compiler, 4, Path(folder), **options)
            except NgbkitError as error:
                errors[precision] = str(error)
                continue
            arrays = feeds.draw(network.inputs, network.examples, 4, seed=0)
            outputs = program.fetch(program.run())
            errors[precision] = max(map(relative_rmse, run_reference(network, arrays), outputs))
    f32, tf32 = errors.get("f32", 0.0), errors.get("tf32")
    ok = isinstance(f32, float) and f32 < F32_ERROR and (not isinstance(tf32, float) or tf32 > TF32_ERROR)
    text = ", ".join(
        f"{name} {error:.1e}" if isinstance(error, float) else f"{name}: {error}" for name, error in errors.items()
    )
    return {"ok": ok, "line": f"relative error against float64: {text}", "errors": errors}


def check_energy(compiler: str) -> Result:
    """Compare the energy of the meter's turns with the GPU's own counter over the same calls, and with idle power."""
    chip = telemetry.open(f"{ACCELERATOR}:0")
    if chip is None:
        return {"ok": False, "line": telemetry.find_problem(f"{ACCELERATOR}:0")}
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)

    def read_counter() -> float:
        """Read the counter right after it has changed: it is updated every tenth of a second or so."""
        before = now = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        while now == before:
            time.sleep(0.001)
            now = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        return float(now) * 1e-3

    with TemporaryDirectory() as folder:
        program = compile_for_gpu(build_resnet(), compiler, 16, Path(folder))
        time.sleep(2)
        start, began = read_counter(), time.monotonic()
        time.sleep(1.5)
        idle_w = (read_counter() - start) / (time.monotonic() - began)
        meter = telemetry.Meter(chip)
        calls = 0
        with program.within():
            program.run()
            start, began = read_counter(), time.monotonic()
            with meter.record_turn():
                while time.monotonic() - began < ENERGY_S:
                    program.run()
                    calls += 1
            counter_j, busy_s = read_counter() - start, time.monotonic() - began
    use = meter.summarize()
    line = f"idle {idle_w:.0f} W; busy {counter_j / busy_s:.0f} W by its counter"
    if use.energy_j is None:
        return {"ok": False, "line": f"{line}; the meter reports no energy", "use": repr(use)}
    meter_w, counter_w = use.energy_j / use.turns_s, counter_j / busy_s
    ratio = meter_w / counter_w
    texts = [
        line,
        f"the meter's {meter_w:.0f} W are {ratio:.3f} of that",
        f"{use.energy_j / calls * 1e3:.1f} mJ a call of 16",
        f"{use.samples} readings in {use.turns_s:.1f} s",
        f"clock {use.clock_mhz} MHz, busy {use.gpu_percent:.0f} %" if use.gpu_percent is not None else "no clock",
        f"process memory {(use.process_memory_bytes or 0) / 1e6:.0f} MB",
        f"throttled: {', '.join(sorted(use.throttled)) or 'no'}",
    ]
    return {
        "ok": 0.9 < ratio < 1.1 and counter_w > idle_w,
        "line": "; ".join(texts),
        "ratio": ratio,
        "idle_w": idle_w,
        "use": repr(use),
        "chip": chip.describe(),
    }


def check_fallback() -> Result:
    """See that work on the CPU in place of the GPU is found: a node, a whole graph, a hidden GPU."""
    facts: Result = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        part = compile_chain("v = Relu(x) y = Det(v)", folder / "part")
        part.run()
        facts["part"] = part.explain().get("fallbacks")
        try:
            compile_chain("y = Det(x)", folder / "all")
            facts["all"] = "it compiled"
        except NgbkitError as error:
            facts["all"] = str(error)
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    probing.clear_cache()
    facts["hidden"] = {name: load_compiler(name).unavailable(ACCELERATOR) for name in ("identity", "onnxruntime")}
    ok = facts["part"] == 1 and "supports no node" in facts["all"] and all(facts["hidden"].values())
    line = f"one node on the CPU: {facts['part']} counted; all: {facts['all']}; hidden: {facts['hidden']['identity']}"
    return {"ok": ok, "line": line, **facts}


def compile_chain(nodes: str, folder: Path) -> Program:
    """Compile a chain of operators on 3 x 16 x 16 in ONNX Runtime."""
    head = '<ir_version: 10, opset_import: ["": 20]> chain (float[1, 3, 16, 16] x) => (float[1, 3] y)'
    folder.mkdir()
    onnx.save(onnx.parser.parse_model(f"{head} {{{nodes}}}"), folder / "chain.onnx")
    network = Network(inputs=[TensorSpec(name="x", shape=(BATCH, 3, 16, 16))])
    return compile_for_gpu(network, "onnxruntime", 1, folder, onnx=folder / "chain.onnx")


def check_memory(compiler: str) -> Result:
    """See what a network that does not fit the GPU's memory ends in."""
    library = ctypes.CDLL("libcuda.so.1")
    driver = Driver()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    library.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    driver.allocate(free.value - 600 * 2**20)
    from ngbkit.device.isolation import child

    with TemporaryDirectory() as folder:
        try:
            compile_for_gpu(build_resnet(), compiler, 256, Path(folder)).run()
            text, status = "it ran", ""
        except Exception as error:  # noqa: BLE001  whatever a runtime raises is to be seen
            text = f"{type(error).__name__}: {error}"
            status = str(child.describe_failure(error)["status"])
    return {"ok": status == "out-of-memory", "line": f"{status or 'no status'}: {text.splitlines()[0][:200]}"}


def compute_ratio(above: list[float], below: list[float]) -> tuple[float, float, float]:
    """Compute the median of the ratio by round, between the ends of its 95 % interval (bootstrap over rounds)."""
    ratios = np.divide(above, below)
    draws = np.median(np.random.default_rng(0).choice(ratios, (1000, len(ratios))), axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(np.median(ratios)), float(high)


def format_ratio(ratio: tuple[float, float, float]) -> str:
    return f"{ratio[1]:.3f} ({ratio[0]:.3f} to {ratio[2]:.3f})"


CHECKS: Mapping[str, Callable[..., Result]] = {
    "machine": check_machine,
    "clocks": check_clocks,
    "graphs": check_graphs,
    "precision": check_precision,
    "energy": check_energy,
    "fallback": check_fallback,
    "memory": check_memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", choices=CHECKS)
    parser.add_argument("compiler", nargs="?")
    args = parser.parse_args()
    result = CHECKS[args.check](*filter(None, [args.compiler]))
    print(json.dumps(result, default=repr), flush=True)


if __name__ == "__main__":
    main()
