"""A plan on a device: every trial ends in a record, whatever its compiler does."""

from __future__ import annotations

import json
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from ngbkit import options, records
from ngbkit.artifacts import Store
from ngbkit.device import groups, plan
from ngbkit.device.settings import KEPT_MEMORY, SPIN_COUNT
from ngbkit.device.spec import Spec
from ngbkit.errors import FencedError
from ngbkit.journal import Journal
from ngbkit.records import Failure, Measurement, Record
from ngbkit.sweep import ANCHOR, Sweep
from ngbkit.workloads import cell
from ngbkit.workloads.base import Workload


@pytest.fixture(autouse=True)
def _cold_servers() -> Any:
    """Fork servers end with the test that started them."""
    yield
    for servers in groups._servers.values():
        servers.close()
    groups._servers.clear()


def spec(sweep: Sweep, **more: Any) -> Spec:
    store = Store(options.state_dir() / "artifacts")
    for workload in sweep.workloads:
        for path in workload.artifacts.values():
            store.push(path)
    return Spec(run_id="run", device="cpu", state_dir=options.state_dir(), sweep=sweep, **more)


def carry_out(sweep: Sweep, **more: Any) -> tuple[dict[tuple[str, int], Record], list[dict[str, Any]]]:
    """The records of a plan by compiler and batch size, and its events."""
    events: list[dict[str, Any]] = []
    assert plan.carry_out(spec(sweep, **more), events.append) == "finished"
    trials = {trial.id: (trial.compiler, trial.batch_size) for trial in sweep.trials()}
    with Journal(plan.journal_path(options.state_dir(), "cpu", "run"), writable=False) as journal:
        found = {trials[record.trial_id]: record for record in journal.records() if record.trial_id in trials}
    return found, events


