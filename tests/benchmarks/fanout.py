"""What fan-out costs, and what the client can take. Run it on a quiet machine: ``python tests/benchmarks/fanout.py``.

Prints one line a figure: what was measured, beside the target of the design. Nothing here is asserted.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
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

HERE = Path(__file__).parent
IN_PROCESS = "--in-process"


def main() -> None:
    """Take the figures that were named on the command line, or all of them."""
    sys.path.insert(0, str(HERE.parent))  # for `hosts`; Python itself puts this file's own folder there
    if sys.argv[1:2] == [IN_PROCESS]:
        carry_out_here()
        return
    chosen = sys.argv[1:] or list(FIGURES)
    with tempfile.TemporaryDirectory() as folder:
        # No devices file and no state folder of the user's is looked at.
        os.environ["NGBKIT_STATE_DIR"] = folder
        os.chdir(folder)
        for name in chosen:
            FIGURES[name]()


def tell(what: str, value: float, unit: str, target: float | str) -> None:
    """One line of the report."""
    aim = target if isinstance(target, str) else f"{target:g}"
    print(f"{what:76s} {value:10.3f} {unit:12s} target {aim}", flush=True)


def start() -> None:
    """From nothing to an engine that has answered: here, and over ssh through a reverse tunnel."""
    from hosts import sshd  # type: ignore[import-not-found, unused-ignore]  # in the folder above

    tell("a local engine, from nothing to its first answer", _ready("cpu"), "s", 3)
    sbin = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
    if shutil.which("sshd", path=sbin) is None or os.geteuid() != 0:
        print("an engine over ssh: not measured, which needs sshd and root", flush=True)
        return
    folder = Path("ssh").absolute()
    far = f'[far]\nlaunch = "ssh"\nhost = "far"\npython = "{sys.executable}"\nstate_dir = "{folder}/state"\n'
    with devices(far), sshd(folder):
        tell("an engine over ssh through a tunnel, from nothing to its first answer", _ready("far"), "s", 4)


def _ready(label: str) -> float:
    from ngbkit.cluster import engines

    times = []
    for _ in range(5):
        began = time.perf_counter()
        engines.engine(label).hello()
        times.append(time.perf_counter() - began)
        engines.close()
    return statistics.median(times)


def events() -> None:
    """From the moment at which an engine publishes an event to the end of the round of those who watch the run."""
    sweep = _scripted_sweep(84)
    with heard() as ear, scripted_engines(["cpu"], rate=40):
        sweep.start().result()
    for kind in ("round", "record"):
        lags = 1000 * ear.lags(kind)
        tell(f"a {kind} event, until its watchers have it, median of {len(lags):,}", np.median(lags), "ms", 50)
        tell(f"a {kind} event, until its watchers have it, 99th percentile", np.percentile(lags, 99), "ms", 50)


def trial() -> None:
    """What a trial costs more in a run on an engine than in a plan that is carried out in a process of its own."""
    from ngbkit.cluster import engines
    from ngbkit.api import Sweep

    warm, sweep = (Sweep(_mlp(), ["identity", "onnxruntime"], sizes, repeats=3) for sizes in ([1], range(1, 21)))
    warm.start().result()  # prepares the workload, takes the peaks, warms the engine's servers
    inside, outside = [], []
    with subprocess.Popen(
        [sys.executable, __file__, IN_PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as alone:
        _ask(alone, warm, "warm")
        for number in range(5):
            inside.append(_ask(alone, sweep, f"run{number}"))
            began = time.perf_counter()
            run = sweep.start()
            run.wait()
            outside.append(time.perf_counter() - began)
            assert run.error is None, run.error
        alone.communicate()
    engines.close()
    pairs = list(zip(inside, outside, strict=True))
    extra = statistics.median(1000 * (there - here) / len(sweep) for here, there in pairs)
    taken = statistics.median(inside)
    tell(f"{len(sweep)} quick trials in a process of their own, median of {len(pairs)}", taken, "s", "-")
    tell("the same as a run on an engine, over that, median", statistics.median(b / a for a, b in pairs), "times", "-")
    tell("fan-out, a trial", extra, "ms", 50)


def _ask(alone: subprocess.Popen[str], sweep: Any, run_id: str) -> float:
    assert alone.stdin is not None
    assert alone.stdout is not None
    alone.stdin.write(json.dumps([run_id, sweep.to_json()]) + "\n")
    alone.stdin.flush()
    return float(alone.stdout.readline())


def carry_out_here() -> None:
    """Carry out the sweep of each line that comes, and tell how many seconds its plan took."""
    from ngbkit import options
    from ngbkit.device import plan
    from ngbkit.device.spec import Spec
    from ngbkit.files import Store
    from ngbkit.api import Sweep

    state_dir = options.get_state_dir()
    told: list[Mapping[str, Any]] = []
    for line in sys.stdin:
        run_id, about = json.loads(line)
        sweep = Sweep.from_json(about, locate=Store(state_dir / "artifacts").locate)
        spec = Spec(run_id=run_id, device="cpu", state_dir=state_dir, sweep=sweep)
        began = time.perf_counter()
        plan.carry_out(spec, told.append)
        print(time.perf_counter() - began, flush=True)


def eight() -> None:
    """Eight engines that together tell of a hundred trials a second, for a minute."""
    labels = [f"d{number}" for number in range(8)]
    sweep = _scripted_sweep(188, labels)
    client = psutil.Process()
    tables = "".join(f'[{label}]\nlaunch = "local"\n' for label in labels)
    with devices(tables), heard() as ear, scripted_engines(labels, rate=100 / 8):
        before, began = sum(client.cpu_times()[:2]), time.perf_counter()
        run = sweep.start()
        run.wait()
        wall = time.perf_counter() - began
        used = sum(client.cpu_times()[:2]) - before
    lags = ear.lags("record")
    tell(f"{len(sweep):,} trials of eight engines, trials a second", len(sweep) / wall, "a second", "100")
    tell("an event of theirs, until its watchers have it, median", 1000 * np.median(ear.lags()), "ms", 50)
    tell("the same, 99th percentile", 1000 * np.percentile(ear.lags(), 99), "ms", "-")
    tell("the same, the slowest record of the last hundred", 1000 * lags[-100:].max(), "ms", 1000)
    tell("records whose event did not come, found in the device's journal", ear.found, "", 0)
    tell("CPU of the client meanwhile", 100 * used / wall, "% of a core", "-")
    _tell_completeness(run)


def many() -> None:
    """Twenty thousand trials through one run, as fast as its engine can tell of them."""
    from ngbkit.notebook.display import _throttle
    from ngbkit.runs.progress_display import describe, watch

    sweep = _scripted_sweep(5000)
    memory: dict[int, float] = {}
    with heard() as ear, scripted_engines(["cpu"], rate=None):
        run = sweep.start()
        line, cell = Pulse(lambda run: len(describe(run))), Pulse(lambda run: len(describe(run)))
        run.subscribe(_throttle(cell.beat))
        watcher = threading.Thread(target=watch, args=(run, line.beat))
        watcher.start()
        asked = []
        began = time.perf_counter()
        while not run.wait(0.02):
            before = time.perf_counter()
            now = run.progress
            asked.append(time.perf_counter() - before)
            for share in (1, 10, 50):
                if now.done >= now.total * share / 100 and share not in memory:
                    memory[share] = _memory_mb()
        wall = time.perf_counter() - began
        watcher.join()
        memory[100] = _memory_mb()
        tell(f"{len(sweep):,} trials of one engine, trials a second", len(sweep) / wall, "a second", "-")
        for share, used in sorted(memory.items()):
            tell(f"memory of the client, beyond that at 1 %, at {share} %", used - memory[1], "MB", "-")
        tell("memory of the client, from 10 % to the end", memory[100] - memory[10], "MB", 20)
        tell("an event, until its watchers have it, the slowest", ear.lags().max(), "s", "-")
        tell("records whose event did not come, found in the device's journal", ear.found, "", "-")
        tell("the longest time between two updates of a line of progress", line.longest_s, "s", 0.5)
        tell("the longest time between two updates in a notebook", cell.longest_s, "s", 0.5)
        tell(f"the longest call of `progress`, of {len(asked):,}", max(asked), "s", 0.05)
        _tell_completeness(run)
        calls, ends = zip(*(_stop(sweep.start()) for _ in range(3)), strict=True)
        tell("the longest call of `stop` while records stream in, of 3", max(calls), "s", 0.5)
        tell("from the longest `stop` to the end of its run, of 3", max(ends), "s", 0.5)


def _stop(run: Any) -> tuple[float, float]:
    """How long it takes to ask a run that has come far to stop, and until it has."""
    while run.progress.done < 2000:
        run.wait_for_change(0.1)
    began = time.perf_counter()
    run.stop()
    asked = time.perf_counter()
    run.wait()
    return asked - began, time.perf_counter() - began


class Pulse:
    """Calls something whenever it is called itself, and knows the longest time that it was not."""

    def __init__(self, act: Callable[[Any], object]) -> None:
        self.longest_s, self._act, self._last = 0.0, act, 0.0

    def beat(self, run: Any) -> None:
        """Once more."""
        self._act(run)
        now = time.perf_counter()
        if self._last:
            self.longest_s = max(self.longest_s, now - self._last)
        # Before the first record there is nothing to show.
        self._last = now if run.progress.done else 0.0


class Ear:
    """How long events took, in the order in which they came, by kind."""

    def __init__(self) -> None:
        self._lags: dict[str, array[float]] = {}
        #: Records whose event never came, and that were found in the device's journal.
        self.found = 0

    def hear(self, told: Sequence[Mapping[str, Any]]) -> None:
        """Take note of events that everybody has been told of by now."""
        from scripted import sent_at

        now = time.time()
        for event in told:
            sent = sent_at(event)
            if sent == 0:
                self.found += 1
            elif sent is not None:
                self._lags.setdefault(event["kind"], array("d")).append(now - sent)

    def lags(self, kind: str | None = None) -> np.ndarray:
        """Seconds from publishing an event until the last who watch the run were told of it."""
        return np.concatenate([np.array(lags) for name, lags in self._lags.items() if kind in (None, name)])


@contextmanager
def heard() -> Iterator[Ear]:
    """Listens to all that runs are told."""
    from ngbkit.runs import Run

    ear, take = Ear(), Run._on_events

    def on_events(run: Run, told: Sequence[Mapping[str, Any]]) -> None:
        take(run, told)
        ear.hear(told)

    Run._on_events = on_events  # type: ignore[method-assign, assignment]
    try:
        yield ear
    finally:
        Run._on_events = take  # type: ignore[method-assign]


@contextmanager
def devices(tables: str) -> Iterator[None]:
    """A devices file in the current folder."""
    file = Path("devices.toml")
    file.touch(mode=0o600)
    file.write_text(tables)
    try:
        yield
    finally:
        file.unlink()


@contextmanager
def scripted_engines(labels: Sequence[str], rate: float | None) -> Iterator[None]:
    """Engines whose plans are scripted, each telling of so many trials a second; of as many as go where it is None."""
    from ngbkit.cluster import engines

    try:
        with ThreadPoolExecutor(len(labels)) as pool:
            found = list(pool.map(engines.engine, labels))
        for one in found:
            # It finds the module as this process does: see `ngbkit.cluster.hub.python_path`.
            take_over = ipyparallel.Reference("__import__('scripted').take_over")
            one.view.apply_async(take_over, json.dumps({"rate": rate})).get(60)
        yield
    finally:
        engines.close()


def _tell_completeness(run: Any) -> None:
    """What is missing of a scripted run that has ended, what is wrong, and what came twice."""
    from scripted import samples

    from ngbkit.sweep.journal import _connect, decode

    expected = {trial.id for trial in run.sweep.trials()}
    with closing(_connect(run.folder / "journal.sqlite")) as journal:
        # A record that replaces another gets a new number.
        ((number,),) = journal.execute("SELECT max(rowid) FROM results")
        found = [decode(row) for row in journal.execute("SELECT trial_id, record, latency, rounds FROM results")]
    right = sum(one.trial_id in expected and getattr(one, "latency_s", ()) == samples(one.trial_id) for one in found)
    data = run.dataset()
    state = "" if run.error is None else f": {run.error}"
    print(f"the run has {run.state}{state}", flush=True)
    tell("records that the journal lacks", len(expected) - right, "", 0)
    tell("records that it has twice, or that are wrong", number - right, "", 0)
    tell("trials that the dataset lacks", (data["status"] != "ok").sum().item(), "", 0)
    tell("samples that the dataset lacks", data["latency"].isnull().sum().item(), "", 0)


def _memory_mb() -> float:
    return float(psutil.Process().memory_info().rss / 2**20)


def _scripted_sweep(batch_sizes: int, labels: Sequence[str] = ("cpu",)) -> Any:
    """A sweep of four compilers at so many batch sizes; without batch size 1 there are no anchors."""
    from scripted import SAMPLES

    from ngbkit.api import Sweep
    from ngbkit.workloads.base import Workload

    network = Workload(name="net", source="timm", spec={"model": "net"})
    compilers = ["identity", "torchscript", "onnxruntime", "openvino"]
    return Sweep([network], compilers, range(2, batch_sizes + 2), devices=labels, repeats=SAMPLES)


def _mlp() -> str:
    from speed import _mlp

    return _mlp()


FIGURES: dict[str, Callable[[], None]] = {
    "start": start,
    "events": events,
    "trial": trial,
    "eight": eight,
    "many": many,
}

if __name__ == "__main__":
    main()
