"""What was measured before is known: in the latest runs, and in a dataset from elsewhere."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synthetic
import xarray as xr
from asking import build_sweep
from journalled import store_run

import ngbkit
from ngbkit import Sweep, registry, runs
from ngbkit.errors import UsageError
from ngbkit.predict.forecast.costs import compute_cost
from ngbkit.predict.forecast.earlier import EarlierTrial, load_earlier_trials
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.records import Measurement
from ngbkit.sweep.trials import facts_key
from ngbkit.workloads.base import Workload

RUN = "20300101-000000-abcd"


@pytest.fixture(autouse=True)
def _state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(tmp_path / "state"))


def expect(sweep: Grid) -> list[EarlierTrial]:
    """The trials of the records of a sweep."""
    return [
        EarlierTrial(
            trial=trial,
            seconds=float(np.median(record.latency_s)),
            conclusive=True,
            cost=compute_cost(record),
            facts={},
        )
        for trial, record in zip(sweep.trials(), synthetic.make_records(sweep), strict=True)
        if isinstance(record, Measurement)
    ]


def order(trials: list[EarlierTrial]) -> list[tuple[object, ...]]:
    """The trials as plain values, in an order of their own; costs of a file are rounded in their last digits."""
    rows = ((entry.trial.id, str(entry.trial), entry.seconds, *entry.cost, entry.facts) for entry in trials)
    return sorted((*row[:2], *(f"{number:.9g}" for number in row[2:-1]), str(row[-1])) for row in rows)


def test_the_latest_runs_are_known() -> None:
    """Each earlier trial has its median, its cost and the facts of its network."""
    sweep = build_sweep()
    store_run(RUN, sweep)

    assert order(expect(sweep)) == order(list(load_earlier_trials()))
    assert [] == list(load_earlier_trials(except_run=RUN))


def test_a_run_whose_compiler_was_uninstalled_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plug-in of a compiler was removed after a run, of which the index of runs has a line."""
    store_run(RUN, build_sweep())
    # The index keeps no line of a run that may change still.
    for file in store_run("20300102-000000-abcd", build_sweep(compilers=["identity", "tvm"])).iterdir():
        os.utime(file, (0, 0))
    assert 2 == len(list(runs.summaries()))
    every = registry.list_entry_points
    monkeypatch.setattr(
        registry,
        "list_entry_points",
        lambda group: {name: each for name, each in every(group).items() if name != "tvm"},
    )

    assert order(expect(build_sweep())) == order(list(load_earlier_trials()))


@pytest.mark.parametrize("as_file", [False, True])
def test_a_dataset_is_known_as_its_run_would_be(tmp_path: Path, as_file: bool) -> None:
    """A dataset gives the earlier trials that its run would give, with their facts."""
    sweep = build_sweep()
    data = synthetic.make_dataset(sweep)
    key = facts_key(sweep.trials()[0].workload, dict(sweep.trials()[0].factors))
    data.attrs["facts"] = json.dumps({key: {"macs": 7.0}})
    ngbkit.save(data, tmp_path / "data.nc")
    trials = list(load_earlier_trials(tmp_path / "data.nc" if as_file else data))

    assert order(expect(sweep)) == order([replace(entry, facts={}) for entry in trials])
    with_facts = [entry for entry in trials if entry.facts]
    assert {sweep.trials()[0].factors} == {entry.trial.factors for entry in with_facts}
    assert [{"macs": 7.0}] * len(with_facts) == [entry.facts for entry in with_facts]


def test_a_part_of_a_merged_dataset_is_known() -> None:
    """A part of a merged dataset gives its trials, except those without a latency."""
    plain = Sweep(Workload(name="plain", source="timm", spec={}), ["identity", "openvino"], [1, 2])
    merged = ngbkit.merge(synthetic.make_dataset(plain), synthetic.make_dataset(build_sweep()))
    failed = synthetic.make_dataset(plain, failures=1.0)

    assert order([*expect(plain), *expect(build_sweep())]) == order(list(load_earlier_trials(merged)))
    selected = synthetic.make_dataset(plain).sel(compiler="openvino")
    assert {"openvino"} == {entry.trial.compiler for entry in load_earlier_trials(selected)}
    assert [] == list(load_earlier_trials(failed))


def test_a_stored_run_counts_once() -> None:
    """The dataset of a run that is stored here, too."""
    sweep = build_sweep()
    store_run(RUN, sweep)
    data = synthetic.make_dataset(sweep, run_id=f"20290101-000000-abcd, {RUN}")

    assert len(sweep) == len(list(load_earlier_trials(data)))
    assert 2 * len(sweep) == len(list(load_earlier_trials(synthetic.make_dataset(sweep, run_id="another"))))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (7, "got a int; expected the dataset of a run"),
        (xr.Dataset(), "describes no network. Use the dataset of a run"),
        ("nothing.nc", "nothing.nc"),
    ],
)
def test_something_else_is_an_error(data: object, reason: str) -> None:
    """The error of an invalid source has the valid ones."""
    with pytest.raises(UsageError, match=reason):
        list(load_earlier_trials(data))  # type: ignore[arg-type]


def test_a_sweep_on_a_new_machine_begins_with_them() -> None:
    """The dataset of another machine predicts the duration and the results of a new sweep."""
    measured = build_sweep()
    sweep = build_sweep(batch_sizes=[*measured.batch_sizes, 8])
    data = synthetic.make_dataset(measured)
    estimate = sweep.estimate(earlier=data)
    predicted = estimate.data["predicted"].sel(batch_size=8)
    medians = synthetic.make_dataset(sweep)["latency"].median("repeat").sel(batch_size=8)

    with pytest.raises(
        UsageError, match=r"measurements of cpu; expected some of orin.*assign_coords\(device=\['orin'\]"
    ):
        build_sweep(devices=["orin"]).estimate(earlier=data)
    renamed = data.assign_coords(device=["orin"])
    assert build_sweep(devices=["orin"]).estimate(earlier=renamed).seconds is not None
    assert sweep.estimate().seconds is None
    assert estimate.seconds is not None
    assert float(abs(predicted / medians - 1).median()) < 0.1
    with pytest.raises(UsageError, match="got earlier measurements without a budget"):
        sweep.start(earlier=data)
