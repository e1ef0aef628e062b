"""The history of a device: stored runs of one sweep, compared with each other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from journalled import store_run

from ngbkit import cli
from ngbkit.api import Sweep
from ngbkit.metrics.draws import UNCHECKED_SD
from ngbkit.runs.selfcheck import compare_runs
from ngbkit.sweep.journal import Journal
from ngbkit.workloads.base import Workload

ENVIRONMENT = {"chip": "one", "cores_usable": 2, "packages": {"onnxruntime": "1.2"}}


@pytest.fixture
def sweep(mlp: Workload) -> Sweep:
    return Sweep(mlp, ["identity", "onnxruntime", "openvino"], [1, 2], repeats=30)


def store(
    sweep: Sweep,
    hour: int,
    *,
    faster: Mapping[str, float] = {},
    environment: Mapping[str, Any] = ENVIRONMENT,
    contended: bool = False,
) -> str:
    """Store a synthetic run that began at an hour, with some compilers so many times as fast."""
    run_id = f"20261122-{hour:02}0000-abcd"
    compilers = {trial.id: trial.compiler for trial in sweep.trials()}
    records = []
    for record in synthetic.make_records(sweep, seed=hour):
        factor = faster.get(compilers[record.trial_id], 1.0)
        latency_s = tuple(value / factor for value in record.latency_s)
        marked = tuple(range(len(latency_s))) if contended else ()
        records.append(replace(record, latency_s=latency_s, contended_samples=marked))
    folder = store_run(run_id, sweep, records, created=3600.0 * hour)
    with Journal(folder / "journal.sqlite") as journal:
        journal.note("environment", "cpu", environment)
    return run_id


def test_runs_of_one_sweep_are_compared_each_with_each(sweep: Sweep) -> None:
    """Each pair of runs of one sweep is compared, and other runs are not."""
    ids = [store(sweep, hour) for hour in (1, 2, 4)]
    store(Sweep(sweep.workloads, ["identity", "openvino"], [1], repeats=30), 5)
    history = compare_runs()
    counts = {(pair.first, pair.second): (pair.hours, pair.judged, pair.consecutive) for pair in history.repetitions}

    assert {
        (ids[0], ids[1]): (1, 4, True),
        (ids[0], ids[2]): (3, 4, False),
        (ids[1], ids[2]): (2, 4, True),
    } == counts
    assert 0 == history.share[0]
    assert "0 of 12 conclusive speed-ups differ beyond their 95% intervals" in repr(history)
    assert "3.0 h" in history._repr_html_()


def test_a_speed_up_that_another_run_denies_is_counted(sweep: Sweep) -> None:
    """Both runs of such a pair are wrong or right; either way their intervals are too narrow."""
    for hour, factor in ((1, 1.0), (2, 1.5), (3, 2.5), (4, 4.0), (5, 6.0)):
        store(sweep, hour, faster={"onnxruntime": factor})
    history = compare_runs()
    rate, low, high = history.share

    assert [2] * 10 == [pair.changed for pair in history.repetitions]
    assert (0.5, True, True) == (rate, 0.2 < low < 0.5, 0.5 < high < 0.8)
    assert "They are too narrow here" in repr(history)
    assert 0.5 == history.to_json()["share"]


def test_later_runs_allow_for_what_earlier_ones_differed_by(state_dir: Path, sweep: Sweep) -> None:
    """A later run has an allowance for the differences of earlier runs, by compiler."""
    for hour, factor in ((1, 1.0), (2, 1.2)):
        store(sweep, hour, faster={"onnxruntime": factor})
    early = compare_runs()
    for hour, factor in ((3, 1.1), (4, 0.9), (5, 1.0)):
        store(sweep, hour, faster={"onnxruntime": factor})
    history = compare_runs()
    variance = float(np.log([1.0, 1.2, 1.1, 0.9, 1.0]).var(ddof=1))
    expected = ((2 * UNCHECKED_SD**2 + 4 * variance) / 6) ** 0.5 * 2.447 / 1.96
    stored = json.loads((state_dir / "selfcheck" / "cpu.history.json").read_text())

    assert {} == early.deviations
    assert "needs 3 runs of one sweep" in repr(early)
    assert (5, 4.0) == (history.runs, history.hours)
    assert pytest.approx(expected, rel=0.1) == history.deviations["onnxruntime"]
    assert history.deviations["openvino"] < 0.02
    assert ("one", 2, history.deviations) == (stored["chip"], stored["threads"], stored["deviations"])
    assert "from run to run (standard deviations of 5 runs over 4.0 h" in repr(history)


def test_sweeps_of_other_threads_say_nothing_of_the_latest(state_dir: Path, sweep: Sweep) -> None:
    """The stored deviations are those of the latest sweep's number of threads."""
    single = Sweep(sweep.workloads, sweep.compilers, [1, 2], repeats=30, threads=1)
    for hour in (1, 2, 3):
        store(single, hour, faster={"onnxruntime": float(hour)})
        store(sweep, hour + 10)
    history = compare_runs()
    stored = json.loads((state_dir / "selfcheck" / "cpu.history.json").read_text())

    assert (3, 2) == (history.runs, stored["threads"])
    assert stored["deviations"]["onnxruntime"] < 0.05


def test_what_a_run_marked_as_inconclusive_is_not_held_against_it(sweep: Sweep) -> None:
    """The history omits the inconclusive speed-ups of a run."""
    store(sweep, 1)
    store(sweep, 2, faster={"onnxruntime": 3.0}, contended=True)
    history = compare_runs()
    (pair,) = history.repetitions

    assert (0, 0, 4) == (pair.judged, pair.changed, pair.inconclusive)
    assert "No speed-up is conclusive in two runs." in repr(history)


def test_another_machine_is_not_compared(sweep: Sweep) -> None:
    """The reason is named once, with how often it was met."""
    for hour in (1, 2):
        store(sweep, hour)
    store(sweep, 3, environment={**ENVIRONMENT, "packages": {"onnxruntime": "1.3"}})
    history = compare_runs()

    assert 1 == len(history.repetitions)
    assert ("Not compared, 2 times: onnxruntime was 1.2 and is 1.3",) == history.unlike


def test_a_device_without_repeated_runs_says_what_to_do(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    """The error of a device without repeated runs has the remedy."""
    store(sweep, 1)
    assert 0 == cli.main(["selfcheck", "--history"])
    assert "There are no two runs of one sweep on cpu to compare. Run a sweep again" in capsys.readouterr().out
    assert 0 == cli.main(["selfcheck", "--history", "--json"])
    assert json.loads(capsys.readouterr().out)["share"] is None
    assert 2 == cli.main(["selfcheck", "--history", "--groups", "3"])
    assert "--history compares stored runs, and --groups is about measuring" in capsys.readouterr().err
