"""The duration of a sweep is estimated from earlier runs."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import synthetic
from journalled import store_run

from ngbkit import runs
from ngbkit.api import Sweep, resume
from ngbkit.predict.forecast.costs import Costs, compute_cost
from ngbkit.predict.forecast.estimate import describe, estimate_seconds
from ngbkit.sweep.records import Measurement
from ngbkit.workloads.base import Workload


def build_sweep(*names: str, **settings) -> Sweep:
    networks = [Workload(name=name, source="timm", spec={"name": name}) for name in names or ("net",)]
    return Sweep(networks, **{"compilers": ["identity", "openvino"], "repeats": 10, **settings})


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Measurement]:
    """The measurements of an earlier run of `sweep`."""
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(tmp_path))
    sweep = build_sweep()
    records = synthetic.make_records(sweep)
    store_run("20300101-000000-abcd", sweep, records)
    return records


def cost(record: Measurement) -> float:
    return 1.0 + record.compile_time_s + record.first_call_time_s + sum(record.latency_s)


def test_the_same_sweep_takes_as_long_again(earlier: list[Measurement]) -> None:
    """Trials cost the same again."""
    assert sum(map(cost, earlier)) == pytest.approx(estimate_seconds(build_sweep()))


def test_another_network_costs_what_its_compilers_do(earlier: list[Measurement]) -> None:
    """An unmeasured network costs as much as others with its compilers."""
    assert estimate_seconds(build_sweep("net", "other")) == pytest.approx(2 * sum(map(cost, earlier)))


def test_more_samples_take_longer(earlier: list[Measurement]) -> None:
    """A sweep with more samples has a longer estimate and the same time to compile."""
    timed = sum(sum(record.latency_s) for record in earlier)

    assert estimate_seconds(build_sweep(repeats=30)) == pytest.approx(sum(map(cost, earlier)) + 2 * timed)


@pytest.mark.parametrize(("called_s", "factor"), [(None, 1.0), ("long", 1.0), (0, 1.0), (2.0, 2.0)])
def test_untimed_calls_take_time_too(called_s: object, factor: float) -> None:
    """The estimate includes untimed calls if a record has their valid total time."""
    sweep = build_sweep(compilers=["identity"])
    (record,) = synthetic.make_records(sweep)
    timed_s = sum(record.latency_s)
    called_s = called_s * timed_s if isinstance(called_s, float) else called_s
    record = replace(record, facts={**record.facts, "called_s": called_s})
    costs = Costs([(trial, compute_cost(record)) for trial in sweep.trials()])

    assert estimate_seconds(sweep, costs) == pytest.approx(cost(record) + (factor - 1) * timed_s)


def test_devices_work_side_by_side(earlier: list[Measurement]) -> None:
    """Two devices take no longer than one."""
    assert estimate_seconds(build_sweep()) == pytest.approx(estimate_seconds(build_sweep(devices=["cpu", "orin"])))


def test_devices_that_share_cores_work_in_turn(
    earlier: list[Measurement], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two devices of one machine take twice as long."""
    (tmp_path / "devices.toml").write_text('[gpu]\nlaunch = "local"\naccelerator = "cuda:0"\n')
    monkeypatch.setenv("NGBKIT_CONFIG_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    assert 2 * sum(map(cost, earlier)) == pytest.approx(estimate_seconds(build_sweep(devices=["cpu", "gpu"])))


def test_nothing_is_estimated_without_measurements(earlier: list[Measurement], tmp_path: Path) -> None:
    """An unused compiler has no estimate, and neither has the first sweep."""
    assert estimate_seconds(build_sweep(compilers=["tvm"])) is None
    assert "2 trials in 1 group, about 1 min 20 s" == describe(build_sweep(), 80.2)
    assert "2 trials in 2 groups; the duration is unknown without an earlier run" == describe(
        build_sweep("a", "b", compilers=["tvm"]), None
    )


def test_the_trials_of_a_resumed_run_count_once(earlier: list[Measurement], monkeypatch: pytest.MonkeyPatch) -> None:
    """The trials of a resumed run count once, as its own records."""
    estimate = import_module("ngbkit.predict.forecast.estimate")
    monkeypatch.setattr(estimate, "Guide", lambda sweep, **keywords: [*keywords["earlier"]])
    monkeypatch.setattr(runs, "resume", lambda run_id, guide: guide)

    assert len(earlier) == len(estimate.guide_of(build_sweep(), "50%"))
    assert [] == resume("20300101", budget="50%")
