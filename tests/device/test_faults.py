"""Faults of compilers: every trial of a plan ends with a record."""

from __future__ import annotations

import math
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import limit_s
from plans import build_spec, carry_out, measure, open_journal

from ngbkit.api import Sweep
from ngbkit.device import plan
from ngbkit.sweep.trials import ANCHOR
from ngbkit.workloads import cell
from ngbkit.workloads.base import Workload


def test_running_out_of_memory_beside_others_is_tried_again_alone(mlp: Workload) -> None:
    """A trial that runs out of memory among others is tried again alone."""
    records, events = carry_out(Sweep(mlp, ["identity", "hungry"], [1], repeats=12, threads=1))
    attempts = [event for event in events if event["kind"] == "stage" and "hungry" in event["text"]]

    assert 2 == len(attempts)
    assert "out-of-memory" == records["hungry", 1].status
    assert getattr(records["identity", 1], "interleaved", False)


def test_altered_weights_are_detected() -> None:
    """One tensor in the middle of a network set to zero is detected, and so are all rounded to bfloat16 as f32."""
    records, _ = carry_out(Sweep("resnet18", ["onnxruntime", "zeroed", "lowered"], [1], repeats=5))

    assert ["ok", "not-equivalent", "not-equivalent"] == [
        records[compiler, 1].status for compiler in ("onnxruntime", "zeroed", "lowered")
    ]


# The status, the stage and a part of the error, by faulty compiler.
HANGS_S = math.ceil(limit_s(3))
FAULTS = {
    "segfault": ("crashed", "compile", "SIGSEGV"),
    "hang": ("timeout", "compile", f"no answer to 'load' within {HANGS_S} s"),
    "hang-later": ("timeout", "measure", f"no answer to 'turn' within {HANGS_S} s"),
    "hungry": ("out-of-memory", "compile", "another 1 TiB"),
    "killed": ("crashed", "compile", "SIGKILL"),
    "wrong": ("not-equivalent", "check", "relative RMSE 0.01"),
    "refusing": ("unsupported", "compile", "no such chip here"),
    "raising": ("failed", "compile", "RuntimeError: it fell over"),
    'raising{"kind":"refusal"}': ("unsupported", "compile", "no kernel for Frobnicate"),
}


def test_whatever_a_compiler_does_the_sweep_goes_on(mlp: Workload) -> None:
    """Each fault is a failure with its own status, stage and reason, and sound compilers are still measured."""
    sweep = Sweep(mlp, ["identity", *FAULTS, "onnxruntime"], [2], repeats=40, threads=1, timeout_s=HANGS_S)
    records, events = carry_out(sweep)
    failures = {label: records[label, 2] for label in FAULTS}

    assert {"identity", "onnxruntime"} == {label for (label, _), record in records.items() if record.status == "ok"}
    for label, (status, stage, text) in FAULTS.items():
        failure = failures[label]
        assert (label, status, stage) == (label, failure.status, failure.stage), failure
        assert text in failure.error
        assert "\n" not in failure.error
    assert len(records) == len([event for event in events if event["kind"] == "record"])


