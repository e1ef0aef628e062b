"""A load test on a device, in the test's own process."""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import threading

import pytest
from plans import build_spec

from ngbkit import options, validation
from ngbkit.api import Sweep
from ngbkit.device import plan
from ngbkit.device.serving.load import Load, LoadTest, find_bracket
from ngbkit.workloads.base import Workload


def build_request(workload: Workload, seconds: float, compiler: str = "onnxruntime") -> str:
    spec = build_spec(Sweep(workload, [compiler], [1, 4], repeats=3, threads=1))
    load = Load(deadline=0.01, quantile=0.5, seconds=seconds, limit=150.0)
    return json.dumps({"spec": spec.to_json(), "load": load.to_json()})


def test_loadgen_tests_a_network(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests are reported one by one, and their logs are deleted."""
    events: list[dict[str, object]] = []
    monkeypatch.setattr(plan, "_find_publisher", lambda: events.append)
    reply = json.loads(plan.serve(build_request(mlp, 0.2)))
    reported = [event["test"] for event in events if event["kind"] == "served"]
    tests = validation.parse(tuple[LoadTest, ...], reported)

    assert {"state": "finished"} == reply
    assert find_bracket(tests)[0] < find_bracket(tests)[1]
    for test in tests:
        assert 7 <= test.requests
        assert 1 <= test.calls <= test.requests
        assert 0 < test.latency < 5
        assert 0 < test.busy <= 1
        assert test.loadgen
    scratch = options.get_state_dir() / "scratch"
    assert [] == [path for path in scratch.rglob("*") if path.name.startswith(("loadgen", "journal"))]


def test_a_signal_ends_a_load_test(mlp: Workload) -> None:
    """The test in flight is abandoned."""
    timer = threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        reply = json.loads(plan.serve(build_request(mlp, 60.0)))
    finally:
        timer.cancel()

    assert {"state": "stopped"} == reply


def test_a_compiler_that_fails_is_the_answer(mlp: Workload) -> None:
    """The reply has the error of a compiler that fails, and the engine raises nothing."""
    reply = json.loads(plan.serve(build_request(mlp, 1.0, "raising")))

    assert "error" == reply["state"]
    assert reply["error"]


def test_a_device_without_loadgen_says_how_to_install_it(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra, or the processors that have LoadGen, before anything is compiled."""
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", None)
    errors = []
    for machine in ("x86_64", "aarch64"):
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        errors.append(json.loads(plan.serve(build_request(mlp, 1.0)))["error"])

    assert "pip install 'ngbkit[loadgen]'" in errors[0]
    assert errors[1].startswith("no LoadGen for aarch64")