def test_every_compiler_of_a_group_is_measured_in_the_same_rounds(mlp: Workload) -> None:
    """Samples are kept, as many as asked for, and each compiler has its share of every round."""
    found, _ = carry_out(Sweep(mlp, ["identity", "onnxruntime"], [1, 3], repeats=24, threads=1))

    assert {("identity", 1), ("onnxruntime", 1), ("identity", 3), ("onnxruntime", 3)} == set(found)
    for record in found.values():
        assert isinstance(record, Measurement)
        assert 24 == len(record.latency_s)
        assert all(sample > 0 for sample in record.latency_s)
        assert tuple(number // 2 for number in range(24)) == record.rounds
        assert record.compile_time_s > 0
        assert record.peak_memory_bytes is not None
        assert 1e-4 > record.rmse


@pytest.mark.parametrize("chosen", [{}, {"OMP_WAIT_POLICY": "PASSIVE"}])
def test_the_openmp_wait_policy_is_fixed_and_recorded(
    mlp: Workload, chosen: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours by default, the user's own where there is one, and in both cases a part of the environment."""
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    _, events = carry_out(Sweep(mlp, ["identity"], [1], repeats=5, threads=1))
    environment, after = [event["value"] for event in events if event["kind"] == "environment"]
    settings = environment["child_settings"]

    assert "1" == settings["OMP_NUM_THREADS"]
    assert (chosen or {"GOMP_SPINCOUNT": SPIN_COUNT}).items() <= settings.items()
    assert ("GOMP_SPINCOUNT" in settings) == (not chosen)
    assert KEPT_MEMORY.items() <= settings.items()
    assert environment["conditions"]["cores_usable"] == after["conditions_after"]["cores_usable"]


def test_a_group_of_another_batch_size_carries_an_anchor(mlp: Workload) -> None:
    """The baseline at batch size 1 takes its turn in the same rounds; without a batch size 1 there is none."""
    sweep = Sweep(mlp, ["identity", "onnxruntime"], [1, 3], repeats=10, threads=1)
    carry_out(sweep)
    anchors = [group.anchor for group in sweep.groups()]
    with Journal(plan.journal_path(options.state_dir(), "cpu", "run"), writable=False) as journal:
        found = {record.trial_id: record for record in journal.records()}
    assert anchors[1] is not None
    anchor = found[anchors[1].id]

    assert anchors[0] is None
    assert 5 == len(found)
    assert isinstance(anchor, Measurement)
    assert tuple(range(10)) == anchor.rounds
    assert [None] == [group.anchor for group in Sweep(mlp, ["identity"], [3]).groups()]


def test_one_after_the_other_shares_no_round(mlp: Workload) -> None:
    """Asked for, each compiler has a block of its own and says so; there is no anchor then."""
    sweep = Sweep(mlp, ["identity", "onnxruntime"], [1, 3], repeats=12, threads=1, interleave=False)
    found, _ = carry_out(sweep)
    rounds = {key: set(record.rounds) for key, record in found.items() if isinstance(record, Measurement)}

    assert set() == rounds["identity", 1] & rounds["onnxruntime", 1]
    assert {False} == {record.interleaved for record in found.values() if isinstance(record, Measurement)}
    with Journal(plan.journal_path(options.state_dir(), "cpu", "run"), writable=False) as journal:
        assert not [key for key in journal.statuses() if key.startswith(ANCHOR)]


def test_what_memory_does_not_hold_is_measured_apart(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two fit and take turns; the third is measured alone after them, and none is missing."""
    free = iter([10**12, 10**12, 10**6])
    monkeypatch.setattr(groups.resources, "available_memory_bytes", lambda: next(free, 10**12))
    found, _ = carry_out(Sweep(mlp, ["identity", "onnxruntime", "openvino"], [1], repeats=12, threads=1))
    together, apart = [found["identity", 1], found["onnxruntime", 1]], found["openvino", 1]

    assert isinstance(apart, Measurement)
    assert not apart.interleaved
    for record in together:
        assert isinstance(record, Measurement)
        assert record.interleaved
        assert set() == set(record.rounds) & set(apart.rounds)


def test_running_out_of_memory_beside_others_is_tried_again_alone(mlp: Workload) -> None:
    """And is a failure only where it happens there too; the others have kept their turns."""
    found, events = carry_out(Sweep(mlp, ["identity", "hungry"], [1], repeats=12, threads=1))
    tried = [event for event in events if event["kind"] == "stage" and "hungry" in event["text"]]

    assert 2 == len(tried)
    assert "out-of-memory" == found["hungry", 1].status
    assert getattr(found["identity", 1], "interleaved", False)


def test_compile_time_is_told_apart_cold_and_warm(mlp: Workload) -> None:
    """A compiler that keeps a cache has both, and the cold one is known again in the next run; others have one."""
    sweep = Sweep(mlp, ["onnxruntime", "openvino"], [1], repeats=5, threads=1)
    first, _ = carry_out(sweep)
    assert plan.carry_out(replace(spec(sweep), run_id="again"), lambda event: None) == "finished"
    with Journal(plan.journal_path(options.state_dir(), "cpu", "again"), writable=False) as journal:
        again = {record.trial_id: record for record in journal.records()}[first["openvino", 1].trial_id]
    (kept, plain) = first["openvino", 1], first["onnxruntime", 1]

    assert isinstance(kept, Measurement)
    assert isinstance(plain, Measurement)
    assert isinstance(again, Measurement)
    assert kept.compile_time_warm_s is not None
    assert plain.compile_time_warm_s is None
    assert kept.compile_time_s == again.compile_time_s
    assert kept.compile_time_warm_s != again.compile_time_warm_s
    assert ("hit", "hit") == (kept.facts["cache"], again.facts["cache"])


def test_a_compiler_tells_what_it_did(mlp: Workload) -> None:
    """Once everything is timed, under names that mean the same of each; and what the child and the machine did."""
    found, _ = carry_out(Sweep(mlp, ["onnxruntime", "openvino"], [1], repeats=5, threads=1))

    for record in found.values():
        assert isinstance(record, Measurement)
        assert record.facts["nodes_before"] >= record.facts["nodes_after"] - record.facts.get("reorders", 0)
        assert 0 == record.facts["fallbacks"]
        assert record.facts["called_s"] > record.facts["timed_s"] > 0
        assert record.process_cpu_percent is not None
        assert record.calls_per_sample > 1


@pytest.mark.parametrize("spoilt", ["zeroed", "lowered"])
def test_weights_that_were_tampered_with_are_seen(spoilt: str) -> None:
    """One tensor in the middle of a network set to zero, or all of them rounded to bfloat16 under the label f32."""
    found, _ = carry_out(Sweep("resnet18", ["onnxruntime", spoilt], [1], repeats=5))

    assert ("ok", "not-equivalent") == (found["onnxruntime", 1].status, found[spoilt, 1].status)


# What goes wrong: the status, the stage, and what the error says.
FAULTS = {
    "segfault": ("crashed", "compile", "SIGSEGV"),
    "hang": ("timeout", "compile", "no answer to 'load' within 3 s"),
    "hang-later": ("timeout", "measure", "no answer to 'turn' within 3 s"),
    "hungry": ("out-of-memory", "compile", "another 1 TiB"),
    "killed": ("crashed", "compile", "SIGKILL"),
    "wrong": ("not-equivalent", "check", "relative RMSE 0.01"),
    "refusing": ("unsupported", "compile", "no such chip here"),
    "raising": ("failed", "compile", "RuntimeError: it fell over"),
    'raising{"kind":"refusal"}': ("unsupported", "compile", "no kernel for Frobnicate"),
}


def test_whatever_a_compiler_does_the_sweep_goes_on(mlp: Workload) -> None:
    """Each fault is a failure with its own status, stage and reason, and sound compilers are measured all the same."""
    sweep = Sweep(mlp, ["identity", *FAULTS, "onnxruntime"], [2], repeats=40, threads=1, timeout_s=3)
    found, events = carry_out(sweep)
    failures = {label: found[label, 2] for label in FAULTS}

    assert {"identity", "onnxruntime"} == {label for (label, _), record in found.items() if record.status == "ok"}
    for label, (status, stage, text) in FAULTS.items():
        failure = failures[label]
        assert isinstance(failure, Failure)
        assert (label, status, stage) == (label, failure.status, failure.stage), failure
        assert text in failure.error
        assert "\n" not in failure.error
    assert len(found) == len([event for event in events if event["kind"] == "record"])


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
    found, _ = carry_out(Sweep(str(tmp_path / "strange.onnx"), compilers, [1], repeats=5, threads=1))

    assert {"unsupported"} == {record.status for record in found.values()}
    for compiler in compilers[:-1]:
        assert "Frobnicate" in found[compiler, 1].error
    assert "takes a torch module" in found["torchscript", 1].error


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
    """Eager is measured; the compilers that take ONNX are told why there is none."""
    (net,) = cell.from_source(EXPORT_KILLER, name="net")
    found, _ = carry_out(Sweep(net, ["identity", "onnxruntime"], [1, 2], repeats=5, threads=1))

    assert {"ok"} == {found["identity", size].status for size in (1, 2)}
    assert {"unsupported"} == {found["onnxruntime", size].status for size in (1, 2)}
    assert "the export to ONNX: crashed" in found["onnxruntime", 1].error
    assert "SIGKILL" in found["onnxruntime", 2].error


def test_no_child_outlives_the_plan(mlp: Workload) -> None:
    """After a plan the fork servers are left, warm, and nothing else."""
    before = set(psutil.Process().children(recursive=True))
    carry_out(Sweep(mlp, ["identity", "segfault", "hang"], [1], repeats=5, threads=1, timeout_s=2))
    left = set(psutil.Process().children(recursive=True)) - before

    assert left
    assert all("ngbkit.device.forkserver" in server.cmdline() for server in left)
    assert all(not server.children() for server in left)


def test_a_record_is_in_the_journal_before_anyone_is_told(mlp: Workload) -> None:
    """Durable before visible."""
    sweep = Sweep(mlp, ["identity", "refusing"], [1], repeats=5, threads=1)
    unseen = []

    def publish(event: dict[str, Any]) -> None:
        if event["kind"] == "record":
            path = plan.journal_path(options.state_dir(), "cpu", "run")
            with Journal(path, writable=False) as journal:
                if event["record"]["trial_id"] not in journal.statuses():
                    unseen.append(event)

    plan.carry_out(spec(sweep), publish)

    assert [] == unseen


def test_what_has_a_record_is_not_run_again(mlp: Workload) -> None:
    """A plan that is sent again measures only what is missing."""
    first, _ = carry_out(Sweep(mlp, ["identity", "refusing"], [1], repeats=5, threads=1))
    second, events = carry_out(Sweep(mlp, ["identity", "refusing", "onnxruntime"], [1], repeats=5, threads=1))

    assert first.items() <= second.items()
    assert 1 == len([event for event in events if event["kind"] == "record"])


def test_rounds_of_another_session_carry_other_numbers(mlp: Workload) -> None:
    """Samples that were not taken side by side are never paired."""
    carry_out(Sweep(mlp, ["identity"], [1], repeats=5, threads=1))
    found, _ = carry_out(Sweep(mlp, ["identity", "onnxruntime"], [1], repeats=5, threads=1))
    one, other = found["identity", 1], found["onnxruntime", 1]

    assert isinstance(one, Measurement)
    assert isinstance(other, Measurement)
    assert not set(one.rounds) & set(other.rounds)


def test_statuses_that_are_retried_are_run_again(mlp: Workload) -> None:
    """Asking to retry `unsupported` runs those trials and no others."""
    sweep = Sweep(mlp, ["identity", "refusing", "hungry"], [1], repeats=5, threads=1)
    first, _ = carry_out(sweep)
    second, events = carry_out(sweep, retry=frozenset({"unsupported"}))

    assert first["identity", 1] == second["identity", 1]
    assert first["hungry", 1] == second["hungry", 1]
    assert first["refusing", 1].started_at < second["refusing", 1].started_at
    assert 1 == len([event for event in events if event["kind"] == "record"])


def test_an_interrupt_stops_cleanly_and_keeps_what_was_measured(mlp: Workload) -> None:
    """SIGINT ends the plan within the group in flight, which does not count as an attempt."""
    sweep = Sweep(mlp, ["identity", 'slow{"seconds":0.01}'], [1, 2], repeats=200, threads=1)
    told = threading.Event()

    def publish(event: dict[str, Any]) -> None:
        if event["kind"] == "record":
            told.set()
            # To the main thread, as in an engine: other threads here are of runtimes that an engine never loads.
            threading.Timer(0.5, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()

    state = plan.carry_out(spec(sweep), publish)
    with Journal(plan.journal_path(options.state_dir(), "cpu", "run"), writable=False) as journal:
        statuses = {key for key in journal.statuses() if not key.startswith(ANCHOR)}
        unfinished = {**journal.unfinished("measure"), **journal.unfinished("load")}

    assert "stopped" == state
    assert told.is_set()
    assert 2 == len(statuses)
    assert {} == unfinished


def test_a_trial_that_ended_its_engine_twice_is_recorded_as_crashed(mlp: Workload) -> None:
    """Two starts and no result: it is not tried a third time, and the others are."""
    sweep = Sweep(mlp, ["identity", "onnxruntime"], [1], repeats=5, threads=1)
    guilty = sweep.trials()[1].id
    with Journal(plan.journal_path(options.state_dir(), "cpu", "run")) as journal:
        journal.start([guilty], "load")
        journal.start([guilty], "load")
    found, _ = carry_out(sweep)

    assert "ok" == found["identity", 1].status
    assert "crashed" == found["onnxruntime", 1].status
    assert "2 times" in found["onnxruntime", 1].error


def test_a_group_that_ended_its_engine_twice_is_measured_one_by_one(mlp: Workload) -> None:
    """When nobody knows which of them did it, each gets a turn alone before any is given up."""
    sweep = Sweep(mlp, ["identity", "onnxruntime"], [1], repeats=5, threads=1)
    with Journal(plan.journal_path(options.state_dir(), "cpu", "run")) as journal:
        for _ in range(2):
            journal.start([trial.id for trial in sweep.trials()], "measure")
    found, _ = carry_out(sweep)
    one, other = found["identity", 1], found["onnxruntime", 1]

    assert isinstance(one, Measurement)
    assert isinstance(other, Measurement)
    assert not set(one.rounds) & set(other.rounds)


def test_two_plans_of_one_run_do_not_measure_side_by_side(mlp: Workload) -> None:
    """The journal is a fence."""
    told = spec(Sweep(mlp, ["identity"], [1], repeats=5, threads=1))
    with Journal(plan.journal_path(options.state_dir(), "cpu", "run")), pytest.raises(FencedError):
        plan.carry_out(told, lambda event: None)


def test_collect_hands_over_what_the_client_does_not_have(mlp: Workload) -> None:
    """Records come in parts, without those that the client names."""
    sweep = Sweep(mlp, ["identity", "refusing", "hungry"], [1], repeats=5, threads=1)
    found, _ = carry_out(sweep)
    ids = {trial.compiler: trial.id for trial in sweep.trials()}
    asked = {"run_id": "run", "device": "cpu", "state_dir": str(options.state_dir()), "most": 1}
    first = json.loads(plan.collect(json.dumps({**asked, "have": [ids["identity"]]})))
    got = [record["trial_id"] for record in first["records"]]
    second = json.loads(plan.collect(json.dumps({**asked, "have": [ids["identity"], *got]})))

    assert first["more"]
    assert not second["more"]
    assert {ids["refusing"], ids["hungry"]} == {*got, second["records"][0]["trial_id"]}
    assert found["refusing", 1] in [records.from_json(part["records"][0]) for part in (first, second)]
    assert "cpu" in first["environment"]


def test_the_answer_to_the_client_says_what_went_wrong() -> None:
    """A plan that cannot be carried out is told in JSON, since an exception might not come through."""
    reply = json.loads(
        plan.run(
            json.dumps(
                {
                    "run_id": "run",
                    "device": "cpu",
                    "state_dir": str(options.state_dir()),
                    "retry": [],
                    "sweep": {
                        "workloads": [],
                        "compilers": ["identity"],
                        "batch_sizes": [1],
                        "factors": {},
                        "devices": ["cpu"],
                        "repeats": 1,
                        "threads": 1,
                        "timeout_s": 1.0,
                        "seed": 0,
                    },
                }
            )
        )
    )

    assert "error" == reply["state"]
    assert "at least one workload" in reply["error"]


def test_artifacts_arrive_whole_or_not_at_all(tmp_path: Path) -> None:
    """Pieces make a file only if it has the hash that was announced."""
    file = tmp_path / "file"
    file.write_bytes(b"abc" * 1000)
    digest = Store(tmp_path / "mine").push(file)
    there = {"state_dir": str(tmp_path / "device"), "digest": digest}
    before = json.loads(plan.missing(json.dumps({**there, "digests": [digest]})))
    plan.receive(json.dumps({**there, "number": 0}), b"abc" * 500)
    plan.receive(json.dumps({**there, "number": 1}), b"abc" * 500)
    plan.received(json.dumps(there))
    after = json.loads(plan.missing(json.dumps({**there, "digests": [digest]})))

    assert ([digest], []) == (before["missing"], after["missing"])
    assert file.read_bytes() == Store(tmp_path / "device" / "artifacts").path(digest).read_bytes()
