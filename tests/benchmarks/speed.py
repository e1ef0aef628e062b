"""How fast ngbkit itself is. Run it on a quiet machine: ``make bench``.

Prints one line a figure: what was measured, beside the target of the design. Nothing here is asserted.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

PLUGINS = Path(__file__).parents[1] / "plugins"


def main() -> None:
    """Take the figures that were named on the command line, or all of them."""
    chosen = sys.argv[1:] or list(FIGURES)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NGBKIT_STATE_DIR"] = folder
        sys.path.insert(0, str(PLUGINS))
        for name in chosen:
            FIGURES[name]()


def tell(what: str, value: float, unit: str, target: float) -> None:
    """One line of the report."""
    print(f"{what:66s} {value:8.3f} {unit:12s} target {target:g}", flush=True)


def interleaved(rounds: int, **codes: str) -> dict[str, list[float]]:
    """Seconds that Python takes for each piece of code, as a whole process, in turns."""
    times: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(rounds):
        for name, code in codes.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times[name].append(time.perf_counter() - began)
    return times


def importing() -> None:
    """`import ngbkit`, over a Python that imports nothing."""
    times = interleaved(15, nothing="pass", ngbkit="import ngbkit")
    extra = statistics.median(a - b for a, b in zip(times["ngbkit"], times["nothing"], strict=True))
    tell("import ngbkit, beyond starting Python", extra, "s", 0.2)


def loading() -> None:
    """`%load_ext ngbkit` in a fresh shell, over a shell that loads nothing."""
    shell = "from IPython.core.interactiveshell import InteractiveShell as S; s = S.instance(); "
    load = shell + "s.run_line_magic('load_ext', 'ngbkit'); assert 'ngbench' in s.magics_manager.magics['cell']"
    times = interleaved(9, shell=shell, loaded=load)
    extra = statistics.median(a - b for a, b in zip(times["loaded"], times["shell"], strict=True))
    tell("%load_ext ngbkit, beyond starting IPython", extra, "s", 0.5)


def starting() -> None:
    """From nothing to an engine that has answered."""
    from ngbkit.cluster import engines

    times = []
    for _ in range(5):
        began = time.perf_counter()
        engines.engine().hello()
        times.append(time.perf_counter() - began)
        engines.close()
    tell("a local engine, from nothing to its first answer", statistics.median(times), "s", 3)


def harness() -> None:
    """What a trial costs beyond compiling, warm-up and calls, with warm fork servers and a prepared workload."""
    from ngbkit.cluster import engines
    from ngbkit.sweep.grid import Sweep
    from ngbkit.sweep.journal import Journal
    from ngbkit.sweep.records import Measurement

    def measure() -> float:
        compilers = ["identity", "torchscript", "onnxruntime", "openvino"]
        run = Sweep("resnet18", compilers, [1, 2], repeats=20).start()
        began = time.perf_counter()
        run.result()
        wall = time.perf_counter() - began
        with Journal(run.folder / "journal.sqlite", writable=False) as journal:
            found = [record for record in journal.records() if isinstance(record, Measurement)]
        inside = sum(one.compile_time_s + one.first_call_time_s + one.facts["called_s"] for one in found)
        return (wall - inside) / len(found)

    measure()  # prepares the workload and warms the servers
    tell(
        "harness a trial of resnet18, beyond compiling and calls",
        statistics.median(measure() for _ in range(3)),
        "s",
        0.5,
    )
    engines.close()


def idling() -> None:
    """CPU time of everything but the child that measures, while it measures."""
    from ngbkit.cluster import engines
    from ngbkit.sweep.grid import Sweep

    # The slow one sleeps in calls of 5 s, and the window lies within its turn: the others' own turns are no overhead.
    compilers = ["identity", "onnxruntime", 'slow{"seconds":5.0}']
    run = Sweep(_mlp(), compilers, [1], repeats=12, threads=1).start()
    while not run.progress.text.startswith("measuring"):
        run.wait_for_change(0.1)
    time.sleep(2)
    before, began = _cpu_times(), time.perf_counter()
    time.sleep(10)
    after, wall = _cpu_times(), time.perf_counter() - began
    run.stop()
    run.wait()
    # The slow compiler sleeps within its calls, so its child may be counted with the others.
    used = sum(after[key] - before[key] for key in after if key in before)
    tell("CPU of client, engine, servers and children while a child measures", 100 * used / wall, "% of a core", 1)
    engines.close()


def assembling() -> None:
    """A dataset of 100,000 trials of 30 samples from a journal, and its BSR."""
    import ngbkit.metrics  # noqa: F401  gives datasets their `ngb`
    from ngbkit.dataset import synthetic
    from ngbkit.dataset.assembly import assemble_rows
    from ngbkit.sweep.grid import Sweep
    from ngbkit.sweep.journal import Journal
    from ngbkit.workloads.base import Workload

    networks = [Workload(name=f"net{index}", source="timm", spec={"model": str(index)}) for index in range(2500)]
    compilers = ["identity", "torchscript", "inductor", "onnxruntime", "openvino"]
    sweep = Sweep(networks, compilers, [1, 2, 4, 8, 16, 32, 64, 128], repeats=30)
    with tempfile.TemporaryDirectory() as folder, Journal(Path(folder) / "journal.sqlite") as journal:
        journal.finish(synthetic.records(sweep))
        with clocked(f"a dataset of {len(sweep):,} trials from a journal", 5):
            found = assemble_rows(sweep, journal.rows())
    with clocked("its BSR", 1):
        found.ngb.bsr()


def estimating() -> None:
    """Five metrics with intervals, one call each, of 10,000 trials of 100 samples; and the memory that they take."""
    import tracemalloc

    import ngbkit.metrics  # noqa: F401  gives datasets their `ngb`
    from ngbkit.dataset import synthetic
    from ngbkit.sweep.grid import Sweep
    from ngbkit.workloads.base import Workload

    networks = [Workload(name=f"net{index}", source="timm", spec={"model": str(index)}) for index in range(250)]
    compilers = ["identity", "torchscript", "inductor", "onnxruntime", "openvino"]
    found = synthetic.dataset(Sweep(networks, compilers, [1, 2, 4, 8, 16, 32, 64, 128], repeats=100))

    def estimate() -> None:
        for name in ("throughput", "speedup", "rtr", "ase", "bsr"):
            getattr(found.ngb, name)(ci=0.95)

    estimate()  # imports what pandas and xarray import late
    with clocked(f"throughput, speedup, rtr, ase, bsr with intervals, {found['status'].size:,} trials", 5):
        estimate()
    tracemalloc.start()
    estimate()
    tell("memory beyond the dataset while they are computed", tracemalloc.get_traced_memory()[1] / 2**20, "MB", 500)
    tracemalloc.stop()


@contextmanager
def clocked(what: str, target: float) -> Iterator[None]:
    """Tell how long the block took."""
    began = time.perf_counter()
    yield
    tell(what, time.perf_counter() - began, "s", target)


def _cpu_times() -> dict[int, float]:
    """CPU seconds so far of this process and all that it started, near and far."""
    folder = os.environ["NGBKIT_STATE_DIR"]
    times = {}
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.environ().get("NGBKIT_STATE_DIR") == folder:
                times[process.pid] = sum(process.cpu_times()[:2])
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return times


def _mlp() -> str:
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


FIGURES: dict[str, Callable[[], None]] = {
    "importing": importing,
    "loading": loading,
    "starting": starting,
    "harness": harness,
    "idling": idling,
    "assembling": assembling,
    "estimating": estimating,
}

if __name__ == "__main__":
    main()