def test_an_operator_that_no_compiler_knows_is_named_by_each(tmp_path: Path) -> None:
    """Every trial is `unsupported`, and its error names the operator."""
    import onnx
    from onnx import TensorProto, helper

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("x", "y")]
    graph = helper.make_graph(
        [helper.make_node("Frobnicate", ["x"], ["y"], domain="strange")], "g", *[[v] for v in values]
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("strange", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "strange.onnx")
    compilers = ["identity", "onnxruntime", "openvino", "tvm", "torchscript"]
    records, _ = carry_out(Sweep(str(tmp_path / "strange.onnx"), compilers, [1], repeats=5, threads=1))

    assert {"unsupported"} == {record.status for record in records.values()}
    for compiler in compilers[:-1]:
        assert "Frobnicate" in records[compiler, 1].error
    assert "needs a torch module" in records["torchscript", 1].error


EXPORT_KILLER = """
import os, signal, torch

class Net(torch.nn.Linear):
    def forward(self, x):
        if torch.compiler.is_compiling():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)

model = Net(4, 2)
input_shape = (4,)
"""


def test_an_export_that_ends_its_child_costs_only_what_needs_the_graph() -> None:
    """Eager is measured; a compiler that needs ONNX has the status of the export, so that it can be tried again."""
    (net,) = cell.from_source(EXPORT_KILLER, name="net")
    records, _ = carry_out(Sweep(net, ["identity", "onnxruntime"], [1, 2], repeats=5, threads=1))

    assert {"ok"} == {records["identity", size].status for size in (1, 2)}
    for size in (1, 2):
        failure = records["onnxruntime", size]
        assert ("crashed", "export") == (failure.status, failure.stage)
        assert "the export to ONNX: the child process was ended by SIGKILL" == failure.error


@pytest.mark.guard
def test_a_killed_export_costs_nothing(tmp_path: Path) -> None:
    """A killed export is tried once more."""
    mark = f"os.path.exists({str(tmp_path / 'mark')!r})"
    source = EXPORT_KILLER.replace("is_compiling():", f"is_compiling() and not {mark}:").replace(
        "os.kill(", f"open({str(tmp_path / 'mark')!r}, 'w').close(); os.kill("
    )
    (net,) = cell.from_source(source, name="net")
    records, _ = carry_out(Sweep(net, ["identity", "onnxruntime"], [1], repeats=5, threads=1))

    assert (tmp_path / "mark").exists()
    assert {"ok"} == {record.status for record in records.values()}


@pytest.mark.usefixtures("cold_servers")
@pytest.mark.parametrize("moment", ["preparing", "compiling"])
def test_killed_servers_cost_nothing_between_trials(mlp: Workload, moment: str) -> None:
    """Killed servers are replaced between trials when they are needed."""

    def publish(event: dict[str, Any]) -> None:
        if event["kind"] == "stage" and event["text"].startswith(moment):
            for process in psutil.Process().children():
                with suppress(psutil.ZombieProcess):  # of an earlier test
                    if "ngbkit.device.isolation.forkserver" in process.cmdline():
                        process.kill()
                        killed.append(process.pid)

    killed: list[int] = []
    sweep = Sweep(mlp, ["onnxruntime"], [1], repeats=5, threads=1)
    state = plan.carry_out(build_spec(sweep), publish)
    with open_journal() as journal:
        statuses = set(journal.statuses().values())

    assert killed
    assert ("finished", {"ok"}) == (state, statuses)


STARTER = """
import subprocess, torch
subprocess.Popen(["sleep", "86399"], start_new_session=True, env={"PATH": "/usr/bin:/bin"})
model = torch.nn.Linear(4, 2)
input_shape = (4,)
"""


def test_a_process_that_a_cell_starts_ends_with_its_trial() -> None:
    """A process that a cell starts ends with its trial, even in a session of its own."""
    (net,) = cell.from_source(STARTER, name="net")
    records, _ = carry_out(Sweep(net, ["identity"], [1], repeats=5, threads=1))
    command = ["sleep", "86399"]

    assert "ok" == records["identity", 1].status
    assert [] == [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"] == command]


@pytest.mark.usefixtures("cold_servers")
def test_no_child_outlives_the_plan(mlp: Workload) -> None:
    """After a plan only the warm fork servers remain."""
    earlier = set(psutil.Process().children(recursive=True))
    carry_out(Sweep(mlp, ["identity", "segfault", "hang"], [1], repeats=5, threads=1, timeout_s=HANGS_S))
    servers = set(psutil.Process().children(recursive=True)) - earlier

    assert servers
    assert all("ngbkit.device.isolation.forkserver" in server.cmdline() for server in servers)
    assert all(not server.children() for server in servers)


@pytest.mark.guard
def test_an_interrupt_stops_cleanly_and_keeps_the_records(mlp: Workload) -> None:
    """SIGINT ends the plan within the group in flight, which does not count as an attempt."""
    sweep = Sweep(mlp, ["identity", 'slow{"seconds":0.01}'], [1, 2], repeats=200, threads=1)
    recorded = threading.Event()

    def publish(event: dict[str, Any]) -> None:
        if event["kind"] == "record":
            recorded.set()
            # To the main thread, as in an engine: other threads here belong to runtimes that an engine never loads.
            threading.Timer(0.5, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()

    state = plan.carry_out(build_spec(sweep), publish)
    with open_journal() as journal:
        statuses = {key for key in journal.statuses() if not key.startswith(ANCHOR)}
        unfinished = {**journal.unfinished("measure"), **journal.unfinished("load")}

    assert "stopped" == state
    assert recorded.is_set()
    assert 2 == len(statuses)
    assert {} == unfinished


def test_a_trial_that_ended_its_engine_twice_is_recorded_as_crashed(mlp: Workload) -> None:
    """After two starts without a result it is not repeated, and the others are measured."""
    sweep = Sweep(mlp, ["identity", "onnxruntime"], [1], repeats=5, threads=1)
    guilty = sweep.trials()[1].id
    with open_journal(writable=True) as journal:
        journal.start([guilty], "load")
        journal.start([guilty], "load")
    records, _ = carry_out(sweep)

    assert "ok" == records["identity", 1].status
    assert "crashed" == records["onnxruntime", 1].status
    assert "2 times" in records["onnxruntime", 1].error


def test_a_group_that_ended_its_engine_twice_is_measured_one_by_one(mlp: Workload) -> None:
    """The guilty trial is unknown, so each runs alone before any is given up."""
    sweep = Sweep(mlp, ["identity", "onnxruntime"], [1], repeats=5, threads=1)
    with open_journal(writable=True) as journal:
        for _ in range(2):
            journal.start([trial.id for trial in sweep.trials()], "measure")
    records = measure(sweep)
    first, second = records["identity", 1], records["onnxruntime", 1]

    assert not set(first.rounds) & set(second.rounds)
