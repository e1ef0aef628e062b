"""Several devices on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import wait_until
from watching import Processes

from ngbkit.cluster import engines
from ngbkit.device import plan
from ngbkit.device.interrupt import Interrupt
from ngbkit.device.lock import occupied
from ngbkit.sweep.grid import Sweep
from ngbkit.workloads.base import Workload


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    engines.close()


def write(folder: Path, text: str) -> None:
    """The devices file of that folder."""
    (folder / "devices.toml").write_text(text)
    (folder / "devices.toml").chmod(0o600)


def test_core_sets_are_devices_of_their_own(
    mlp: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: Processes
) -> None:
    """Measured at once, each on its cores, with its threads, behind one controller."""
    monkeypatch.chdir(tmp_path)
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    write(
        tmp_path,
        f"""
        [low]
        launch = "local"
        cores = [{first}]
        [high]
        launch = "local"
        cores = "{last}"
        threads = 1
        env = {{ COLOUR = "blue" }}
        """,
    )
    data = Sweep(mlp, ["onnxruntime"], [1, 2], repeats=10, devices=["low", "high"]).run()
    environments = json.loads(data.attrs["environments"])
    found = {engine.environ().get("COLOUR"): engine for engine in processes("ngbkit.device.engine")}
    leaders = [one for one in processes("ngbkit.cluster.controller") if os.getpgid(one.pid) == one.pid]

    assert {"ok"} == set(data["status"].values.ravel())
    assert [1, 1] == [environments[label]["cores_usable"] for label in ("low", "high")]
    assert ([first], [last]) == (found[None].cpu_affinity(), found["blue"].cpu_affinity())
    assert "-1" == found["blue"].environ()["CUDA_VISIBLE_DEVICES"]
    assert 1 == len(leaders)


def test_a_device_that_is_described_anew_is_started_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that is not is used again."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, '[own]\nlaunch = "local"')
    one, same = engines.engine("own"), engines.engine("own")
    write(tmp_path, '[own]\nlaunch = "local"\nenv = { COLOUR = "red" }')
    other = engines.engine("own")

    assert one is same
    assert one is not other
    assert not one.alive()


def test_a_slow_device_does_not_hold_a_fast_one(
    mlp: Workload, tmp_path: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one is taken by somebody else for as long as the other needs."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, '[slow]\nlaunch = "local"\n[fast]\nlaunch = "local"')
    with Interrupt() as interrupt, occupied(plan.lock_path(state_dir, "slow"), "another", interrupt.descriptor, print):
        run = Sweep(mlp, ["onnxruntime"], [1, 2], repeats=10, devices=["slow", "fast"]).start()
        wait_until(lambda: run.progress.done >= 2)
        meanwhile = run.dataset()["status"]
    data = run.result()

    assert {"pending"} == set(meanwhile.sel(device="slow").values.ravel())
    assert {"ok"} == set(meanwhile.sel(device="fast").values.ravel()) == set(data["status"].values.ravel())


def test_an_engine_tells_how_its_device_is() -> None:
    """Load and memory in numbers, and the end of what it has printed."""
    found = engines.engine()
    found.hello()
    vitals = found.vitals()

    assert vitals.load is not None
    assert (vitals.memory_available_bytes or 0) > 1e6
    assert "Completed registration" in vitals.log


def test_engines_that_run_are_known_and_stopped_by_their_label(processes: Processes) -> None:
    """One that was stopped is gone, and the next is another."""
    first = engines.engine()

    assert {"cpu": first} == engines.running()

    engines.stop("cpu")
    engines.stop("cpu")

    assert {} == engines.running()
    assert [] == processes("ngbkit.device.engine")
