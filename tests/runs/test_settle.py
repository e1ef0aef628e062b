"""What would settle a run: which groups are measured in more waves, and in how many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest
from patience import wait_until
from synthetic_records import build_network, build_record
from watching import Processes

from ngbkit import runs
from ngbkit.api import Sweep
from ngbkit.cluster import engines
from ngbkit.dataset.assembly import assemble
from ngbkit.dataset.storage import Data
from ngbkit.metrics.rankings.networks import compare_networks
from ngbkit.runs import settle
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.settling import count_waves
from ngbkit.workloads.base import Workload

ROUNDS = 20
CHECKED = {"cpu": {"selfcheck": {"process_sd": 0.0}}}


def measure(
    sweep: Sweep, seconds: Mapping[str, float], bundles: Mapping[str, int], process_sd: float = 0.0, noise: float = 0.01
) -> Data:
    generator = np.random.default_rng(1)
    records = [
        build_record(
            trial,
            seconds[trial.workload] * np.exp(generator.normal(0, noise, 2 * ROUNDS)),
            bundles[trial.workload],
            samples=2,
        )
        for trial in sweep.trials()
    ]
    return assemble(sweep, records, environments={"cpu": {"selfcheck": {"process_sd": process_sd}}})


def list_networks(sweep: Sweep, settling: settle.Settling) -> set[str]:
    return {trial.workload for trial in sweep.trials() if trial.id in settling.trial_ids}


def test_both_sides_of_an_inconclusive_pair_are_measured_again() -> None:
    """A settling run measures the networks of an inconclusive pair again, and no others."""
    sweep = Sweep([build_network(name) for name in "abc"], ["identity"], repeats=2 * ROUNDS)
    data = measure(sweep, {"a": 0.1, "b": 0.102, "c": 0.5}, {"a": 1, "b": 2, "c": 3})
    settling = settle.plan(data, sweep)
    changed = settling.apply(sweep)

    assert {"a", "b"} == list_networks(sweep, settling)
    assert (ROUNDS, 2 * ROUNDS) == (settling.rounds, settling.repeats)
    assert settling.waves > compare_networks(data)["more_waves"].max()  # which would settle half of such pairs
    assert settling.begins_anew
    assert changed.together
    assert (settling.repeats, settling.rounds) == (changed.repeats, changed.min_rounds)
    assert [trial.id for trial in sweep.trials()] == [trial.id for trial in changed.trials()]
    assert "a batch 1 on cpu, b batch 1 on cpu again, in " in settling.description
    assert "waves of 20 rounds, about " in settling.description


def test_networks_that_took_turns_are_measured_again_together() -> None:
    """A pair that is sure must not become one of different times."""
    sweep = Sweep([build_network(name) for name in "abc"], ["identity"], repeats=2 * ROUNDS, together=True)
    data = measure(sweep, {"a": 0.1, "b": 0.101, "c": 0.5}, dict.fromkeys("abc", 1), noise=0.03)
    settling = settle.plan(data, sweep)

    assert {"a", "b", "c"} == list_networks(sweep, settling)
    assert not settling.begins_anew


def test_compilers_that_are_tied_for_the_first_place_are_measured_again() -> None:
    """Compilers with equal speed are measured again, even of one network."""
    sweep = Sweep([build_network("a")], ["identity", "openvino"], repeats=2 * ROUNDS)
    data = measure(sweep, {"a": 0.1}, {"a": 1}, noise=0.05)

    assert settle.plan(data, sweep).trial_ids or "would not be conclusive" in settle.plan(data, sweep).description


def test_nothing_is_measured_again_where_all_is_sure() -> None:
    """The plan is empty and says so if every comparison is conclusive."""
    sweep = Sweep([build_network(name) for name in "ab"], ["identity"], repeats=2 * ROUNDS)
    data = measure(sweep, {"a": 0.1, "b": 0.5}, {"a": 1, "b": 1})
    settling = settle.plan(data, sweep)

    assert frozenset() == settling.trial_ids
    assert settling.description.startswith("Nothing is inconclusive")


def test_what_thirty_waves_do_not_settle_is_not_measured_again() -> None:
    """Two processes of one program differ by more than the networks."""
    sweep = Sweep([build_network(name) for name in "ab"], ["identity"], repeats=2 * ROUNDS)
    data = measure(sweep, {"a": 0.1, "b": 0.101}, {"a": 1, "b": 1}, process_sd=0.05)
    settling = settle.plan(data, sweep)

    assert frozenset() == settling.trial_ids
    assert "1 of 1 open comparisons would not be conclusive" in settling.description


@pytest.fixture
def _no_process_left(processes: Processes) -> Iterator[None]:
    yield
    engines.close()
    wait_until(lambda: not processes())


@pytest.mark.usefixtures("_no_process_left")
def test_a_run_is_conclusive_side_by_side(mlp: Workload) -> None:
    """Two networks that were measured minutes apart take turns in two waves, which replace the old records."""
    sweep = Sweep([replace(mlp, name=name) for name in "abc"], ["onnxruntime"], repeats=10, threads=1)
    run = sweep.start()
    before = run.result()
    folder = runs.find(run.id)
    ids = frozenset(trial.id for trial in sweep.trials() if trial.workload != "c")
    settling = settle.Settling(trial_ids=ids, waves=2, rounds=6, repeats=12, description="", begins_anew=True)
    after = runs.resume(run.id, settling=settling).result()
    pairs = compare_networks(after)
    compared = {frozenset((row["network_a"], row["network_b"])): row["compared"] for row in pairs.to_dict("records")}

    assert {"minutes apart"} == {*compare_networks(before)["compared"]}
    assert "side by side" == compared[frozenset("ab")]
    assert "minutes apart" == compared[frozenset("ac")]
    counts = after["latency"].notnull().sum("repeat").squeeze()
    assert [24, 24, 10] == counts.values.tolist()
    with Journal(folder / "journal.sqlite", writable=False) as journal:
        assert 3 == len([name for name in journal.statuses() if not name.startswith("anchor")])


@pytest.mark.usefixtures("_no_process_left")
def test_columns_that_took_turns_keep_their_rounds(mlp: Workload) -> None:
    """Further waves of a group are joined with what it has, as a stopping rule ends them; others stay as they are."""
    sweep = Sweep(mlp, ["identity", "onnxruntime"], [1, 2], repeats=10, threads=1)
    run = sweep.start()
    before = run.result()
    ids = frozenset(trial.id for trial in sweep.trials() if trial.batch_size == 1)
    settling = settle.Settling(trial_ids=ids, waves=2, rounds=6, repeats=6, description="")
    resumed = runs.resume(run.id, settling=settling)
    after = resumed.result()

    assert "wave 2 of 2" in resumed.progress.text
    counts = after["latency"].notnull().sum("repeat").transpose("batch_size", ...).squeeze()
    assert [[22, 22], [10, 10]] == counts.values.tolist()
    assert [1, 0] == after["looks"].max("compiler").transpose("batch_size", ...).values.ravel().tolist()
    first = after["latency"].isel(repeat=slice(10)).sel(batch_size=1)
    assert first.equals(before["latency"].isel(repeat=slice(10)).sel(batch_size=1))
    assert 3 == count_waves(np.asarray(after["round"].sel(batch_size=1, compiler="identity").squeeze()).tolist())
