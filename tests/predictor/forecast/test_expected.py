"""How long a sweep is likely to take, by what earlier ones took."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from ngbkit import options
from ngbkit.dataset import synthetic
from ngbkit.predictor.forecast import expected
from ngbkit.runs import FORMAT
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Measurement
from ngbkit.workloads.base import Workload


def sweep(*names: str, **more) -> Sweep:
    networks = [Workload(name=name, source="timm", spec={"name": name}) for name in names or ("net",)]
    return Sweep(networks, **{"compilers": ["identity", "openvino"], "repeats": 10, **more})


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Measurement]:
    """What a run of `sweep` measured."""
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(tmp_path))
    asked = sweep()
    folder = options.state_dir() / "runs" / "20300101-000000-abcd"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"format": FORMAT, "created": time.time(), "sweep": asked.to_json()}))
    found = [one for one in synthetic.records(asked) if isinstance(one, Measurement)]
    with Journal(folder / "journal.sqlite") as journal:
        journal.finish(found)
    return found


def cost(record: Measurement) -> float:
    return 1.0 + record.compile_time_s + record.first_call_time_s + sum(record.latency_s)


def test_the_same_sweep_takes_as_long_again(earlier: list[Measurement]) -> None:
    """Trials cost what they did."""
    assert sum(map(cost, earlier)) == pytest.approx(expected.expected_s(sweep()))


def test_another_network_costs_what_its_compilers_do(earlier: list[Measurement]) -> None:
    """Nobody has measured it, and its compilers are known."""
    assert expected.expected_s(sweep("net", "other")) == pytest.approx(2 * sum(map(cost, earlier)))


def test_more_samples_take_longer(earlier: list[Measurement]) -> None:
    """Compiling does not."""
    timed = sum(sum(record.latency_s) for record in earlier)

    assert expected.expected_s(sweep(repeats=30)) == pytest.approx(sum(map(cost, earlier)) + 2 * timed)


def test_devices_work_side_by_side(earlier: list[Measurement]) -> None:
    """Two of them take no longer than one."""
    assert expected.expected_s(sweep()) == pytest.approx(expected.expected_s(sweep(devices=["cpu", "orin"])))


def test_nothing_is_said_where_nothing_is_known(earlier: list[Measurement], tmp_path: Path) -> None:
    """Neither a compiler that was never used tells, nor a user's first sweep."""
    assert expected.expected_s(sweep(compilers=["tvm"])) is None
    assert "2 trials in 1 group, about 1 min 20 s" == expected.describe(sweep(), 80.2)
    assert "2 trials in 2 groups; no earlier run tells how long" == expected.describe(
        sweep("a", "b", compilers=["tvm"]), None
    )


def test_trials_of_earlier_runs_are_told_whole(earlier: list[Measurement]) -> None:
    """With their trial, their record and what is known of their network."""
    seen = list(expected.earlier())

    assert [one.trial_id for one in earlier] == [one.trial.id for one in seen]
    assert earlier == [one.record for one in seen]
    assert [{}, {}] == [one.facts for one in seen]
