"""Measures the speed of ngbkit itself: ``make bench``, or ``python tests/bench/speed.py cell harness`` for some parts.

Run it on a quiet machine. It prints each figure beside the target of the design, and asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Parts = Mapping[str, Callable[[], None]]

_CELL = """%%ngbench -c identity,onnxruntime,openvino -b 1,4
import torch
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, {width}, 3), torch.nn.ReLU(), torch.nn.Conv2d({width}, {width}, 3), torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear({width}, 10),
)
input_shape = (3, 64, 64)
"""


def run_parts(parts: Parts, description: str) -> None:
    """Measure the parts named on the command line, or all, in a state folder of their own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of {', '.join(parts)} (default: all)")
    chosen = parser.parse_args().parts or list(parts)
    if unknown := set(chosen) - set(parts):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; expected {', '.join(parts)}")
    with tempfile.TemporaryDirectory() as folder:
        # The user's devices file and state folder are not read.
        os.environ["NGBKIT_STATE_DIR"] = folder
        os.chdir(folder)
        for name in chosen:
            parts[name]()


def report(title: str, value: float, unit: str, target: float | str = "-") -> None:
    """Print one figure."""
    aim = target if isinstance(target, str) else f"{target:g}"
    print(f"{title:76s} {value:10.3f} {unit:12s} target {aim}", flush=True)


def measure_start() -> None:
    """From nothing to the first answer of an engine."""
    from ngbkit.cluster import engines

    times = []
    for _ in range(5):
        began = time.perf_counter()
        engines.acquire().hello()
        times.append(time.perf_counter() - began)
        engines.close()
    report("a local engine, from nothing to its first answer", statistics.median(times), "s", 3)


def measure_harness() -> None:
    """The overhead of a trial beyond compiling, warm-up and calls, with warm fork servers and a prepared workload."""
    from ngbkit.api import Sweep
    from ngbkit.cluster import engines
    from ngbkit.sweep.journal import Journal
    from ngbkit.sweep.records import Measurement

    def measure() -> float:
        compilers = ["identity", "torchscript", "onnxruntime", "openvino"]
        run = Sweep("resnet18", compilers, [1, 2], repeats=20).start(again=True)
        began = time.perf_counter()
        run.result()
        wall = time.perf_counter() - began
        with Journal(run.folder / "journal.sqlite", writable=False) as journal:
            measurements = [record for record in journal.records() if isinstance(record, Measurement)]
        inside = sum(
            record.compile_time_s + record.first_call_time_s + record.facts["called_s"] for record in measurements
        )
        return float(wall - inside) / len(measurements)

    measure()  # prepares the workload and warms the servers
    report("harness a trial of resnet18, beyond compiling and calls", min(measure() for _ in range(3)), "s", 0.2)
    engines.close()


_JOIN = """import threading
for thread in threading.enumerate():
    if thread.name == "ngbkit-preload":
        thread.join()
"""


def measure_cells() -> None:
    """Cells of one small network with three compilers in a kernel: the first, changed ones, and one unchanged."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel()
    try:
        began = time.perf_counter()
        client.execute_interactive("%load_ext ngbkit")
        client.execute_interactive(_JOIN, timeout=120)
        report("torch and the runtimes are preloaded after %load_ext", time.perf_counter() - began, "s", 15)
        first = _run_cell(client, _CELL.format(width=8))
        changed = [_run_cell(client, _CELL.format(width=width)) for width in (16, 24, 32)]
        unchanged = _run_cell(client, _CELL.format(width=32))
        commented = _run_cell(client, _CELL.format(width=32).replace("input_shape", "# wide enough\ninput_shape"))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    for title, (table_s, end_s, _), targets in (
        ("the first cell of a kernel", first, (15, 20)),
        ("a changed network, the fastest of three", min(changed), (10, 10)),
        ("an unchanged cell", unchanged, (2, 2)),
        ("a changed comment", commented, (2, 2)),
    ):
        report(f"{title}, to its first table", table_s, "s", targets[0])
        report(f"{title}, to its end", end_s, "s", targets[1])
    for seconds, step in re.findall(r"(\d+) s (\w+)", min(changed)[2]):
        report(f"  of the changed network: {step}", float(seconds), "s")


def _run_cell(client: Any, cell: str) -> tuple[float, float, str]:
    """Run a cell; return the seconds to its first table and to its end, and where they went, as its result says."""
    began = time.perf_counter()
    tables = []
    steps = ""

    def listen(message: dict[str, Any]) -> None:
        nonlocal steps
        html = message["content"].get("data", {}).get("text/html", "")
        if "<table" in html:
            tables.append(time.perf_counter() - began)
        steps = next(iter(re.findall(r"\(([^()]* s measuring[^()]*)\)", html)), steps)

    reply = client.execute_interactive(cell, output_hook=listen, timeout=600)
    if reply["content"]["status"] != "ok" or not tables:
        raise RuntimeError(f"the cell gave no table: {reply['content']}")
    return tables[0], time.perf_counter() - began, steps


def _build_sweep(networks: int, repeats: int = 30) -> Any:
    """Build a sweep of five compilers and eight batch sizes."""
    from ngbkit.api import Sweep
    from ngbkit.workloads.base import Workload

    workloads = [Workload(name=f"net{index}", source="timm", spec={"model": str(index)}) for index in range(networks)]
    compilers = ["identity", "torchscript", "inductor", "onnxruntime", "openvino"]
    return Sweep(workloads, compilers, [1, 2, 4, 8, 16, 32, 64, 128], repeats=repeats)


def measure_estimates() -> None:
    """Five metrics with intervals, one call each, of 10,000 trials of 100 samples; and their peak memory."""
    import tracemalloc

    sys.path.append(str(Path(__file__).parents[1]))
    import synthetic

    import ngbkit.metrics  # noqa: F401  registers the accessor `ngb`

    data = synthetic.make_dataset(_build_sweep(250, repeats=100))

    def estimate() -> None:
        for name in ("throughput", "speedup", "rtr", "ase", "bsr"):
            getattr(data.ngb, name)(ci=0.95)

    estimate()  # imports what pandas and xarray import late
    with report_duration(f"throughput, speedup, rtr, ase, bsr with intervals, {data['status'].size:,} trials", 5):
        estimate()
    tracemalloc.start()
    estimate()
    report("memory beyond the dataset while they are computed", tracemalloc.get_traced_memory()[1] / 2**20, "MB", 500)
    tracemalloc.stop()


@contextmanager
def report_duration(title: str, target: float) -> Iterator[None]:
    """Report the duration of the block."""
    began = time.perf_counter()
    yield
    report(title, time.perf_counter() - began, "s", target)


def write_mlp() -> str:
    """Write a network of one small product, and return its path."""
    import onnx.parser

    text = """<ir_version: 10, opset_import: ["": 20]>
    mlp (float[batch, 16] x) => (float[batch, 16] y) { h = Relu(x) y = Softmax(h) }"""
    path = Path(os.environ["NGBKIT_STATE_DIR"]) / "mlp.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return str(path)


PARTS: Parts = {
    "start": measure_start,
    "cell": measure_cells,
    "harness": measure_harness,
    "estimate": measure_estimates,
}

if __name__ == "__main__":
    run_parts(PARTS, __doc__)
