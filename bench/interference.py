"""Measures how well `ngbkit.hardware.conditions.InterferenceMonitor` detects contended turns, and its cost.

    python bench/interference.py [seconds]

A turn of a computing child is quiet if the machine was idle shortly before and after it, by a check independent of the
monitor; the same turn is measured beside one process that never stops computing. On a shared machine it waits for quiet
moments for as many seconds as given (300): run it a few times there. Nothing is asserted.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from ngbkit.hardware.conditions import Interference, InterferenceMonitor
from ngbkit.hardware.conditions.interference import FOREIGN, STEAL, WAITED
from ngbkit.hardware.resources import CpuClock

Turn = tuple[Interference, float]

SHARES = ("waited", "crowded", "foreign", "steal")
TURNS_S = (0.005, 0.02, 0.05, 0.2)
COUNT = 40
PATIENCE_S = 300.0
# The period before and after a turn in which the machine must be quiet, and the busy share below which it is.
MARGIN_S = 0.1
QUIET = 0.05

# Calls of about 3 ms by ONNX Runtime's threads, set as ngbkit sets them: no spinning.
CHILD = """
import sys, time
import numpy as np, onnx, onnxruntime
from onnx import TensorProto, helper
threads = int(sys.argv[1])
weights = [onnx.numpy_helper.from_array(np.full((64, 64, 3, 3), 1e-3, "f4"), f"w{i}") for i in range(3)]
nodes = [helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], pads=[1] * 4) for i in range(3)]
value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64, 56, 56])
graph = helper.make_graph(nodes, "convolutions", [value("x0")], [value("x3")], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
options.add_session_config_entry("session.intra_op.allow_spinning", "0")
session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
feeds = {"x0": np.ones((1, 64, 56, 56), "f4")}
for line in sys.stdin:
    began, calls = time.perf_counter(), 0
    while time.perf_counter() < began + float(line):
        session.run(None, feeds)
        calls += 1
    print((time.perf_counter() - began) / calls, flush=True)
"""


# Computes forever, and dies with its parent.
HOG = "import ctypes; ctypes.CDLL(None).prctl(1, 9)\nwhile True: pass"


def main() -> None:
    """Print a line for each number of threads and length of a turn."""
    cores = len(os.sched_getaffinity(0))
    deadline = time.monotonic() + float(sys.argv[1] if len(sys.argv) > 1 else PATIENCE_S)
    with ExitStack() as stack:
        hog = stack.enter_context(kill_at_end(subprocess.Popen([sys.executable, "-c", HOG])))
        hog.send_signal(signal.SIGSTOP)
        children = [start_child(stack, threads) for threads in (1, cores, 2 * cores)]
        cases = [Case(child, seconds) for child in children for seconds in TURNS_S]
        while time.monotonic() < deadline and (case := min(cases, key=lambda case: len(case.quiet))).incomplete:
            case.measure(hog)
        print(f"marked: waited > {WAITED:.0%}, foreign > {FOREIGN:.0%} or steal > {STEAL:.0%} of a turn; {cores} cores")
        shares = "".join(f"{name:>10s} 50%    95%" for name in SHARES)
        print(f"kind   threads  turn ms  turns  marked{shares}  call ms  mark us")
        for case in cases:
            cost = measure_cost_us(case.child.watch)
            report("quiet", case, case.quiet, cost)
            report("beside", case, case.beside, cost)


@contextmanager
def kill_at_end(process: subprocess.Popen[Any]) -> Iterator[subprocess.Popen[Any]]:
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Child:
    """A monitored process that takes turns."""

    threads: int
    process: subprocess.Popen[str]
    watch: InterferenceMonitor

    def run_turn(self, seconds: float) -> Turn:
        """Run a turn, and return its interference and the seconds of each call."""
        self.watch.begin_turn()
        call_s = request_calls(self.process, seconds)
        return self.watch.end_turn(), call_s


@dataclass
class Case:
    """Turns of one length of one child."""

    child: Child
    seconds: float
    quiet: list[Turn] = field(default_factory=list)
    beside: list[Turn] = field(default_factory=list)

    @property
    def incomplete(self) -> bool:
        return len(self.quiet) < COUNT

    def measure(self, hog: subprocess.Popen[Any]) -> None:
        """Measure a quiet turn and one beside the hog, if the machine is quiet around them."""
        if not is_quiet():
            return
        turn = self.child.run_turn(self.seconds)
        if not is_quiet():
            return
        self.quiet.append(turn)
        hog.send_signal(signal.SIGCONT)
        time.sleep(0.05)
        turn = self.child.run_turn(self.seconds)
        hog.send_signal(signal.SIGSTOP)
        if is_quiet():
            self.beside.append(turn)


def start_child(stack: ExitStack, threads: int) -> Child:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = stack.enter_context(kill_at_end(subprocess.Popen([sys.executable, "-c", CHILD, str(threads)], **pipes)))
    request_calls(process, 0.2)
    return Child(threads, process, InterferenceMonitor(process.pid))


def request_calls(process: subprocess.Popen[str], seconds: float) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    print(seconds, file=process.stdin, flush=True)
    return float(process.stdout.readline())


def is_quiet() -> bool:
    before = CpuClock.read()
    time.sleep(MARGIN_S)
    after = CpuClock.read()
    return after.busy - before.busy <= QUIET * (after.total - before.total)


def measure_cost_us(watch: InterferenceMonitor) -> float:
    times = []
    for _ in range(100):
        began = time.perf_counter()
        watch.begin_turn()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def report(kind: str, case: Case, turns: Sequence[Turn], cost: float) -> None:
    prefix = f"{kind:6s} {case.child.threads:7d} {case.seconds * 1e3:8.0f} {len(turns):6d}"
    if not turns:
        print(f"{prefix}  (the machine was never quiet)", flush=True)
        return
    marked = sum(interference.contended for interference, _ in turns) / len(turns)
    values = [[getattr(interference, name) for interference, _ in turns] for name in SHARES]
    shares = "".join(
        f"{compute_quantile(column, 0.5):14.1%} {compute_quantile(column, 0.95):6.1%}" for column in values
    )
    call = statistics.median(call_s for _, call_s in turns) * 1e3
    print(f"{prefix} {marked:7.1%}{shares} {call:8.2f} {cost:8.0f}", flush=True)


def compute_quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


if __name__ == "__main__":
    main()
