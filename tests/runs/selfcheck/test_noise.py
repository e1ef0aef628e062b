"""The noise check: its sweep, what it reads off a dataset, and a real one with and without a busy process."""

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
import xarray as xr
from patience import wait_until
from selfchecks import make
from state import share_state_dir
from watching import Processes

from ngbkit import runs
from ngbkit.dataset import synthetic
from ngbkit.errors import UsageError
from ngbkit.runs import selfcheck
from ngbkit.runs.selfcheck import noise
from ngbkit.sweep.grid import Sweep

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)

ROUNDS, SAMPLES = 20, 5


def draw(groups: int, *, round_sd: float, process_sd: float, seed: int = 0) -> xr.Dataset:
    """A dataset of groups in which one column differs from the other by so much and nothing else."""
    dataset = synthetic.dataset(noise.plan(groups, repeats=ROUNDS * SAMPLES), seed=seed)
    assert isinstance(dataset, xr.Dataset)
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
    """Of the same network twice, with or without a busy process beside."""
    quiet, both = noise.plan(3, repeats=5), noise.plan(3, hog=True, precision="2%", threads=1)

    assert [(0, None), (1, None), (2, None)] == [(g.factors["replicate"], g.factors.get("hog")) for g in quiet.groups()]
    assert [(0, 0), (0, 1), (1, 0), (1, 1)] == [(g.factors["replicate"], g.factors["hog"]) for g in both.groups()]
    assert ("identity", noise.COPY) == quiet.compilers
    assert (0.02, 1) == (both.precision, both.threads)


@pytest.mark.parametrize("groups", [0, 1, -3])
def test_fewer_than_two_groups_are_refused(groups: int) -> None:
    """They would tell nothing of what processes differ by."""
    with pytest.raises(UsageError, match=f"groups {groups} does not fit; valid is an integer of at least 2"):
        noise.plan(groups)


def test_intervals_of_rounds_alone_are_too_narrow_where_processes_differ() -> None:
    """With the allowance that the other groups give they cover what they should."""
    found, none = noise.read(draw(150, round_sd=0.01, process_sd=0.02))

    assert none is None
    assert pytest.approx(0.02, rel=0.15) == found.process_sd
    assert pytest.approx(0.01, rel=0.15) == found.round_sd
    assert found.coverage_within < 0.6
    assert found.coverage_low < 0.95 < found.coverage_high
    assert found.noise_floor < 2 * found.process_sd < found.smallest_speedup - 1


def test_where_processes_are_alike_the_noise_is_that_of_the_rounds() -> None:
    """The smallest speed-up is that which nine of ten intervals would not reach 1 with."""
    found, _ = noise.read(draw(150, round_sd=0.02, process_sd=0.0))
    error = 1.2533 * 0.02 / ROUNDS**0.5

    assert pytest.approx(1.96 * error, rel=0.2) == found.noise_floor
    assert pytest.approx(1 + (1.96 + 1.28) * error, abs=0.005) == found.smallest_speedup
    assert (150, 0, ROUNDS, ROUNDS * SAMPLES) == (found.groups, found.failed, found.rounds, found.samples)
    assert pytest.approx(0.0, abs=1e-9) == found.drift


def test_a_group_without_a_measurement_is_left_out() -> None:
    """And counted."""
    dataset = draw(12, round_sd=0.01, process_sd=0.0)
    dataset["status"] = dataset["status"].where(dataset["replicate"] != 3, "crashed")
    dataset["status"] = dataset["status"].where(dataset["replicate"] < 10, "pending")
    found, _ = noise.read(dataset)

    assert (9, 1, 2) == (found.groups, found.failed, found.pending)


def test_too_few_rounds_have_no_intervals() -> None:
    """What takes none is told all the same, and the report says what to do."""
    few = draw(4, round_sd=0.01, process_sd=0.0).isel(repeat=slice(3 * SAMPLES))
    found, _ = noise.read(few)
    check = make(quiet=found)

    assert (4, 3) == (found.groups, found.rounds)
    assert found.round_sd > 0
    assert [True] * 3 == [math.isnan(one) for one in (found.noise_floor, found.smallest_speedup, found.coverage)]
    assert "too few rounds for intervals; take more repeats (-r)" in check.to_text()
    assert check.to_json()["noise_floor"] is None


def test_another_run_is_refused() -> None:
    """It says what starts a self-check; one that measured nothing says why."""
    other = synthetic.dataset(Sweep(["resnet18"], ["identity", "openvino"]))
    empty = draw(2, round_sd=0.01, process_sd=0.0)
    empty["status"], empty["error"] = xr.full_like(empty["status"], "failed"), xr.full_like(empty["error"], "no room")

    with pytest.raises(UsageError, match="is no self-check; `ngbkit selfcheck` starts one"):
        noise.read(other)
    with pytest.raises(UsageError, match="no group of this self-check gave a measurement: no room"):
        noise.read(empty)


def test_a_real_check_is_shown_and_kept(processes: Processes) -> None:
    """Half of its groups beside a busy process, which is gone afterwards; it can be reported on again."""
    found = selfcheck.run(groups=4, hog=True, repeats=12, threads=1)
    again = selfcheck.run(run_id=found.run)
    kept = selfcheck.latest()

    assert found.disturbed is not None
    assert (2, 2, 12) == (found.quiet.groups, found.disturbed.groups, found.quiet.samples)
    assert found.quiet == again.quiet
    assert kept is not None
    assert kept == again.to_json() == json.loads(json.dumps(kept))
    assert {"noise_floor", "smallest_speedup", "process_sd", "coverage", "groups", "created", "chip"} <= set(kept)
    assert "beside a busy process" in repr(found)
    assert found._repr_html_().count("<table") == 1
    assert [] == processes("prctl")


def test_an_interrupt_ends_the_busy_process(state_dir: Path, processes: Processes) -> None:
    """With all that was started, and says how to go on."""
    environment = {**os.environ, "NGBKIT_STATE_DIR": str(state_dir)}
    command = [sys.executable, "-m", "ngbkit", "selfcheck", "--groups", "40", "--hog", "-r", "100", "--threads", "1"]
    process = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: processes("prctl"))
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    finally:
        process.kill()
        process.wait()
    newest = max(folder.name for folder in (state_dir / "runs").iterdir())

    assert 130 == process.returncode
    assert f"ngbkit resume {newest} and then: ngbkit selfcheck --run {newest}" in told
    assert [] == processes("prctl")
    assert 80 == len(runs.read_sweep(runs.find(newest)))
