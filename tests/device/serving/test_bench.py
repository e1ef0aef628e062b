"""A load test on a device, in the test's own process."""

from __future__ import annotations

import json
import os
import signal
import threading

import numpy as np
from plans import build_spec
from watching import Processes

from ngbkit import options
from ngbkit.api import Sweep
from ngbkit.device import plan
from ngbkit.device.serving.load import Load
from ngbkit.workloads.base import Workload


def build_request(workload: Workload, seconds: float, compiler: str = "onnxruntime") -> str:
    spec = build_spec(Sweep(workload, [compiler], [1, 4], repeats=3, threads=1))
    load = Load(rate=200.0, deadline=0.5, quantile=0.9, seconds=seconds)
    return json.dumps({"spec": spec.to_json(), "load": load.to_json()})


def test_all_requests_of_a_schedule_are_served(mlp: Workload) -> None:
    """In the order in which they came, by one process with all batch sizes; nothing is left behind."""
    reply = json.loads(plan.serve(build_request(mlp, 0.2)))

    assert "finished" == reply["state"]
    assert 10 <= len(reply["trials"])
    assert [True, False] * 5 == [trial["calibrates"] for trial in reply["trials"][:10]]
    for trial in reply["trials"]:
        assert len(trial["arrivals_s"]) == len(trial["latency_s"])
        assert sorted(trial["arrivals_s"]) == trial["arrivals_s"]
        assert min(trial["latency_s"]) > 0
        assert trial["lag_s"] >= 0
        completions = np.add(trial["arrivals_s"], trial["latency_s"])
        assert np.diff(completions).min() > -1e-6  # of clocks that count from the start of the machine
    scratch = options.get_state_dir() / "scratch"
    assert [] == [path for path in scratch.rglob("*") if path.name.startswith(("requests", "journal"))]


def test_a_signal_ends_a_load_test(mlp: Workload, processes: Processes) -> None:
    """Within a trial, and the generator with it."""
    timer = threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        reply = json.loads(plan.serve(build_request(mlp, 60.0)))
    finally:
        timer.cancel()

    assert {"state": "stopped"} == reply
    assert not processes("ngbkit.device.serving.generator")


def test_a_compiler_that_fails_is_the_answer(mlp: Workload) -> None:
    """With its error, and not an exception of the engine."""
    reply = json.loads(plan.serve(build_request(mlp, 1.0, "raising")))

    assert "error" == reply["state"]
    assert reply["error"]


def test_an_invalid_load_is_the_answer(mlp: Workload) -> None:
    """A client of another version is told what is wrong."""
    request = json.loads(build_request(mlp, 1.0))
    request["load"]["rate"] = 1e9

    reply = json.loads(plan.serve(json.dumps(request)))

    assert ("error", "UsageError") == (reply["state"], reply["kind"])
