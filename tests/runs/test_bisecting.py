"""A bisection by gates of known latencies: its answer, its skipped releases, and how it continues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from synthetic_records import build_network, build_record

import ngbkit
from ngbkit.dataset.assembly import assemble
from ngbkit.dataset.storage import Data
from ngbkit.device.release_index import IndexedReleases
from ngbkit.errors import RunInterruptedError, UsageError
from ngbkit.runs.bisection import bisecting
from ngbkit.runs.bisection.search import Bisection
from ngbkit.runs.folders import get_runs_dir
from ngbkit.sweep.column import Column
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.records import Failure, Record

RELEASES = tuple(f"1.{minor}.0" for minor in range(15, 24))
ROUNDS = 20


@dataclass
class Lab:
    """Runs of gates whose releases have these latencies, relative to each other, or fail."""

    latencies: Mapping[str, float]
    failing: Sequence[str] = ()
    uninstalled: Sequence[str] = ()
    fields: Mapping[str, object] = field(default_factory=dict)
    stops_at: int = 0
    sweeps: dict[str, Grid] = field(default_factory=dict)
    resumed: list[str] = field(default_factory=list)

    def start(self, sweep: Grid, **_: object) -> Any:
        run_id = f"run{len(self.sweeps)}"
        self.sweeps[run_id] = sweep
        folder = get_runs_dir() / run_id
        folder.mkdir(parents=True)
        (folder / "run.json").touch()
        return SimpleNamespace(id=run_id)

    def resume(self, run_id: str, **_: object) -> Any:
        self.resumed.append(run_id)
        return SimpleNamespace(id=run_id)

    def wait(self, run: Any) -> Data:
        if self.stops_at and len(self.sweeps) == self.stops_at:
            self.stops_at = 0
            raise KeyboardInterrupt
        return self.load(run.id)

    def load(self, run_id: str) -> Data:
        sweep, generator = self.sweeps[run_id], np.random.default_rng(int(run_id.removeprefix("run")))
        common = np.exp(generator.normal(0, 0.3, ROUNDS))
        records: list[Record] = []
        for trial in sweep.trials():
            release = Column.parse(trial.compiler).release
            if release in self.uninstalled:
                records.append(Failure(trial_id=trial.id, status="unsupported", stage="install", error="no network"))
                continue
            if release in self.failing:
                records.append(Failure(trial_id=trial.id, status="crashed", stage="measure", error="signal 11"))
                continue
            latency = common * np.exp(generator.normal(0, 0.01, ROUNDS)) * self.latencies[release]
            records.append(build_record(trial, latency, 7, **self.fields))
        installed = {label: {"seconds": 2.0, "size_bytes": 160_000_000} for label in sweep.compilers}
        refused = {f"onnxruntime@{release}": {"refusal": "no network"} for release in self.uninstalled}
        environments = {"cpu": {"selfcheck": {"process_sd": 0.003}, "releases": {**installed, **refused}}}
        return assemble(sweep, records, environments=environments, run_id=run_id)

    def bisect(self, releases: str, **keywords: Any) -> Bisection:
        lines: list[str] = []
        settings = {"wait": self.wait, "report": lines.append, "repeats": ROUNDS, **keywords}
        result = ngbkit.bisect(build_network("net"), "onnxruntime", releases, **settings)
        self.lines = lines
        return result


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lab:
    """A lab whose index has `RELEASES`, of which those from 1.20.0 on are slower by 6 %."""
    monkeypatch.setenv("NGBKIT_STATE_DIR", str(tmp_path))
    lab = Lab({release: 1.06 if release >= "1.20" else 1.0 for release in RELEASES})

    def list_indexed(distribution: str, first: str, last: str) -> IndexedReleases:
        assert ("onnxruntime", "1.15", "1.23") == (distribution, first, last)
        return IndexedReleases(releases=RELEASES, skipped={"1.15.1": "it has no wheel for Python 3.11"})

    monkeypatch.setattr(bisecting, "list_indexed_releases", list_indexed)
    monkeypatch.setattr(bisecting.lifecycle, "start", lab.start)
    monkeypatch.setattr(bisecting.lifecycle, "resume", lab.resume)
    monkeypatch.setattr(bisecting, "load_dataset", lambda folder: lab.load(folder.name))
    return lab


def list_releases(sweeps: Iterable[Grid]) -> list[list[str]]:
    return [[Column.parse(label).release for label in sweep.compilers] for sweep in sweeps]


def test_the_release_is_found_with_its_slowdown_and_its_price(lab: Lab) -> None:
    """A bisection names the release, its slowdown and its gates, and what tells the piece that became slower."""
    result = lab.bisect("1.15..1.23")
    text = str(result)
    took = result.list_notes()

    assert ("slower", ("1.20.0",)) == (result.verdict, result.suspects)
    assert result.is_slower
    assert result.low < 1.06 < result.high
    assert 0.95 < result.probability <= 1
    assert text.startswith("net with onnxruntime on cpu is slower since 1.20.0 (")
    assert "of 9 releases): a call takes 1.0" in text
    assert ["1.15.0", "1.23.0"] == list_releases(lab.sweeps.values())[0]
    assert all(["1.15.0", "1.23.0"] == names[::2] for names in list_releases(lab.sweeps.values())[1:])
    assert len(lab.sweeps) == len(result.gates) == len(result.to_report().frames[0].cells) <= 5
    assert took[0].startswith(f"{len(result.gates)} gates in ")
    assert "1.15.1 was skipped: it has no wheel for Python 3.11." in took
    assert "`--profile` names the piece of the network that takes longer." == took[-1]
    assert ["1.20.0"] == result.to_json()["suspects"]
    assert "gate 1: 1.23.0 is slower" in lab.lines


def test_a_stopped_bisection_continues_and_measures_nothing_twice(lab: Lab) -> None:
    """After Ctrl-C in a gate the same call resumes its run; once more it only reads; `again` begins anew."""
    lab.stops_at = 2
    with pytest.raises(RunInterruptedError, match="stopped in run run1"):
        lab.bisect("1.15..1.23")
    stopped = len(lab.sweeps)
    result = lab.bisect("1.15..1.23")
    measured = len(lab.sweeps)
    repeated = lab.bisect("1.15..1.23")

    assert 2 == stopped
    assert ["run1"] == lab.resumed
    assert [step.run_id for step in result.gates] == list(lab.sweeps)
    assert result.to_json() == repeated.to_json()
    assert measured == len(lab.sweeps)
    assert lab.lines[0] == (
        f"continuing after {measured} gates; one whose run was deleted (`ngbkit runs --delete ID`) is measured again"
    )

    lab.bisect("1.15..1.23", again=True)

    assert measured < len(lab.sweeps)


def test_a_release_that_crashes_is_skipped_and_its_neighbour_tried(lab: Lab) -> None:
    """A probe without a result is said, and the releases that only it could tell apart are suspected together."""
    lab.failing = ["1.19.0"]
    result = lab.bisect("1.15..1.23")

    assert ("1.19.0", "1.20.0") == result.suspects
    assert "crashed: signal 11" == result.skipped["1.19.0"]
    assert "is slower since 1.19.0 or 1.20.0 (" in str(result)
    assert any("1.19.0 is skipped, and its neighbour tried: crashed: signal 11" in line for line in lab.lines)


@pytest.mark.parametrize("release", ["1.15.0", "1.19.0", "1.23.0"])
def test_a_release_that_was_not_installed_is_tried_again(lab: Lab, release: str) -> None:
    """The next call measures the gate again, whether the release is an end or between them."""
    lab.uninstalled = [release]
    with suppress(UsageError):
        lab.bisect("1.15..1.23")
    lab.uninstalled = []
    result = lab.bisect("1.15..1.23")

    assert ("slower", ("1.20.0",)) == (result.verdict, result.suspects)


def test_two_changes_are_said_with_the_bisections_of_both_parts(lab: Lab) -> None:
    """A release between both levels is no end of one change; both parts are proposed."""
    lab.latencies = {release: 1.0 + 0.05 * (release >= "1.18") + 0.05 * (release >= "1.21") for release in RELEASES}
    result = lab.bisect("1.15..1.23")

    assert "several changes" == result.verdict
    assert {*result.suspects} <= {"1.18.0", "1.19.0", "1.20.0"}
    assert f"--releases 1.15.0..{result.suspects[0]}, and --releases {result.suspects[-1]}..1.23.0" in str(result)


def test_without_a_slowdown_only_the_ends_are_measured(lab: Lab) -> None:
    """Equal ends are no regression, with the interval."""
    lab.latencies = dict.fromkeys(RELEASES, 1.0)
    result = lab.bisect("1.15..1.23", margin="2%")

    assert "not slower" == result.verdict
    assert not result.is_slower
    assert "has no regression of more than 2 % from 1.15.0 to 1.23.0: a call takes " in str(result)
    assert {("1.15.0", "1.23.0")} == {*map(tuple, list_releases(lab.sweeps.values()))}


def test_gates_that_other_work_slowed_are_no_evidence_and_measured_again(lab: Lab) -> None:
    """Contended gates are not conclusive; the same call measures them again."""
    lab.fields = {"contended_samples": tuple(range(ROUNDS))}
    result = lab.bisect("1.15..1.23")
    lab.fields = {}
    later = lab.bisect("1.15..1.23")

    assert "not conclusive" == result.verdict
    assert "may be slower by more than 1 % since 1.15.0, or not" in str(result)
    assert result.list_notes()[-1].startswith(f"Other work slowed {len(result.gates)} of {len(result.gates)} gates")
    assert ("1.20.0",) == later.suspects
    assert "continuing" not in lab.lines[0]


def test_an_end_without_a_result_is_an_error(lab: Lab) -> None:
    """The error names the release, its reason and its end."""
    lab.failing = ["1.15.0"]
    with pytest.raises(UsageError, match=r"onnxruntime@1\.15\.0 has no result \(crashed.*Choose another first release"):
        lab.bisect("1.15..1.23")


@pytest.mark.parametrize(
    ("compiler", "releases", "keywords", "message"),
    [
        ("onnxruntime", "1.19", {}, "got '1.19'; expected all to choose from"),
        ("onnxruntime", ["1.19.2"], {}, "got '1.19.2'; expected all to choose from"),
        ("onnxruntime", "1.19..1.20..1.23", {}, "or both ends, such as 1.19..1.21"),
        ("onnxruntime", "1.19..", {}, "expected a release of onnxruntime after @"),
        ("onnxruntime", "1.19..1.20,1.23", {}, "expected a release of onnxruntime after @"),
        ("onnxruntime@1.19", "1.19..1.23", {}, "one compiler without a release"),
        ("onnxruntime", "1.19..1.23", {"batch_sizes": [1, 2]}, "got 2 trials"),
        ("onnxruntime", ["x", "1.23"], {}, "expected a release of onnxruntime after @"),
        ("tvm", "0.18..0.20", {}, "tvm has no releases that ngbkit can install"),
        ("onnxruntime", "1.19..1.23", {"margin": 2}, "invalid margin"),
    ],
)
def test_invalid_bisections_are_refused_first(
    compiler: str, releases: str | list[str], keywords: dict[str, Any], message: str
) -> None:
    """Invalid requests are refused before the index is read."""
    with pytest.raises(UsageError, match=message):
        ngbkit.bisect(build_network("net"), compiler, releases, **keywords)
