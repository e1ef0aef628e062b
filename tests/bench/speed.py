"""Measures the speed of ngbkit itself: ``make bench``, or ``python tests/bench/speed.py cell harness`` for some parts.

Run it on a quiet machine. It prints a table of all figures, beside the targets of the design and what else ran, and it
asserts nothing. `results/speed.json` keeps them: without names it measures the parts that this commit lacks.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from ngbkit.hardware import conditions

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "tests" / "plugins"
SHELL = Path(sys.executable).with_name("ngbkit")
RESULTS = ROOT / "results" / "speed.json"

_CELL = """%%ngbench -c identity,onnxruntime,openvino -b 1,4
import torch
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, {width}, 3), torch.nn.ReLU(), torch.nn.Conv2d({width}, {width}, 3), torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear({width}, 10),
)
input_shape = (3, 64, 64)
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table; `target` is None for a part of another figure."""

    title: str
    value: float
    unit: str
    target: float | None

    def format(self) -> str:
        target = "" if self.target is None else f"target {self.target:g}"
        return f"{self.title:66s} {self.value:8.3f} {self.unit:12s} {target:12s}"


_figures: list[Figure] = []


def main() -> None:
    """Measure the parts named on the command line, or those without figures of this commit, and print all."""
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        parts = stored["parts"] if stored.get("commit") == commit else {}
        for name in sys.argv[1:] or [name for name in PARTS if name not in parts]:
            parts[name] = measure_part(name)
            RESULTS.write_text(json.dumps({"commit": commit, "parts": parts}, indent=1))
    print()
    for part in parts.values():
        for index, fields in enumerate(part["figures"]):
            print(Figure(**fields).format(), "" if index else part["disturbance"])


def measure_part(name: str) -> dict[str, Any]:
    """Measure a part in a state folder of its own; return its figures and what else ran just before and after it."""
    _figures.clear()
    before = describe_disturbance()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NGBKIT_STATE_DIR"] = folder
        sys.path.insert(0, str(PLUGINS))
        PARTS[name]()
    return {
        "figures": [asdict(figure) for figure in _figures],
        "disturbance": f"beside {before} before, {describe_disturbance()} after",
    }


def describe_disturbance() -> str:
    """Describe what runs on this machine, in percent of all cores."""
    observed = conditions.observe(1.0)
    names = " ".join(observed["busiest"])
    return f"{observed['other_busy_percent'] or 0:.0f} % ({names})" if names else "nothing"


def report(title: str, value: float, unit: str, target: float | None) -> None:
    """Add a figure, and print it."""
    _figures.append(Figure(title, value, unit, target))
    print(_figures[-1].format(), flush=True)


def time_interleaved(rounds: int, **codes: str) -> dict[str, list[float]]:
    """Time each piece of code as a Python process, interleaved."""
    times: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(rounds):
        for name, code in codes.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times[name].append(time.perf_counter() - began)
    return times


def measure_import() -> None:
    """`import ngbkit`, beyond a Python that imports nothing."""
    times = time_interleaved(15, nothing="pass", ngbkit="import ngbkit")
    extra = statistics.median(a - b for a, b in zip(times["ngbkit"], times["nothing"], strict=True))
    report("import ngbkit, beyond starting Python", extra, "s", 0.2)


def measure_load() -> None:
    """`%load_ext ngbkit` in a new shell, beyond a shell that loads nothing."""
    shell = "from IPython.core.interactiveshell import InteractiveShell as S; s = S.instance(); "
    load = shell + "s.run_line_magic('load_ext', 'ngbkit'); assert 'ngbench' in s.magics_manager.magics['cell']"
    times = time_interleaved(9, shell=shell, loaded=load)
    extra = statistics.median(a - b for a, b in zip(times["loaded"], times["shell"], strict=True))
    report("%load_ext ngbkit, beyond starting IPython", extra, "s", 0.5)


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


def measure_child_start() -> None:
    """From the request for a child of a warm fork server with torch to the child's first answer, the fastest of ten."""
    from ngbkit.device.isolation.servers import Servers
    from ngbkit.device.isolation.settings import build_child_settings
    from ngbkit.device.world import World

    world = World.capture()
    environment = {**os.environ, **build_child_settings(os.cpu_count() or 1)}
    servers = Servers(environment=environment, folder=Path(os.environ["NGBKIT_STATE_DIR"], "servers"), world=world)
    servers.get(["torch"]).wait_until_ready()
    times = []
    for _ in range(10):
        began = time.perf_counter()
        child = servers.fork(["torch"])
        child.ask({"op": "usage"}, 60)
        times.append(time.perf_counter() - began)
        child.end()
    servers.close()
    report("a child of a warm fork server with torch, to its first answer", min(times), "s", 0.1)


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
        report(f"  of the changed network: {step}", float(seconds), "s", None)


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


