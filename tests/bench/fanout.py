"""Measures the cost of fan-out, and the load that a client sustains: ``python tests/bench/fanout.py``.

Run it on a quiet machine. It prints one line per figure, beside the target of the design, and asserts nothing.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import ipyparallel
import numpy as np
import psutil
from scripted import SAMPLES, draw_samples, find_send_time
from speed import Parts, report, run_parts, write_mlp


def measure_trial() -> None:
    """The overhead of a trial in a run on an engine, over a plan in this process."""
    from ngbkit import options
    from ngbkit.api import Sweep
    from ngbkit.cluster import engines
    from ngbkit.device import plan
    from ngbkit.device.spec import Spec

    warm, sweep = (Sweep(write_mlp(), ["identity", "onnxruntime"], sizes, repeats=3) for sizes in ([1], range(1, 21)))
    state_dir, events = options.get_state_dir(), list[Mapping[str, Any]]()

    def carry_out(grid: Any, run_id: str) -> float:
        began = time.perf_counter()
        plan.carry_out(Spec(run_id=run_id, device="cpu", state_dir=state_dir, sweep=grid), events.append)
        return time.perf_counter() - began

    warm.start().result()  # prepares the workload, measures the peaks, warms the engine's servers
    carry_out(warm, "warm")
    inside, outside = [], []
    for number in range(5):
        inside.append(carry_out(sweep, f"run{number}"))
        began = time.perf_counter()
        run = sweep.start(again=True)
        run.wait()
        outside.append(time.perf_counter() - began)
        assert run.error is None, run.error
    engines.close()
    extra = statistics.median(
        1000 * (engine - direct) / len(sweep) for direct, engine in zip(inside, outside, strict=True)
    )
    report(f"{len(sweep)} quick trials in this process, median of {len(inside)}", statistics.median(inside), "s")
    report("fan-out, a trial", extra, "ms", 50)


def measure_fleet(number: int = 100) -> None:
    """A hundred engines on loopback in one trust group: start, memory, latency of events, completeness."""
    labels = [f"d{index}" for index in range(number)]
    sweep = _build_scripted_sweep(25, labels)
    client = psutil.Process()
    tables = "".join(f'[{label}]\nlaunch = "local"\ntrust = "lab"\n' for label in labels)
    free, began = psutil.virtual_memory().available, time.perf_counter()
    with write_devices(tables), start_scripted_engines(labels, rate=1.0) as script:
        report(f"{number} engines in one trust group, started after", time.perf_counter() - began, "s")
        used = free - psutil.virtual_memory().available
        report("memory of an engine, with its share of the controller", used / number / 2**20, "MB")
        report("file descriptors of the client", client.num_fds(), "")
        for in_step in (False, True):
            script(rate=1.0, in_step=in_step)
            print(f"all engines report {'at the same times' if in_step else 'at times of their own'}:", flush=True)
            stream(sweep, number)


def stream(sweep: Any, target: float) -> None:
    """Run a scripted sweep; report its rate, the lags of events, what the client used, and what is missing."""
    client = psutil.Process()
    with listen() as listener:
        cpu_before, memory, began = sum(client.cpu_times()[:2]), client.memory_info().rss, time.perf_counter()
        psutil.cpu_percent()
        run = sweep.start()
        run.wait()
        wall, busy = time.perf_counter() - began, psutil.cpu_percent()
    lags, cpu_used = 1000 * np.array(listener.lags_s), sum(client.cpu_times()[:2]) - cpu_before
    report(f"{len(sweep):,} trials of these engines, trials a second", len(sweep) / wall, "a second", target)
    report(f"an event, until its subscribers have it, median of {len(lags):,}", np.median(lags), "ms", 50)
    report("the same, 99th percentile", np.percentile(lags, 99), "ms")
    report("records of lost events, recovered from the device's journal", listener.recovered, "", 0)
    report("CPU of the client meanwhile", 100 * cpu_used / wall, "% of a core")
    report("CPU of this machine, with its engines", busy, "% of all")
    report("memory of the client, beyond that before", (client.memory_info().rss - memory) / 2**20, "MB")
    _report_completeness(run)


class Listener:
    """The seconds from the publication of events to the notification of the last subscriber, and the lost records."""

    def __init__(self) -> None:
        self.lags_s = array("d")
        self.recovered = 0  # from the device's journal

    def record(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Record events whose subscribers have all been notified."""
        now = time.time()
        for event in events:
            sent = find_send_time(event)
            if sent == 0:
                self.recovered += 1
            elif sent is not None:
                self.lags_s.append(now - sent)


@contextmanager
def listen() -> Iterator[Listener]:
    """Listen to all events of runs."""
    from ngbkit.runs import Run

    listener, original = Listener(), Run._on_events

    def on_events(run: Run, events: Sequence[Mapping[str, Any]]) -> None:
        original(run, events)
        listener.record(events)

    Run._on_events = on_events  # type: ignore[method-assign, assignment]
    try:
        yield listener
    finally:
        Run._on_events = original  # type: ignore[method-assign]


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
def start_scripted_engines(labels: Sequence[str], rate: float) -> Iterator[Callable[..., None]]:
    """Start engines with scripted plans, each reporting `rate` trials a second.

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


def _build_scripted_sweep(batch_sizes: int, labels: Sequence[str]) -> Any:
    """A sweep of four compilers at so many batch sizes; without batch size 1 there are no anchors."""
    from ngbkit.api import Sweep
    from ngbkit.workloads.base import Workload

    network = Workload(name="net", source="timm", spec={"model": "net"})
    compilers = ["identity", "torchscript", "onnxruntime", "openvino"]
    return Sweep([network], compilers, range(2, batch_sizes + 2), devices=labels, repeats=SAMPLES)


PARTS: Parts = {"trial": measure_trial, "fleet": measure_fleet}

if __name__ == "__main__":
    run_parts(PARTS, __doc__)
