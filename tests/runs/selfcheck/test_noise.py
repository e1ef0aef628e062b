"""The noise check: its sweep, its estimates from a dataset, and a real one with and without a busy process."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import synthetic
import xarray as xr
from patience import wait_until
from selfchecks import make
from state import share_state_dir
from watching import Processes

from ngbkit import runs
from ngbkit.api import Sweep
from ngbkit.errors import UsageError
from ngbkit.runs import folders, selfcheck
from ngbkit.runs.selfcheck import noise

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)

ROUNDS, SAMPLES = 20, 5


def draw(groups: int, *, round_sd: float, process_sd: float, seed: int = 0) -> xr.Dataset:
    """Draw a dataset of groups whose two columns differ by the given standard deviations only."""
    dataset = synthetic.make_dataset(noise.build_sweep(groups, repeats=ROUNDS * SAMPLES), seed=seed)
    generator = np.random.default_rng(seed)
    shape = (groups, ROUNDS, 1)
    log = generator.normal(0, process_sd, (groups, 1, 1)) + generator.normal(0, round_sd, shape)
    pair = np.stack([np.zeros((groups, ROUNDS, SAMPLES)), log + np.zeros((groups, ROUNDS, SAMPLES))], axis=1)
    latency = dataset["latency"].transpose("replicate", "compiler", "repeat", ...)
    values = 1e-3 * np.exp(pair).reshape(latency.shape)
    rounds = np.broadcast_to(np.repeat(np.arange(ROUNDS), SAMPLES), pair.reshape(groups, 2, -1).shape)
    return dataset.assign(
        latency=latency.copy(data=values).transpose(*dataset["latency"].dims),
        round=latency.copy(data=rounds.reshape(latency.shape)).astype(int).transpose(*dataset["round"].dims),
    )


def test_each_replicate_is_a_group_of_its_own() -> None:
    """Each replicate measures the same network twice in a group of its own."""
    quiet, both = noise.build_sweep(3, repeats=5), noise.build_sweep(3, hog=True, precision="2%", threads=1)

    assert [(0, None), (1, None), (2, None)] == [(g.factors["replicate"], g.factors.get("hog")) for g in quiet.groups()]
    assert [(0, 0), (0, 1), (1, 0), (1, 1)] == [(g.factors["replicate"], g.factors["hog"]) for g in both.groups()]
    assert ("identity", noise.COPY) == quiet.compilers
    assert (0.02, 1) == (both.precision, both.threads)


@pytest.mark.parametrize("groups", [0, 1, -3])
def test_fewer_than_two_groups_are_an_error(groups: int) -> None:
    """A self-check of fewer than two groups is an error."""
    with pytest.raises(UsageError, match=f"invalid groups: got {groups}; expected an integer >= 2"):
        noise.build_sweep(groups)


def test_intervals_of_rounds_alone_are_too_narrow_where_processes_differ() -> None:
    """Intervals have the right coverage only with the allowance for processes."""
    quiet, contended = noise.estimate(draw(150, round_sd=0.01, process_sd=0.02))

    assert contended is None
    assert pytest.approx(0.02, rel=0.15) == quiet.process_sd
    assert pytest.approx(0.01, rel=0.15) == quiet.round_sd
    assert quiet.coverage_within < 0.6
    assert quiet.coverage_low < 0.95 < quiet.coverage_high
    assert quiet.noise_floor < 2 * quiet.process_sd < quiet.smallest_speedup - 1


def test_the_noise_of_identical_processes_is_that_of_the_rounds() -> None:
    """Nine of ten intervals of the smallest speed-up exclude 1."""
    quiet, _ = noise.estimate(draw(150, round_sd=0.02, process_sd=0.0))
    error = 1.2533 * 0.02 / ROUNDS**0.5

    assert pytest.approx(1.96 * error, rel=0.2) == quiet.noise_floor
    assert pytest.approx(1 + (1.96 + 1.28) * error, abs=0.005) == quiet.smallest_speedup
    assert (150, 0, ROUNDS, ROUNDS * SAMPLES) == (quiet.groups, quiet.failed, quiet.rounds, quiet.samples)
    assert pytest.approx(0.0, abs=1e-9) == quiet.drift


def test_a_group_without_a_measurement_is_excluded() -> None:
    """A group without a measurement is counted as failed or as pending."""
    dataset = draw(12, round_sd=0.01, process_sd=0.0)
    dataset["status"] = dataset["status"].where(dataset["replicate"] != 3, "crashed")
    dataset["status"] = dataset["status"].where(dataset["replicate"] < 10, "pending")
    quiet, _ = noise.estimate(dataset)

    assert (9, 1, 2) == (quiet.groups, quiet.failed, quiet.pending)


def test_too_few_rounds_have_no_intervals() -> None:
    """Estimates that need no interval remain, and the report says what to do."""
    few = draw(4, round_sd=0.01, process_sd=0.0).isel(repeat=slice(3 * SAMPLES))
    quiet, _ = noise.estimate(few)
    check = make(quiet=quiet)

    assert (4, 3) == (quiet.groups, quiet.rounds)
    assert quiet.round_sd > 0
    assert [True] * 3 == [math.isnan(value) for value in (quiet.noise_floor, quiet.smallest_speedup, quiet.coverage)]
    assert "too few rounds for intervals; measure more repeats (-r)" in check.to_report().to_text()
    assert check.to_json()["noise_floor"] is None


def test_a_run_that_is_not_a_self_check_is_an_error() -> None:
    """The message says how to start a self-check; that of an empty one says why it is empty."""
    other = synthetic.make_dataset(Sweep(["resnet18"], ["identity", "openvino"]))
    empty = draw(2, round_sd=0.01, process_sd=0.0)
    empty["status"], empty["error"] = xr.full_like(empty["status"], "failed"), xr.full_like(empty["error"], "no room")

    with pytest.raises(UsageError, match=r"is not a self-check\. `ngbkit selfcheck` starts one"):
        noise.estimate(other)
    with pytest.raises(UsageError, match="no group of this self-check was measured: no room"):
        noise.estimate(empty)


def test_a_real_check_is_displayed_and_stored(processes: Processes) -> None:
    """Half of its groups run beside a busy process, which ends with them; a second report on the run is the same."""
    check = selfcheck.run(groups=4, hog=True, repeats=12, threads=1)
    again = selfcheck.run(run_id=check.run)
    stored = selfcheck.latest()
    dataset = folders.load_dataset(folders.find(check.run))

    assert {("ok", "")} == {*zip(dataset["status"].values.ravel(), dataset["error"].values.ravel(), strict=True)}
    assert (2, 2, 12) == (check.quiet.groups, check.contended.groups, check.quiet.samples)
    assert check.quiet == again.quiet
    assert stored == again.to_json() == json.loads(json.dumps(stored))
    assert {"noise_floor", "smallest_speedup", "process_sd", "coverage", "groups", "created", "chip"} <= set(stored)
    assert "beside a busy process" in repr(check)
    assert check._repr_html_().count("<table") == 2
    assert [("onnxruntime", 2, ""), ("openvino", 2, "")] * 2 == [
        (pair.compiler, pair.groups, pair.problem) for pair in check.pairs
    ]
    assert [] == processes("prctl")


def test_an_interrupt_ends_the_busy_process(state_dir: Path, processes: Processes) -> None:
    """An interrupt of the self-check ends the busy processes and prints how to resume."""
    environment = {**os.environ, "NGBKIT_STATE_DIR": str(state_dir)}
    command = [sys.executable, "-m", "ngbkit", "selfcheck", "--groups", "40", "--hog", "-r", "100", "--threads", "1"]
    command += ["-c", "identity"]
    process = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: processes("prctl"))
        process.send_signal(signal.SIGINT)
        _, message = process.communicate()
    finally:
        process.kill()
        process.wait()
    newest = max(folder.name for folder in (state_dir / "runs").iterdir() if folder.is_dir())

    assert 130 == process.returncode
    assert f"`ngbkit runs --resume {newest}` and then: `ngbkit selfcheck {newest}`" in message
    assert [] == processes("prctl")
    assert 80 == len(folders.read_sweep(runs.find(newest)))