def measure_idle_load() -> None:
    """The CPU time of all processes but the measuring child while it measures."""
    from ngbkit.api import Sweep
    from ngbkit.cluster import engines

    # The slow compiler sleeps in calls of 5 s, and the window is within its turn: the turns of others are no overhead.
    compilers = ["identity", "onnxruntime", 'slow{"seconds":5.0}']
    run = Sweep(_write_mlp(), compilers, [1], repeats=12, threads=1).start()
    while not run.progress.text.startswith("measuring"):
        run.wait_for_change(0.1)
    time.sleep(2)
    times_before, began = _read_cpu_times(), time.perf_counter()
    time.sleep(10)
    times_after, wall = _read_cpu_times(), time.perf_counter() - began
    run.stop()
    run.wait()
    # The slow compiler sleeps in its calls, so that its child may count as overhead.
    used = sum(times_after[key] - times_before[key] for key in times_after if key in times_before)
    report("CPU of client, engine, servers and children while a child measures", 100 * used / wall, "% of a core", 1)
    engines.close()


def measure_assembly() -> None:
    """A dataset of 100,000 trials of 30 samples from a journal and from a file, and its BSR."""
    import ngbkit.metrics  # noqa: F401  registers the accessor `ngb`
    from ngbkit.dataset import storage, synthetic
    from ngbkit.dataset.assembly import assemble_journal
    from ngbkit.sweep.journal import Journal

    sweep = _build_sweep(2500)
    with tempfile.TemporaryDirectory() as folder, Journal(Path(folder) / "journal.sqlite") as journal:
        journal.finish(synthetic.make_records(sweep))
        with report_duration(f"a dataset of {len(sweep):,} trials from a journal", 5):
            data = assemble_journal(sweep, journal)
        file = storage.save(data, Path(folder) / "data.nc")
        with report_duration("the same from a file", 5):
            storage.load(file)
    with report_duration("its BSR", 1):
        data.ngb.bsr()


def measure_display() -> None:
    """`ngbkit show` of a file of 20,000 trials, with its tables and its verdict."""
    from ngbkit.dataset import storage, synthetic

    sweep = _build_sweep(500)
    file = storage.save(synthetic.make_dataset(sweep), Path(os.environ["NGBKIT_STATE_DIR"]) / "shown.nc")
    with report_duration(f"`ngbkit show` of {len(sweep):,} trials", 2):
        subprocess.run([SHELL, "show", file], check=True, stdout=subprocess.DEVNULL)


def measure_listing() -> None:
    """`ngbkit runs` with 10,000 runs, whose summaries the index has."""
    from ngbkit.api import Sweep
    from ngbkit.cluster import engines
    from ngbkit.runs.folders import get_runs_dir

    run = Sweep(_write_mlp(), ["identity"], [1], repeats=10).start()
    run.result()
    engines.close()
    for number in range(10_000):
        shutil.copytree(run.folder, get_runs_dir() / f"20250101-000000-{number:04x}")
    time.sleep(3)  # the index trusts no file that was just written
    subprocess.run([SHELL, "runs", "--all"], check=True, stdout=subprocess.DEVNULL)
    with report_duration("`ngbkit runs` of 10,000 runs", 1):
        subprocess.run([SHELL, "runs"], check=True, stdout=subprocess.DEVNULL)


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

    import ngbkit.metrics  # noqa: F401  registers the accessor `ngb`
    from ngbkit.dataset import synthetic

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


def _read_cpu_times() -> dict[int, float]:
    """Return the CPU seconds so far of this process and of all processes with its state folder."""
    folder = os.environ["NGBKIT_STATE_DIR"]
    times = {}
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.environ().get("NGBKIT_STATE_DIR") == folder:
                times[process.pid] = sum(process.cpu_times()[:2])
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return times


def _write_mlp() -> str:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(weight, "w")],
    )
    path = Path(os.environ["NGBKIT_STATE_DIR"]) / "mlp.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return str(path)


PARTS: dict[str, Callable[[], None]] = {
    "import": measure_import,
    "load": measure_load,
    "start": measure_start,
    "child": measure_child_start,
    "cell": measure_cells,
    "harness": measure_harness,
    "idle": measure_idle_load,
    "assemble": measure_assembly,
    "show": measure_display,
    "list": measure_listing,
    "estimate": measure_estimates,
}

if __name__ == "__main__":
    main()
