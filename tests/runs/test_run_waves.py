"""A run in waves: each group is measured several times in new processes, and its records are joined."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from patience import wait_until
from synthetic_records import build_record

from ngbkit import runs
from ngbkit.api import Sweep
from ngbkit.errors import UsageError
from ngbkit.runs.run import Run
from ngbkit.sweep import joining
from ngbkit.sweep.records import Measurement
from ngbkit.sweep.settling import count_waves
from ngbkit.sweep.variables import WAVE_STRIDE


def list_waves(run: Run) -> list[int]:
    """List the number of waves of each trial."""
    return [count_waves(record.rounds) for record in run.records() if isinstance(record, Measurement)]


def test_each_wave_has_new_processes_and_its_share_of_the_samples(mlp_file: Path) -> None:
    """Trials and the anchor have rounds of both waves; progress ends at the end of the last."""
    run = runs.start(Sweep([str(mlp_file)], ["identity", "onnxruntime"], [1, 2], repeats=8, waves=2))
    run.wait()
    data = run.dataset()

    assert (None, 1.0) == (run.error, run.progress.share)
    assert [2, 2, 2, 2] == list_waves(run)
    assert "wave 2 of 2" in run.progress.text
    assert (data["latency"].notnull().sum("repeat") >= 8).all()
    numbers = np.asarray(data["anchor_round"])
    assert 2 == count_waves(numbers[numbers >= 0].tolist())
    assert data.ngb.speedup(ci=0.95)["ci_low"].notnull().all()


def test_a_run_that_was_stopped_within_a_wave_goes_on_there(mlp_file: Path) -> None:
    """The samples of earlier waves are kept, and a resumed run has all waves."""
    run = runs.start(Sweep([str(mlp_file)], ["identity", 'slow{"seconds":0.05}'], repeats=24, waves=3))
    wait_until(lambda: "wave 2 of 3: measuring" in run.progress.text)
    run.stop()
    run.wait()
    assert run.progress.statuses == {"ok": 2}
    assert next(iter(runs.summaries())).is_resumable
    before = {record.trial_id: record for record in run.records()}
    resumed = runs.resume(run.id)
    resumed.wait()

    assert not next(iter(runs.summaries())).is_resumable
    assert {"stopped": "finished"} == {run.state: resumed.state}
    assert [3, 3] == list_waves(resumed)
    for record in resumed.records():
        assert isinstance(record, Measurement)
        earlier = before[record.trial_id]
        assert isinstance(earlier, Measurement)
        assert earlier.latency_s == record.latency_s[: len(earlier.latency_s)]


def test_a_joined_record_has_what_both_sessions_tell() -> None:
    """Compile times are of empty caches, shares are averaged by samples, and the readings are of all samples."""
    readings = {
        "rounds": [0, 1],
        "samples": [2, 2],
        "disturbed": [0, 0],
        "trip_s": [1e-7, 2e-7],
        "work_s": [1e-5, 1e-5],
    }
    (trial,) = Sweep("resnet18", repeats=4).trials()
    record = build_record(trial, [1.0, 1.1, 1.2, 1.3], samples=2)
    first = replace(record, foreign_percent=2.0, compile_time_s=9.0, facts={"host": readings, "called_s": 2.0})
    second = replace(
        first,
        rounds=tuple(number + WAVE_STRIDE for number in first.rounds),
        foreign_percent=4.0,
        steal_percent=1.0,
        compile_time_s=1.0,
        facts={"host": {**readings, "trip_s": [3e-7, 4e-7]}, "called_s": 1.0},
    )
    joined = joining.join(first, second)
    assert isinstance(joined, Measurement)

    assert (9.0, 3.0, 1.0) == (joined.compile_time_s, joined.foreign_percent, joined.steal_percent)
    assert [1e-7, 2e-7, 3e-7, 4e-7] == joined.facts["host"]["trip_s"]
    assert 3.0 == joined.facts["called_s"]
    assert 8 == len(joined.latency_s) == sum(joined.facts["host"]["samples"])
    alone = joining.join(first, replace(second, facts={"graph": "a"}))
    assert isinstance(alone, Measurement)
    assert {"graph": "a"} == alone.facts


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"repeats": 100}, (34, None, None, 4)),
        ({"precision": 0.02, "max_seconds": 30.0}, (None, pytest.approx(0.0346, rel=0.01), 10.0, 4)),
        ({"repeats": 6, "min_rounds": 30}, (2, None, None, 10)),
    ],
)
def test_a_wave_has_its_share(options: dict[str, float], expected: tuple[object, ...]) -> None:
    """Samples, rounds, the time and the precision of a wave add up to those of the run; one wave is the run."""
    sweep = Sweep("resnet18", waves=3, **options)  # type: ignore[arg-type]
    wave = sweep.to_wave()

    assert expected == (wave.repeats, wave.precision, wave.max_seconds, wave.min_rounds)
    assert [trial.id for trial in sweep.trials()] == [trial.id for trial in wave.trials()]
    assert "waves" not in Sweep("resnet18", repeats=4).to_json()


def test_a_budget_has_no_waves() -> None:
    """The error says which of both to leave out."""
    guide: Any = object()
    with pytest.raises(UsageError, match=r"waves=3\. Leave one of them out"):
        runs.start(Sweep("resnet18", waves=3), guide=guide)
