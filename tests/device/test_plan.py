"""A plan on a device: measurements, records, and repetitions."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from plans import build_spec, carry_out, measure, open_journal

from ngbkit import options
from ngbkit.api import Sweep
from ngbkit.device import plan
from ngbkit.device.groups import bench
from ngbkit.device.groups.worker import Worker
from ngbkit.device.isolation.channel import Message
from ngbkit.device.isolation.servers import Child
from ngbkit.device.isolation.settings import KEEPING, SPIN_COUNT
from ngbkit.errors import FencedError
from ngbkit.files import Store
from ngbkit.hardware import environment
from ngbkit.sweep import records as record_format
from ngbkit.sweep.records import Measurement
from ngbkit.sweep.trials import ANCHOR
from ngbkit.workloads.base import Workload


@pytest.mark.guard
def test_every_compiler_of_a_group_is_measured_in_the_same_rounds(mlp: Workload) -> None:
    """Each record has the requested number of samples, and a share of every round."""
    # After ten rounds, the noise decides how many samples a turn has.
    records = measure(Sweep(mlp, ["identity", "onnxruntime"], [1, 3], repeats=20, threads=1))

    assert {("identity", 1), ("onnxruntime", 1), ("identity", 3), ("onnxruntime", 3)} == set(records)
    for record in records.values():
        assert 20 == len(record.latency_s)
        assert all(sample > 0 for sample in record.latency_s)
        assert tuple(number // 2 for number in range(20)) == record.rounds
        assert record.compile_time_s > 0
        assert record.peak_memory_bytes is not None
        assert 1e-4 > record.rmse


def test_the_probes_of_the_host_leave_their_readings(mlp: Workload) -> None:
    """Each record has the times of the probes by its rounds, and the device their history, by its cores."""
    (record,) = measure(Sweep(mlp, ["identity"], [1], repeats=20, threads=1)).values()
    cores = environment.list_usable_cores()
    if len(cores) == 1:
        assert record.core_trip_s is None
        return
    assert set(record.rounds) == set(record.facts["host"]["rounds"])
    assert 0.0 == record.unusual_percent
    assert record.core_trip_s > 0
    assert record.core_work_s > 0
    stored = json.loads((options.get_state_dir() / options.LAYOUT.hosts).read_text())
    assert ",".join(map(str, cores)) in stored


@pytest.mark.usefixtures("cold_servers")
@pytest.mark.parametrize("chosen", [{}, {"OMP_WAIT_POLICY": "PASSIVE"}])
def test_the_openmp_wait_policy_is_fixed_and_recorded(
    mlp: Workload, chosen: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy is ngbkit's by default, or the user's own, and always in the recorded environment."""
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    _, events = carry_out(Sweep(mlp, ["identity"], [1], repeats=5, threads=1))
    environment, after = [event["value"] for event in events if event["kind"] == "environment"]
    settings = environment["child_settings"]

    assert "1" == settings["OMP_NUM_THREADS"]
    assert (chosen or {"GOMP_SPINCOUNT": SPIN_COUNT}).items() <= settings.items()
    assert ("GOMP_SPINCOUNT" in settings) == (not chosen)
    assert KEEPING.items() <= settings.items()
    assert environment["conditions"]["cores_usable"] == after["conditions_after"]["cores_usable"]


def test_a_group_of_another_batch_size_carries_an_anchor(mlp: Workload) -> None:
    """The baseline at batch size 1 takes its turn in the same rounds; without a batch size 1 there is none."""
    sweep = Sweep(mlp, ["identity", "onnxruntime"], [1, 3], repeats=10, threads=1)
    carry_out(sweep)
    anchors = [group.anchor for group in sweep.groups()]
    with open_journal() as journal:
        records = {record.trial_id: record for record in journal.records()}
    anchor = records[anchors[1].id]

    assert anchors[0] is None
    assert 5 == len(records)
    assert tuple(range(10)) == anchor.rounds
    assert [None] == [group.anchor for group in Sweep(mlp, ["identity"], [3]).groups()]


def test_one_after_the_other_shares_no_round(mlp: Workload) -> None:
    """Compilers share no round and have no anchor if interleaving is off."""
    sweep = Sweep(mlp, ["identity", "onnxruntime"], [1, 3], repeats=12, threads=1, interleave=False)
    records = measure(sweep)

    assert set() == set(records["identity", 1].rounds) & set(records["onnxruntime", 1].rounds)
    assert {False} == {record.interleaved for record in records.values()}
    with open_journal() as journal:
        assert not [key for key in journal.statuses() if key.startswith(ANCHOR)]


