"""Measures the cost of fan-out, and the load that a client sustains: ``python bench/fanout.py``.

Run it on a quiet machine. It prints one line per figure, beside the target of the design, and asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import ipyparallel
import numpy as np
import psutil
from event_lags import Pulse, listen

HERE = Path(__file__).parent
IN_PROCESS = "--in-process"


def main() -> None:
    """Measure the figures named on the command line, or all of them."""
    sys.path.insert(0, str(HERE.parent / "tests"))  # for `hosts`; Python itself puts this file's own folder there
    if sys.argv[1:2] == [IN_PROCESS]:
        carry_out_sweeps()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"one of {', '.join(FIGURES)} (default: all)")
    chosen = parser.parse_args().figures or list(FIGURES)
    if unknown := set(chosen) - set(FIGURES):
        parser.error(f"no such figure: {', '.join(sorted(unknown))}; expected {', '.join(FIGURES)}")
    with tempfile.TemporaryDirectory() as folder:
        # The user's devices file and state folder are not read.
        os.environ["NGBKIT_STATE_DIR"] = folder
        os.chdir(folder)
        for name in chosen:
            FIGURES[name]()


def report(title: str, value: float, unit: str, target: float | str) -> None:
    """Print one line of the report."""
    aim = target if isinstance(target, str) else f"{target:g}"
    print(f"{title:76s} {value:10.3f} {unit:12s} target {aim}", flush=True)


def measure_start() -> None:
    """From nothing to the first answer of an engine: here, and over ssh through a reverse tunnel."""
    from hosts import start_host  # type: ignore[import-not-found, unused-ignore]  # in tests

    report("a local engine, from nothing to its first answer", _time_start("cpu"), "s", 3)
    sbin = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
    if shutil.which("sshd", path=sbin) is None or os.geteuid() != 0:
        print("an engine over ssh: not measured; it needs sshd and root", flush=True)
        return
    folder = Path("ssh").absolute()
    far = f'[far]\nlaunch = "ssh"\nhost = "far"\npython = "{sys.executable}"\nstate_dir = "{folder}/state"\n'
    with write_devices(far), start_host(folder):
        report("an engine over ssh through a tunnel, from nothing to its first answer", _time_start("far"), "s", 4)


def _time_start(label: str) -> float:
    from ngbkit.cluster import engines

    times = []
    for _ in range(5):
        began = time.perf_counter()
        engines.acquire(label).hello()
        times.append(time.perf_counter() - began)
        engines.close()
    return statistics.median(times)


def measure_events() -> None:
    """From the publication of an event by an engine to the end of the notification of all subscribers."""
    sweep = _build_scripted_sweep(84)
    with listen() as listener, start_scripted_engines(["cpu"], rate=40):
        sweep.start().result()
    for kind in ("round", "record"):
        lags = 1000 * listener.lags(kind)
        report(f"a {kind} event, until its subscribers have it, median of {len(lags):,}", np.median(lags), "ms", 50)
        report(f"a {kind} event, until its subscribers have it, 99th percentile", np.percentile(lags, 99), "ms", 50)


def measure_trial() -> None:
    """The overhead of a trial in a run on an engine, over a plan in a process of its own."""
    from ngbkit.api import Sweep
    from ngbkit.cluster import engines

    warm, sweep = (Sweep(_write_mlp(), ["identity", "onnxruntime"], sizes, repeats=3) for sizes in ([1], range(1, 21)))
    warm.start().result()  # prepares the workload, measures the peaks, warms the engine's servers
    inside, outside = [], []
    with subprocess.Popen(
        [sys.executable, __file__, IN_PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        _request(process, warm, "warm")
        for number in range(5):
            inside.append(_request(process, sweep, f"run{number}"))
            began = time.perf_counter()
            run = sweep.start()
            run.wait()
            outside.append(time.perf_counter() - began)
            assert run.error is None, run.error
        process.communicate()
    engines.close()
    pairs = list(zip(inside, outside, strict=True))
    extra = statistics.median(1000 * (engine - direct) / len(sweep) for direct, engine in pairs)
    in_process = statistics.median(inside)
    report(f"{len(sweep)} quick trials in a process of their own, median of {len(pairs)}", in_process, "s", "-")
    report(
        "the same as a run on an engine, over that, median", statistics.median(b / a for a, b in pairs), "times", "-"
    )
    report("fan-out, a trial", extra, "ms", 50)


def _request(process: subprocess.Popen[str], sweep: Any, run_id: str) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([run_id, sweep.to_json()]) + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def carry_out_sweeps() -> None:
    """Carry out the sweep of each input line, and print the seconds of its plan."""
    from ngbkit import options
    from ngbkit.api import Sweep
    from ngbkit.device import plan
    from ngbkit.device.spec import Spec
    from ngbkit.files import Store

    state_dir = options.get_state_dir()
    events: list[Mapping[str, Any]] = []
    for line in sys.stdin:
        run_id, sweep_json = json.loads(line)
        sweep = Sweep.from_json(sweep_json, locate=Store(state_dir / "artifacts").locate)
        spec = Spec(run_id=run_id, device="cpu", state_dir=state_dir, sweep=sweep)
        began = time.perf_counter()
        plan.carry_out(spec, events.append)
        print(time.perf_counter() - began, flush=True)


def measure_eight() -> None:
    """Eight engines that together report a hundred trials a second, for a minute."""
    labels = [f"d{number}" for number in range(8)]
    sweep = _build_scripted_sweep(188, labels)
    client = psutil.Process()
    tables = "".join(f'[{label}]\nlaunch = "local"\n' for label in labels)
    with write_devices(tables), listen() as listener, start_scripted_engines(labels, rate=100 / 8):
        cpu_before, began = sum(client.cpu_times()[:2]), time.perf_counter()
        run = sweep.start()
        run.wait()
        wall = time.perf_counter() - began
        cpu_used = sum(client.cpu_times()[:2]) - cpu_before
    lags = listener.lags("record")
    report(f"{len(sweep):,} trials of eight engines, trials a second", len(sweep) / wall, "a second", "100")
    report("an event of these, until its subscribers have it, median", 1000 * np.median(listener.lags()), "ms", 50)
    report("the same, 99th percentile", 1000 * np.percentile(listener.lags(), 99), "ms", "-")
    report("the same, the slowest record of the last hundred", 1000 * lags[-100:].max(), "ms", 1000)
    report("records of lost events, recovered from the device's journal", listener.recovered, "", 0)
    report("CPU of the client meanwhile", 100 * cpu_used / wall, "% of a core", "-")
    _report_completeness(run)


def measure_fleet(number: int = 100) -> None:
    """A hundred engines on loopback in one trust group: start, memory, latency of events, completeness."""
    labels = [f"d{index}" for index in range(number)]
    sweep = _build_scripted_sweep(25, labels)
    client = psutil.Process()
    tables = "".join(f'[{label}]\nlaunch = "local"\ntrust = "lab"\n' for label in labels)
    memory, free = _read_memory_mb(), psutil.virtual_memory().available
    began = time.perf_counter()
    with write_devices(tables), start_scripted_engines(labels, rate=1.0) as script:
        report(f"{number} engines in one trust group, started after", time.perf_counter() - began, "s", "-")
        used = free - psutil.virtual_memory().available
        report("memory of an engine, with its share of the controller", used / number / 2**20, "MB", "-")
        names = [_read_name(child) for child in client.children(recursive=True)]
        report("processes of controllers", sum("ngbkit.cluster.controller" in name for name in names), "", "9")
        report("file descriptors of the client", client.num_fds(), "", "-")
        for in_step in (False, True):
            script(rate=1.0, in_step=in_step)
            print(f"all engines report {'at the same times' if in_step else 'at times of their own'}:", flush=True)
            with listen() as listener:
                cpu_before, began = sum(client.cpu_times()[:2]), time.perf_counter()
                psutil.cpu_percent()
                run = sweep.start()
                run.wait()
                wall, busy = time.perf_counter() - began, psutil.cpu_percent()
            cpu_used = sum(client.cpu_times()[:2]) - cpu_before
            lags = 1000 * listener.lags()
            report(f"{len(sweep):,} trials of these engines, trials a second", len(sweep) / wall, "a second", number)
            report(f"an event, until its subscribers have it, median of {len(lags):,}", np.median(lags), "ms", 50)
            report("the same, 99th percentile", np.percentile(lags, 99), "ms", "-")
            report("records of lost events, recovered from the device's journal", listener.recovered, "", 0)
            report("CPU of the client meanwhile", 100 * cpu_used / wall, "% of a core", "-")
            report("CPU of this machine, with its engines", busy, "% of all", "-")
            report("memory of the client, beyond that before", _read_memory_mb() - memory, "MB", "-")
            _report_completeness(run)


def _read_name(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def measure_many() -> None:
    """Twenty thousand trials through one run, as fast as its engine reports them."""
    from ngbkit.notebook.display import _throttle
    from ngbkit.runs.progress_display import describe, watch

    sweep = _build_scripted_sweep(5000)
    memory: dict[int, float] = {}
    with listen() as listener, start_scripted_engines(["cpu"], rate=None):
        run = sweep.start()
        terminal, notebook = Pulse(lambda run: len(describe(run))), Pulse(lambda run: len(describe(run)))
        run.subscribe(_throttle(notebook.beat))
        watcher = threading.Thread(target=watch, args=(run, terminal.beat))
        watcher.start()
        durations = []
        began = time.perf_counter()
        while not run.wait(0.02):
            began_call = time.perf_counter()
            progress = run.progress
            durations.append(time.perf_counter() - began_call)
            for share in (1, 10, 50):
                if progress.done >= progress.total * share / 100 and share not in memory:
                    memory[share] = _read_memory_mb()
        wall = time.perf_counter() - began
        watcher.join()
        memory[100] = _read_memory_mb()
        report(f"{len(sweep):,} trials of one engine, trials a second", len(sweep) / wall, "a second", "-")
        for share, used in sorted(memory.items()):
            report(f"memory of the client, beyond that at 1 %, at {share} %", used - memory[1], "MB", "-")
        report("memory of the client, from 10 % to the end", memory[100] - memory[10], "MB", 20)
        report("an event, until its subscribers have it, the slowest", listener.lags().max(), "s", "-")
        report("records of lost events, recovered from the device's journal", listener.recovered, "", "-")
        report("the longest time between two updates of a line of progress", terminal.longest_s, "s", 0.5)
        report("the longest time between two updates in a notebook", notebook.longest_s, "s", 0.5)
        report(f"the longest call of `progress`, of {len(durations):,}", max(durations), "s", 0.05)
        _report_completeness(run)
        calls, totals = zip(*(_time_stop(sweep.start()) for _ in range(3)), strict=True)
        report("the longest call of `stop` while records stream in, of 3", max(calls), "s", 0.5)
        report("from the longest `stop` to the end of its run, of 3", max(totals), "s", 0.5)


def _time_stop(run: Any) -> tuple[float, float]:
    """Return the duration of a call of `stop` in the middle of a run, and the time until its end."""
    while run.progress.done < 2000:
        run.wait_for_change(0.1)
    began = time.perf_counter()
    run.stop()
    requested = time.perf_counter()
    run.wait()
    return requested - began, time.perf_counter() - began


@contextmanager
def write_devices(tables: str) -> Iterator[None]:
    """Write a devices file in the current folder."""
    file = Path("devices.toml")
    file.touch(mode=0o600)
    file.write_text(tables)
    try:
        yield
    finally:
        file.unlink()


@contextmanager
def start_scripted_engines(labels: Sequence[str], rate: float | None) -> Iterator[Callable[..., None]]:
    """Start engines with scripted plans, each reporting `rate` trials a second; as many as possible if it is None.

    Yields a function that scripts them again: see `scripted.take_over`.
    """
    from ngbkit.cluster import engines

    def script(**settings: Any) -> None:
        # The engine finds the module as this process does: see `ngbkit.workloads.subprocesses.build_python_path`.
        take_over = ipyparallel.Reference("__import__('scripted').take_over")
        for engine in acquired:
            engine.view.apply_async(take_over, json.dumps(settings)).get(60)

    try:
        with ThreadPoolExecutor(len(labels)) as pool:
            acquired = list(pool.map(engines.acquire, labels))
        script(rate=rate)
        yield script
    finally:
        engines.close()


def _report_completeness(run: Any) -> None:
    """Report missing, wrong and duplicate records of a finished scripted run."""
    from scripted import draw_samples

    from ngbkit.sweep.journal import Journal

    expected = {trial.id for trial in run.sweep.trials()}
    path = run.folder / "journal.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        # A replaced record has a new number.
        ((last_row,),) = connection.execute("SELECT max(rowid) FROM results")
    with Journal(path, writable=False) as journal:
        decoded = list(journal.records())
    correct = sum(
        record.trial_id in expected and getattr(record, "latency_s", ()) == draw_samples(record.trial_id)
        for record in decoded
    )
    data = run.dataset()
    state = "" if run.error is None else f": {run.error}"
    print(f"the run has {run.state}{state}", flush=True)
    report("records missing in the journal", len(expected) - correct, "", 0)
    report("duplicate or wrong records", last_row - correct, "", 0)
    report("trials missing in the dataset", (data["status"] != "ok").sum().item(), "", 0)
    report("samples missing in the dataset", data["latency"].isnull().sum().item(), "", 0)


def _read_memory_mb() -> float:
    return float(psutil.Process().memory_info().rss / 2**20)


def _build_scripted_sweep(batch_sizes: int, labels: Sequence[str] = ("cpu",)) -> Any:
    """A sweep of four compilers at so many batch sizes; without batch size 1 there are no anchors."""
    from scripted import SAMPLES

    from ngbkit.api import Sweep
    from ngbkit.workloads.base import Workload

    network = Workload(name="net", source="timm", spec={"model": "net"})
    compilers = ["identity", "torchscript", "onnxruntime", "openvino"]
    return Sweep([network], compilers, range(2, batch_sizes + 2), devices=labels, repeats=SAMPLES)


def _write_mlp() -> str:
    from speed import _write_mlp

    return _write_mlp()


FIGURES: dict[str, Callable[[], None]] = {
    "start": measure_start,
    "events": measure_events,
    "trial": measure_trial,
    "eight": measure_eight,
    "fleet": measure_fleet,
    "many": measure_many,
}

if __name__ == "__main__":
    main()
