"""A plan on a device: what is measured, recorded, and not measured again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plans import carry_out, spec

from ngbkit import options
from ngbkit.device import groups, plan
from ngbkit.device.settings import KEPT_MEMORY, SPIN_COUNT
from ngbkit.errors import FencedError
from ngbkit.files import Store
from ngbkit.sweep import records
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Measurement
from ngbkit.sweep.trials import ANCHOR
from ngbkit.workloads.base import Workload


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


@pytest.mark.usefixtures("cold_servers")
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


def test_no_number_of_a_cpu_stands_under_the_label_of_a_gpu(mlp: Workload) -> None:
    """A compiler that does not compile for the device's accelerator is not measured there."""
    found, _ = carry_out(Sweep(mlp, ["openvino"], [1], repeats=3, threads=1), accelerator="cuda:0")

    assert "unsupported" == found["openvino", 1].status
    assert "openvino measures on cpu, and the device is cuda:0" in found["openvino", 1].error  # type: ignore[union-attr]


def test_what_the_client_has_is_not_run_again(mlp: Workload) -> None:
    """Though this device's own journal has lost it."""
    sweep = Sweep(mlp, ["identity", "onnxruntime"], [1], repeats=3, threads=1)
    (had,) = [trial.id for trial in sweep.trials() if trial.compiler == "identity"]
    found, _ = carry_out(sweep, have=frozenset({had}))

    assert {("onnxruntime", 1)} == set(found)


def test_a_wish_to_run_again_is_granted_once(mlp: Workload) -> None:
    """The next engine is told of it again, and what the first has done is not undone."""
    sweep = Sweep(mlp, ["identity"], [1], repeats=3, threads=1)
    runs = [carry_out(sweep, retry=frozenset({"ok"}), retry_id=name)[0]["identity", 1] for name in "aab"]

    assert runs[0] == runs[1]
    assert runs[1].started_at < runs[2].started_at
