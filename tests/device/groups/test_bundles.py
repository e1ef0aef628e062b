"""Networks that take turns in the same rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from plans import build_spec, open_journal

from ngbkit.api import Sweep
from ngbkit.dataset import assembly
from ngbkit.dataset.storage import Data
from ngbkit.device import plan
from ngbkit.device.groups import bench, bundles
from ngbkit.device.groups.bundles import Job
from ngbkit.metrics.rankings.networks import compare_networks
from ngbkit.sweep.records import Measurement, Record
from ngbkit.workloads.base import Workload

Records = dict[str, Record]


@pytest.fixture
def sweep(mlp: Workload) -> Sweep:
    """Two networks with two compilers."""
    networks = [replace(mlp, name=name) for name in ("first", "second")]
    return Sweep(networks, ["identity", "onnxruntime"], [2], repeats=16, threads=1, together=True)


def carry_out(sweep: Sweep, **fields: Any) -> tuple[Records, list[dict[str, Any]]]:
    """Run a plan; return every record of the journal by trial id, and the events."""
    events: list[dict[str, Any]] = []
    assert plan.carry_out(build_spec(sweep, **fields), events.append) == "finished"
    with open_journal() as journal:
        return {record.trial_id: record for record in journal.records()}, events


def assemble(sweep: Sweep, records: Records) -> Data:
    return assembly.assemble(sweep, records.values())


def find_record(sweep: Sweep, records: Records, network: str, compiler: str) -> Measurement:
    (trial,) = (trial for trial in sweep.trials() if (trial.workload, trial.compiler) == (network, compiler))
    record = records[trial.id]
    assert isinstance(record, Measurement)
    return record


@pytest.mark.guard
def test_networks_take_turns_in_the_same_rounds(sweep: Sweep) -> None:
    """The networks of a bundle are measured in the same rounds and compared side by side."""
    records, events = carry_out(sweep)
    measured = [record for record in records.values() if isinstance(record, Measurement)]
    (pair,) = compare_networks(assemble(sweep, records)).to_dict("records")

    assert 4 == len(measured)
    assert 1 == len({record.bundle for record in measured})
    assert 1 == len({record.rounds for record in measured})
    assert all(record.interleaved for record in measured)
    assert "side by side" == pair["compared"]
    assert any("measuring first, second batch 2 side by side" in event.get("text", "") for event in events)


def test_without_the_option_each_network_has_its_own_rounds(sweep: Sweep) -> None:
    """The compilers of a network share a bundle, and two networks do not."""
    alone = Sweep(sweep.workloads, sweep.compilers, sweep.batch_sizes, repeats=16, threads=1)
    records, _ = carry_out(alone)
    bundles = {
        network: {find_record(alone, records, network, compiler).bundle for compiler in alone.compilers}
        for network in ("first", "second")
    }

    assert [1, 1] == [len(numbers) for numbers in bundles.values()]
    assert set() == bundles["first"] & bundles["second"]
    assert ["minutes apart"] == compare_networks(assemble(alone, records))["compared"].tolist()


@pytest.mark.parametrize("fitting", [2, 3])
def test_what_does_not_fit_in_memory_is_normalised_by_an_anchor(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, fitting: int
) -> None:
    """A group is never split: all of the second network is measured later, beside the baseline of the first."""
    free = iter([10**12] * fitting + [10**6])
    monkeypatch.setattr(bench.resources, "read_available_memory_bytes", lambda: next(free, 10**12))
    records, _ = carry_out(sweep)
    first, second = (
        [find_record(sweep, records, network, compiler) for compiler in sweep.compilers]
        for network in ("first", "second")
    )
    tie = next(group.tie for group in sweep.groups() if group.tie)
    tied = records[tie.id]
    data = assemble(sweep, records)
    (pair,) = compare_networks(data).to_dict("records")

    assert first[0].bundle == first[1].bundle
    assert {tied.bundle} == {record.bundle for record in second}
    assert tied.bundle != first[0].bundle
    assert set() == set(first[0].rounds) & set(second[0].rounds)
    assert tied.rounds == second[0].rounds
    assert "normalised by anchors" == pair["compared"]
    assert all(record.interleaved for record in (*first, *second))


def test_what_is_measured_later_is_never_paired_with_what_was_before(sweep: Sweep) -> None:
    """Resuming measures what is missing, in another bundle and with the anchor."""
    second = [trial.id for trial in sweep.trials() if trial.workload == "second"]
    earlier, _ = carry_out(sweep, have=frozenset(second))
    records, _ = carry_out(sweep)
    first, later = (find_record(sweep, records, network, "identity") for network in ("first", "second"))

    assert set() == set(earlier) & set(second)
    assert first.bundle != later.bundle
    assert set() == set(first.rounds) & set(later.rounds)
    assert ["normalised by anchors"] == compare_networks(assemble(sweep, records))["compared"].tolist()


def test_a_network_that_cannot_be_prepared_costs_the_others_nothing(sweep: Sweep) -> None:
    """The trials of an invalid network fail, and the rest are measured."""
    broken = Sweep(
        [*sweep.workloads, "blocks.conv"],
        sweep.compilers,
        sweep.batch_sizes,
        factors={"width": [-1], "depth": [1]},
        repeats=5,
        threads=1,
        together=True,
    )
    records, _ = carry_out(broken)
    statuses = {trial.workload: records[trial.id].status for trial in broken.trials()}

    assert ("ok", "ok") == (statuses["first"], statuses["second"])
    assert statuses["conv"] not in ("ok", "pending")


def test_networks_are_measured_one_by_one_after_two_crashes(sweep: Sweep) -> None:
    """Networks are measured one by one after two crashes of their bundle."""
    trials = sweep.trials()
    for _ in range(2):
        with open_journal(writable=True) as journal:
            journal.start([trials[0].id], "measure")
    records, _ = carry_out(sweep)
    measured = [record for record in records.values() if isinstance(record, Measurement)]

    assert 4 == len(measured) == len({record.bundle for record in measured})
    assert not any(record.interleaved for record in measured)


def test_a_later_wave_starts_its_processes_in_another_order(sweep: Sweep) -> None:
    """Those of each group stay together, and groups in their order."""
    trials = [(group, trial) for group in sweep.groups() for trial in group.trials for _ in range(4)]
    jobs = [Job(trial=trial, group=group, prepared={}) for group, trial in trials]
    orders = [bundles.shuffle(jobs) for _ in range(20)]

    assert {tuple(job.group.workload.name for job in jobs)} == {
        tuple(job.group.workload.name for job in order) for order in orders
    }
    assert len({tuple(map(id, order)) for order in orders}) > 1
    assert all(set(map(id, order)) == set(map(id, jobs)) for order in orders)
