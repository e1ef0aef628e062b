"""Measures what the layout of memory changes: forks of one process, with its addresses and with drawn ones, in turns.

    python tests/bench/layout.py network.onnx --processes 12 --rounds 40

A line a program and a kind of fork: the standard deviation of the logarithm of the medians of its processes, and what
their rounds alone explain of it. The programs are a session of ONNX Runtime of one thread, and a product of 2 MB, with
memory ``kept`` as in a trial.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime as ort

from ngbkit.device.isolation import layout
from ngbkit.device.isolation.settings import build_child_settings
from ngbkit.device.timing.normal import MAD_SCALE
from ngbkit.sweep.memory import KEPT

# The calls of a turn, of each program.
CALLS = {"session": 6, "product": 60}


def build_programs(path: Path) -> Mapping[str, Callable[[], object]]:
    """Build the programs, in the process that calls them."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {
        each.name: np.zeros([size if isinstance(size, int) else 1 for size in each.shape], np.float32)
        for each in session.get_inputs()
    }
    values = np.random.default_rng(0).random(1 << 19, np.float32)
    product = np.empty_like(values)
    return {
        "session": lambda: session.run(None, feeds),
        "product": lambda: np.multiply(values, np.float32(1.5), out=product),
    }


def serve(path: Path, connection: Connection, *, draws: bool) -> None:
    """Time a turn of each program on request; end with the other side."""
    if draws:
        layout.draw()
    programs = build_programs(path)
    while connection.recv():
        connection.send({name: time_turn(call, CALLS[name]) for name, call in programs.items()})


def time_turn(call: Callable[[], object], calls: int) -> float:
    """The median seconds of a call, after two that settle."""
    durations = []
    for number in range(-2, calls):
        began = time.perf_counter()
        call()
        if number >= 0:
            durations.append(time.perf_counter() - began)
    return median(durations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", type=Path)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    settings = build_child_settings(1, os.environ, KEPT)
    if not settings.items() <= os.environ.items():  # which glibc reads when it is loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **settings})
    kinds = [draws for _ in range(args.processes) for draws in (False, True)]
    ends = []
    for draws in kinds:
        near, far = Pipe()
        get_context("fork").Process(
            target=serve, args=(args.network, far), kwargs={"draws": draws}, daemon=True
        ).start()
        ends.append(near)
    logs = np.empty((len(CALLS), len(ends), args.rounds))
    for number in range(args.rounds):
        for place in random.sample(range(len(ends)), len(ends)):
            ends[place].send(os.getpid())
            logs[:, place, number] = np.log([*ends[place].recv().values()])
    logs -= np.median(logs, axis=1, keepdims=True)  # the pace of the round
    for name, series in zip(CALLS, logs, strict=True):
        for draws in (False, True):
            rows = series[np.array(kinds) == draws]
            middles = np.median(rows, axis=-1)
            spread = MAD_SCALE * np.median(np.abs(rows - middles[:, None]), axis=-1)
            of_rounds = math.sqrt(math.pi / 2 / args.rounds) * float(np.median(spread))
            row = {"program": name, "layout": "drawn" if draws else "that of the server"}
            print(json.dumps({**row, "between": float(middles.std(ddof=1)), "of rounds": of_rounds}))


if __name__ == "__main__":
    main()