def test_a_trial_that_does_not_fit_in_memory_is_measured_alone(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two fit and are interleaved; the third is measured after them, and none is missing."""
    free = iter([10**12, 10**12, 10**6])
    monkeypatch.setattr(bench.resources, "read_available_memory_bytes", lambda: next(free, 10**12))
    records = measure(Sweep(mlp, ["identity", "onnxruntime", "openvino"], [1], repeats=12, threads=1))
    together, alone = [records["identity", 1], records["onnxruntime", 1]], records["openvino", 1]

    assert not alone.interleaved
    for record in together:
        assert record.interleaved
        assert set() == set(record.rounds) & set(alone.rounds)


@pytest.mark.guard
def test_compile_time_is_cold_or_warm(mlp: Workload) -> None:
    """A compiler with a cache has both, and the next run knows the cold one; others have one."""
    sweep = Sweep(mlp, ["onnxruntime", "openvino"], [1], repeats=5, threads=1)
    first = measure(sweep)
    assert plan.carry_out(replace(build_spec(sweep), run_id="again"), lambda event: None) == "finished"
    with open_journal("again") as journal:
        again = {record.trial_id: record for record in journal.records()}[first["openvino", 1].trial_id]
    cached, plain = first["openvino", 1], first["onnxruntime", 1]

    assert cached.compile_time_warm_s is not None
    assert plain.compile_time_warm_s is None
    assert cached.compile_time_s == again.compile_time_s
    assert cached.compile_time_warm_s != again.compile_time_warm_s
    assert ("hit", "hit") == (cached.facts["cache"], again.facts["cache"])


def test_a_record_has_facts_of_the_compiler(mlp: Workload) -> None:
    """A record has facts of the compiler, the child and the machine under common names."""
    records = measure(Sweep(mlp, ["onnxruntime", "openvino"], [1], repeats=5, threads=1))

    for record in records.values():
        assert record.facts["nodes_before"] >= record.facts["nodes_after"] - record.facts.get("reorders", 0)
        assert 0 == record.facts["fallbacks"]
        assert record.facts["called_s"] > record.facts["timed_s"] > 0
        assert record.process_cpu_percent is not None
        assert record.calls_per_sample > 1


def test_compilers_explain_their_work_at_once(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each child of a group is asked before the answer of any is awaited."""
    steps: list[str] = []
    post, receive = Child.post, Child.receive

    def log_post(child: Child, message: Message) -> None:
        steps.extend(["ask"] if message["op"] == "explain" else [])
        post(child, message)

    def log_receive(child: Child, op: str, *arguments: Any) -> Message:
        steps.extend(["await"] if op == "explain" else [])
        return receive(child, op, *arguments)

    monkeypatch.setattr(Child, "post", log_post)
    monkeypatch.setattr(Child, "receive", log_receive)
    carry_out(Sweep(mlp, ["identity", "onnxruntime"], [1], repeats=5, threads=1))

    assert ["ask", "ask", "await", "await"] == steps


def test_a_record_is_in_the_journal_before_it_is_published(mlp: Workload) -> None:
    """A record is in the device's journal before it is published."""
    sweep = Sweep(mlp, ["identity", "refusing"], [1], repeats=5, threads=1)
    early = []

    def publish(event: dict[str, Any]) -> None:
        if event["kind"] == "record":
            with open_journal() as journal:
                if event["record"]["trial_id"] not in journal.statuses():
                    early.append(event)

    plan.carry_out(build_spec(sweep), publish)

    assert [] == early


def test_a_trial_with_a_record_is_not_repeated(mlp: Workload) -> None:
    """The second run of a plan measures only the missing trials."""
    first, _ = carry_out(Sweep(mlp, ["identity", "refusing"], [1], repeats=5, threads=1))
    second, events = carry_out(Sweep(mlp, ["identity", "refusing", "onnxruntime"], [1], repeats=5, threads=1))

    assert first.items() <= second.items()
    assert 1 == len([event for event in events if event["kind"] == "record"])


def test_rounds_of_another_session_have_other_numbers(mlp: Workload) -> None:
    """Samples that were not measured side by side are never paired."""
    carry_out(Sweep(mlp, ["identity"], [1], repeats=5, threads=1))
    records = measure(Sweep(mlp, ["identity", "onnxruntime"], [1], repeats=5, threads=1))
    first, second = records["identity", 1], records["onnxruntime", 1]

    assert not set(first.rounds) & set(second.rounds)


def test_a_stopped_plan_records_the_rounds_that_all_have_had(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that is stopped within a round keeps those before it, and the next plan measures all samples."""
    sweep = Sweep(mlp, ["identity", "onnxruntime"], [1], repeats=20, threads=1)
    time_turn, turns = Worker.time_turn, count()

    def stop_within_round(worker: Worker, *arguments: Any) -> None:
        if next(turns) == 9:
            raise InterruptedError
        time_turn(worker, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "time_turn", stop_within_round)
        state = plan.carry_out(build_spec(sweep), lambda _event: None)
    with open_journal() as journal:
        stopped = [record for record in journal.records() if isinstance(record, Measurement)]
        listed = journal.list_stopped()
    complete = measure(sweep)

    assert "stopped" == state
    assert [{0, 1, 2, 3}] * 2 == [set(record.rounds) for record in stopped]
    assert [(True, 1)] * 2 == [(record.stopped, record.looks) for record in stopped]
    assert listed == {trial.id for trial in sweep.trials()}
    for record in complete.values():
        assert (20, False, 0) == (len(record.latency_s), record.stopped, record.looks)


def test_statuses_that_are_retried_are_run_again(mlp: Workload) -> None:
    """A retry of `unsupported` runs those trials and no others."""
    sweep = Sweep(mlp, ["identity", "refusing", "hungry"], [1], repeats=5, threads=1)
    first, _ = carry_out(sweep)
    second, events = carry_out(sweep, retry=frozenset({"unsupported"}))

    assert first["identity", 1] == second["identity", 1]
    assert first["hungry", 1] == second["hungry", 1]
    assert first["refusing", 1].started_at < second["refusing", 1].started_at
    assert 1 == len([event for event in events if event["kind"] == "record"])


def test_two_plans_of_one_run_do_not_measure_side_by_side(mlp: Workload) -> None:
    """The journal is a fence."""
    plan_spec = build_spec(Sweep(mlp, ["identity"], [1], repeats=5, threads=1))
    with open_journal(writable=True), pytest.raises(FencedError):
        plan.carry_out(plan_spec, lambda event: None)


def test_collect_returns_the_missing_records(mlp: Workload) -> None:
    """`collect` returns in parts the records that the client lacks."""
    sweep = Sweep(mlp, ["identity", "refusing", "hungry"], [1], repeats=5, threads=1)
    records, _ = carry_out(sweep)
    ids = {trial.compiler: trial.id for trial in sweep.trials()}
    request = {"run_id": "run", "device": "cpu", "state_dir": str(options.get_state_dir()), "most": 1}
    first = json.loads(plan.collect(json.dumps({**request, "have": [ids["identity"]]})))
    got = [record["trial_id"] for record in first["records"]]
    second = json.loads(plan.collect(json.dumps({**request, "have": [ids["identity"], *got]})))

    assert first["more"]
    assert not second["more"]
    assert {ids["refusing"], ids["hungry"]} == {*got, second["records"][0]["trial_id"]}
    assert records["refusing", 1] in [record_format.from_json(part["records"][0]) for part in (first, second)]
    assert "cpu" in first["environment"]


def test_the_answer_to_the_client_has_the_error() -> None:
    """An invalid plan is reported in JSON, since an exception might not reach the client."""
    request = json.loads(build_spec(Sweep("resnet18", ["identity"])).to_json())
    request["sweep"]["workloads"] = []
    reply = json.loads(plan.run(json.dumps(request)))

    assert "error" == reply["state"]
    assert "invalid workloads" in reply["error"]


def test_artifacts_arrive_complete_or_not_at_all(tmp_path: Path) -> None:
    """Chunks become a file only if it has the announced hash."""
    file = tmp_path / "file"
    file.write_bytes(b"abc" * 1000)
    digest = Store(tmp_path / "client").add(file)
    request = {"state_dir": str(tmp_path / "device"), "digest": digest}
    before = json.loads(plan.missing(json.dumps({**request, "digests": [digest]})))
    plan.receive(json.dumps({**request, "number": 0}), b"abc" * 500)
    plan.receive(json.dumps({**request, "number": 1}), b"abc" * 500)
    plan.received(json.dumps(request))
    after = json.loads(plan.missing(json.dumps({**request, "digests": [digest]})))

    assert ([digest], []) == (before["missing"], after["missing"])
    assert file.read_bytes() == Store(tmp_path / "device" / "artifacts").locate(digest).read_bytes()


def test_a_gpu_label_has_no_numbers_of_a_cpu(mlp: Workload) -> None:
    """A compiler that does not compile for the device's accelerator is not measured there."""
    records, _ = carry_out(Sweep(mlp, ["openvino"], [1], repeats=3, threads=1), accelerator="cuda:0")

    assert "unsupported" == records["openvino", 1].status
    assert "openvino does not support accelerator 'cuda:0'" in records["openvino", 1].error  # type: ignore[union-attr]


def test_a_trial_that_the_client_has_is_not_repeated(mlp: Workload) -> None:
    """A trial that the client has is skipped, even if the device's journal lacks it."""
    sweep = Sweep(mlp, ["identity", "onnxruntime"], [1], repeats=3, threads=1)
    (trial_id,) = [trial.id for trial in sweep.trials() if trial.compiler == "identity"]
    records, _ = carry_out(sweep, have=frozenset({trial_id}))

    assert {("onnxruntime", 1)} == set(records)


def test_a_retry_request_is_granted_once(mlp: Workload) -> None:
    """The next engine receives it again, and does not repeat the trials of the first."""
    sweep = Sweep(mlp, ["identity"], [1], repeats=3, threads=1)
    runs = [carry_out(sweep, retry=frozenset({"ok"}), retry_id=name)[0]["identity", 1] for name in "aab"]

    assert runs[0] == runs[1]
    assert runs[1].started_at < runs[2].started_at
