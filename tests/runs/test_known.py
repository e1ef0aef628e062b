"""Known trials: what decides whether a trial of an earlier run is taken over, one thing after another."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from journalled import store_run
from synthetic_records import build_network, build_record

from ngbkit import options
from ngbkit.api import Sweep
from ngbkit.dataset.assembly import assemble, list_origins
from ngbkit.runs import folders, known
from ngbkit.runs.known import EarlierRuns, KnownTrials
from ngbkit.sweep.joining import join
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Contract, Failure, Record
from ngbkit.sweep.trials import Group, Trial, facts_key, list_references
from ngbkit.sweep.variables import WAVE_STRIDE
from ngbkit.workloads import cell
from ngbkit.workloads.base import Workload

ENVIRONMENT: dict[str, Any] = {
    "chip": "a chip",
    "threads": 2,
    "system": "Linux 6.1",
    "governor": "performance",
    "host": "lab",
    "load_1min": 0.1,
    "packages": {"ngbkit": "0.1.0", "onnxruntime": "1.31.1"},
    "gpu": {"name": "a GPU", "driver_version": "580.1"},
    "conditions": {"turbo": False, "cpu_quota_cores": None, "busiest": ["python"], "transparent_hugepages": "madvise"},
    "child_settings": {"OMP_NUM_THREADS": "2"},
    "variables": {"HOME": "0f0f0f", "ATEN_CPU_CAPABILITY": "1e1e1e"},
}
COMPILERS = ("identity", "onnxruntime")
ROUNDS = 20


def build_sweep(compilers: tuple[str, ...] = COMPILERS, sizes: tuple[int, ...] = (1, 4), **more: Any) -> Sweep:
    network = more.pop("network", build_network("net"))
    return Sweep(network, list(compilers), list(sizes), **{"repeats": ROUNDS, **more})


def list_trials(group: Group) -> list[Trial]:
    return [*group.trials, *([group.anchor] if group.anchor is not None else [])]


def measure(sweep: Sweep, run_id: str = "first", environment: Mapping[str, Any] = ENVIRONMENT, **changes: Any) -> None:
    """Write a run that measured each trial in rounds with its group, onnxruntime twice as fast as identity."""
    now = changes.pop("started_at", time.time() - 60)
    generator = np.random.default_rng(len(run_id))
    records: list[Record] = []
    for group in sweep.groups():
        drift = np.exp(generator.normal(0, 0.05, ROUNDS))
        for trial in list_trials(group):
            latency = drift / (1 if trial.compiler == "identity" else 2)
            records.append(replace(build_record(trial, latency, started_at=now), **changes))
    with Journal(store_run(run_id, sweep, records) / "journal.sqlite") as journal:
        for kind in ("environment", "description"):
            journal.note(kind, "cpu", environment)
        runs = EarlierRuns(run_id, sweep)
        for network, (digest, _) in list_contents(sweep).items():
            journal.note("content", network, {"cpu": runs.describe_content("cpu", digest)})


def list_contents(sweep: Sweep) -> dict[str, tuple[str, str]]:
    groups = sweep.groups()
    return {facts_key(group.workload.name, group.factors): (group.workload.id, "") for group in groups}


def find(sweep: Sweep, environment: Mapping[str, Any] = ENVIRONMENT) -> KnownTrials:
    runs = EarlierRuns("next", sweep)
    return runs.find_known("cpu", environment, list_contents(sweep))


def list_repeated(sweep: Sweep, earlier: KnownTrials) -> set[str]:
    return list_references(sweep.groups(), earlier.records, earlier.records)


def test_the_same_sweep_is_known() -> None:
    """All trials, and the anchors beside them, are taken over from the run that measured them."""
    sweep = build_sweep()
    measure(sweep)
    earlier = find(sweep)

    assert {trial.id for group in sweep.groups() for trial in list_trials(group)} == set(earlier.records)
    assert {"first"} == {record.origin for record in earlier.records.values()}
    assert set() == list_repeated(sweep, earlier)
    assert earlier.text.startswith("all 4 trials are known from ")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"chip": "another"}, "chip was a chip and is another"),
        ({"threads": 4}, "threads was 2 and is 4"),
        ({"system": "Linux 6.2"}, "system was Linux 6.1 and is Linux 6.2"),
        ({"governor": "performance on 0, powersave on 1"}, "governor was performance and is performance on 0, powersa"),
        ({"host": "another"}, "host was lab and is another"),
        ({"packages": {"ngbkit": "0.1.0", "onnxruntime": "1.32.0"}}, "onnxruntime was 1.31.1 and is 1.32.0"),
        ({"packages": {"ngbkit": "0.2.0", "onnxruntime": "1.31.1"}}, "ngbkit was 0.1.0 and is 0.2.0"),
        ({"gpu": {"name": "a GPU", "driver_version": "590.2"}}, "gpu driver_version was 580.1 and is 590.2"),
        ({"gpu": {**ENVIRONMENT["gpu"], "bus_id": "0000:02:00.0"}}, "gpu bus_id was unknown and is 0000:02:00.0"),
        (
            {"conditions": {**ENVIRONMENT["conditions"], "cpu_quota_cores": 1.5}},
            "cpu_quota_cores was unknown and is 1.5",
        ),
        ({"conditions": {**ENVIRONMENT["conditions"], "turbo": True}}, "turbo was False and is True"),
        ({"conditions": {**ENVIRONMENT["conditions"], "on_battery": True}}, "on_battery was unknown and is True"),
        ({"conditions": {"turbo": False}}, "transparent_hugepages was madvise and is unknown"),
        ({"child_settings": {"OMP_NUM_THREADS": "1"}}, "OMP_NUM_THREADS was 2 and is 1"),
        ({"a_new_field": 1}, "a_new_field was unknown and is 1"),
        ({"variables": {"HOME": "2d2d2d", "CC": "3c"}}, "variables of the environment have changed (HOME, ATEN_CPU_CA"),
    ],
)
def test_a_changed_device_knows_nothing(change: dict[str, Any], reason: str) -> None:
    """Each field of the description is compared; the reason names it, and no value of a variable."""
    measure(build_sweep())
    earlier = find(build_sweep(), {**ENVIRONMENT, **change})

    assert {} == earlier.records
    assert earlier.text.startswith(f"no trial is known: {reason}")


@pytest.mark.parametrize(
    "change",
    [
        {"load_1min": 3.0, "memory_available_bytes": 5, "selfcheck": {"process_sd": 0.1}, "peaks": {"flops": 1e9}},
        {"conditions": {**ENVIRONMENT["conditions"], "busiest": ["cc"], "steal_percent": 2.0, "load_15min": 4.0}},
        {"releases": {"onnxruntime@1.22.0": {"seconds": 3.0, "packages": {"onnxruntime": "1.22.0"}}}},
    ],
)
def test_readings_and_results_separate_nothing(change: dict[str, Any]) -> None:
    """The load and what was found out about the device since are no part of it, nor is what was installed beside."""
    measure(build_sweep())

    assert 5 == len(find(build_sweep(), {**ENVIRONMENT, **change}).records)


def test_a_run_over_which_its_device_changed_is_not_known() -> None:
    """A run that was resumed in another state, or began and ended in two, has measurements of both."""
    steady = {**ENVIRONMENT, "conditions_after": {**ENVIRONMENT["conditions"], "busiest": []}}
    measure(build_sweep(), environment=steady)
    count = len(find(build_sweep()).records)
    for change in ({"change": "host was a and is b"}, {"conditions_after": {"turbo": True}}):
        measure(build_sweep(), f"other{len(change)}{next(iter(change))}", environment={**ENVIRONMENT, **change})
    (folders.get_runs_dir() / "first" / "journal.sqlite").unlink()

    assert 5 == count
    assert "the device changed while run other1" in find(build_sweep()).text


@pytest.mark.parametrize(
    ("earlier", "later", "count"),
    [
        # Each option that says how trials are measured separates them.
        ({}, {"threads": 1}, 0),
        ({}, {"seed": 3}, 0),
        ({}, {"min_rounds": 5}, 0),
        ({}, {"waves": 2}, 0),
        ({}, {"interleave": False}, 0),
        ({}, {"max_seconds": 9.0}, 0),
        ({}, {"patience": 0.0}, 0),
        # A time limit and the order of columns are no part of a trial.
        ({}, {"timeout_s": 9.0}, 5),
        ({}, {"compilers": COMPILERS[::-1]}, 5),
        ({}, {"sizes": (4, 1)}, 5),
        # More samples than requested are enough; fewer are not.
        ({}, {"repeats": 10}, 5),
        ({}, {"repeats": 20}, 5),
        ({}, {"repeats": 21}, 0),
        # A network is its description, and not its name.
        ({}, {"network": Workload(name="net", source="timm", spec={"name": "other"})}, 0),
        ({}, {"network": replace(build_network("net"), name="it2")}, 5),
        # A batch size that was measured alone cannot be normalised to another one.
        ({"sizes": (4,)}, {}, 0),
    ],
)
def test_trials_of_the_same_measurement_are_known(earlier: dict[str, Any], later: dict[str, Any], count: int) -> None:
    """A trial is known if an earlier run measured the same network in the same way."""
    measure(build_sweep(**earlier))

    assert count == len(find(build_sweep(**later)).records)


def test_a_run_that_ended_within_its_waves_is_not_known() -> None:
    """Its trials have fewer processes than the sweep asks for; with all of them they are."""
    measure(build_sweep(waves=2), "short")
    count = len(find(build_sweep(waves=2)).records)
    half = ROUNDS // 2
    measure(build_sweep(waves=2), "whole", rounds=(*range(half), *range(WAVE_STRIDE, WAVE_STRIDE + half)))

    assert (0, 5) == (count, len(find(build_sweep(waves=2)).records))


def test_calls_that_were_not_checked_are_not_known() -> None:
    """A measurement that says nothing of its inputs had the same ones in every call."""
    measure(build_sweep(), contract=Contract(runtime="none"))

    assert {} == find(build_sweep()).records


def test_a_further_batch_size_leaves_the_others() -> None:
    """The new group alone is to be measured."""
    measure(build_sweep())
    sweep = build_sweep(sizes=(1, 4, 8))
    earlier = find(sweep)
    (group,) = [group for group in sweep.groups() if group.batch_size == 8]

    assert {trial.id for trial in list_trials(group)} == {
        trial.id for each in sweep.groups() for trial in list_trials(each)
    } - set(earlier.records)
    assert set() == list_repeated(sweep, earlier)
    assert "4 of 6 trials are known" in earlier.text


def test_a_further_compiler_has_its_baseline_beside_it() -> None:
    """The baseline and the anchor of each group are measured once more, and no other known trial."""
    measure(build_sweep())
    sweep = build_sweep((*COMPILERS, "openvino"))
    earlier = find(sweep)

    assert list_repeated(sweep, earlier) == {
        trial.id for group in sweep.groups() for trial in list_trials(group) if trial.compiler == "identity"
    }


def test_columns_of_two_runs_have_the_rounds_of_both_baselines() -> None:
    """The baseline has the rounds of either run, and each column keeps the ratio that it had in its own."""
    measure(build_sweep(("identity", "onnxruntime")), "first")
    measure(build_sweep(("identity", "openvino")), "second")
    sweep = build_sweep(("identity", "onnxruntime", "openvino"))
    earlier = find(sweep)
    data = assemble(sweep, earlier.records.values(), environments={"cpu": {}})
    rounds = (data["round"] >= 0).sum("repeat").squeeze().transpose("compiler", "batch_size")

    assert [2 * ROUNDS, ROUNDS, ROUNDS] == rounds.sel(batch_size=4).values.tolist()
    assert np.allclose([1, 2, 2], data.ngb.speedup().squeeze().sel(batch_size=4).values)
    assert {"first", "second"} == set(list_origins(data))


@pytest.mark.parametrize(
    ("change", "is_known"),
    [
        ({"contended_samples": tuple(range(ROUNDS))}, False),
        ({"contended_samples": (0, 1)}, True),
        ({"started_at": time.time() - 8 * 86400}, False),
        ({"started_at": time.time() - 6 * 86400}, True),
        ({"started_at": time.time() + 7200}, False),
    ],
)
def test_what_is_not_conclusive_or_too_old_is_measured_again(change: dict[str, Any], is_known: bool) -> None:
    """A run of last week no longer counts, nor does a trial that other work slowed too much."""
    measure(build_sweep(), **change)

    trials = find(build_sweep())

    assert is_known == bool(trials.records)
    assert is_known or trials.text.startswith("no trial is known: ")


@pytest.mark.parametrize("skew_s", [-86400.0, -3600.0, 3600.0, 86400.0])
def test_the_clock_of_the_device_tells_how_old_a_run_is(skew_s: float) -> None:
    """A device whose clock is a day behind or ahead forgets nothing sooner, and nothing later."""
    environment = {**ENVIRONMENT, "history": {"deviations": {"onnxruntime": 0.2}}}
    measure(build_sweep(), environment=environment, started_at=time.time() + skew_s - 3600)
    clocks = [time.time() + skew_s + later_s for later_s in (0, 86400)]

    assert [4, 0] == [
        len([name for name in find(build_sweep(), {**environment, "clock": clock}).records if "anchor" not in name])
        for clock in clocks
    ]


def test_an_unsteady_device_forgets_within_a_day() -> None:
    """The history of the device says how old is too old."""
    environment = {**ENVIRONMENT, "history": {"deviations": {"onnxruntime": 0.2}}}
    measure(build_sweep(), environment=environment, started_at=time.time() - 2 * 86400)

    assert "the history of the device" in find(build_sweep()).text


def test_a_self_check_that_disagrees_voids_what_was_before_it() -> None:
    """A later self-check with three times the deviation is a changed machine."""
    measure(build_sweep(), environment={**ENVIRONMENT, "selfcheck": {"process_sd": 0.01, "pairs": []}})
    path: Path = options.LAYOUT.locate_selfcheck(options.get_state_dir(), "cpu")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"process_sd": 0.03}))

    assert "a self-check after run first disagrees" in find(build_sweep()).text


def test_networks_that_took_turns_are_known_together() -> None:
    """One more network beside them makes all be measured again."""
    networks = [build_network("net"), build_network("other")]
    sweep = Sweep(networks, list(COMPILERS), [1], repeats=ROUNDS, together=True)
    measure(sweep)
    more = Sweep([*networks, build_network("third")], list(COMPILERS), [1], repeats=ROUNDS, together=True)

    assert (4, 0) == (len(find(sweep).records), len(find(more).records))


def test_a_network_beside_an_earlier_one_is_measured_with_it() -> None:
    """Networks that were measured one after the other are not known in turns; a single network takes none."""
    measure(build_sweep())
    single = build_sweep(together=True)
    beside = evolve(single, workloads=(*single.workloads, build_network("other")))

    assert 5 == len(find(single).records)
    assert "run first measured its networks one after the other" in find(beside).text


def test_a_race_is_known_as_a_whole() -> None:
    """Another competitor starts the race again."""
    measure(build_sweep(race=True))
    other = build_sweep((*COMPILERS, "openvino"), race=True)

    assert (5, 0) == (len(find(build_sweep(race=True)).records), len(find(other).records))


def test_a_lasting_failure_is_known() -> None:
    """An unsupported network stays so; a timeout, and a release that was not installed, are tried again."""
    sweep = build_sweep(sizes=(1,))
    measure(sweep)
    trial = sweep.trials()[1]
    counts = []
    for status, stage in (("unsupported", "compile"), ("timeout", "compile"), ("unsupported", "install")):
        with Journal(folders.get_runs_dir() / "first" / "journal.sqlite") as journal:
            journal.finish([Failure(trial_id=trial.id, status=status, stage=stage, error="no")])
        counts.append(len(find(sweep).records))

    assert [2, 1, 1] == counts


def test_a_network_that_failed_everywhere_is_tried_again() -> None:
    """Nothing is known of a group without a measurement."""
    sweep = build_sweep(sizes=(1,))
    measure(sweep)
    with Journal(folders.get_runs_dir() / "first" / "journal.sqlite") as journal:
        journal.finish(
            [Failure(trial_id=trial.id, status="failed", stage="build", error="no") for trial in sweep.trials()]
        )

    assert {} == find(sweep).records


def test_a_joined_record_has_each_round_once() -> None:
    """Joining is idempotent, and keeps which samples were contended."""
    trial = build_sweep().trials()[0]
    first = build_record(trial, [1.0, 2.0], contended_samples=(1,))
    second = replace(first, latency_s=(3.0, 4.0), rounds=(7, 8), contended_samples=(0,))
    joined = join(first, second)

    assert ((1.0, 2.0, 3.0, 4.0), (0, 1, 7, 8), (1, 2)) == (joined.latency_s, joined.rounds, joined.contended_samples)
    assert joined == join(joined, second) == join(first, joined)


def test_a_second_run_measures_what_is_new(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new column is measured beside its baseline, which then has the rounds of both; a third run measures nothing.

    A variable that a library reads has all measured again, unlike those of a terminal.
    """
    monkeypatch.setattr(known, "is_conclusive", lambda record: True)  # whatever else this machine does
    first = Sweep(mlp, ["identity"], repeats=10, threads=1).run()
    sweep = Sweep(mlp, list(COMPILERS), repeats=10, threads=1)
    second = sweep.run()
    third = sweep.start()
    repeated = third.result()
    monkeypatch.setenv("TERM", "another-terminal")
    monkeypatch.setenv("SECRET_TOKEN", "a secret")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    other = sweep.start()
    other.result()
    again = sweep.run(again=True)

    assert [20, 10] == (second["round"] >= 0).sum("repeat").values.ravel().tolist()
    assert set(first["latency"].values.ravel()) < set(second["latency"].values.ravel())
    assert 10 == np.isin(second["round"].sel(compiler="onnxruntime"), second["round"].sel(compiler="identity")).sum()
    assert second["latency"].equals(repeated["latency"])
    assert third.known_trials["cpu"].startswith("all 2 trials are known")
    assert {second.attrs["run_id"]: 2} == list_origins(repeated)
    assert other.known_trials["cpu"].endswith("variables of the environment have changed (ATEN_CPU_CAPABILITY)")
    assert {} == list_origins(again)


def test_a_changed_module_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell is known until a module that it imports changes, and again when that is as before; a reason names it."""
    monkeypatch.setattr(known, "is_conclusive", lambda record: True)
    (tmp_path / "src").mkdir()
    module = tmp_path / "src" / "layers.py"
    monkeypatch.chdir(tmp_path)
    source = "import torch\nfrom src.layers import width\nmodel = torch.nn.Linear(width, 2)\ninput_shape = (width,)\n"
    sweep = Sweep(cell.from_source(source), ["identity"], [1], repeats=5, threads=1)
    texts, parameters = [], []
    for width in (4, 8, 4):
        module.write_text(f"width = {width}\n")
        run = sweep.start()
        (facts,) = json.loads(run.result().attrs["facts"]).values()
        texts.append(run.known_trials.get("cpu", ""))
        parameters.append(facts["parameters"])

    assert [10, 18, 10] == parameters
    assert ["", f"no trial is known: model: {module} has changed"] == texts[:2]
    assert texts[2].startswith("all 1 trials are known")
