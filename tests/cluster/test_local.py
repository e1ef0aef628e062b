"""Several devices on this machine."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import wait_until
from watching import Processes

from ngbkit import options
from ngbkit.api import Sweep
from ngbkit.cluster import engines
from ngbkit.device import plan
from ngbkit.device.interrupt import Interrupt
from ngbkit.device.lock import acquire_cores, acquire_lock
from ngbkit.options import LAYOUT
from ngbkit.workloads.base import Workload


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    engines.close()


def write(folder: Path, text: str) -> None:
    """Write the devices file of a folder."""
    (folder / "devices.toml").write_text(text)
    (folder / "devices.toml").chmod(0o600)


def test_core_sets_are_separate_devices(
    mlp: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: Processes
) -> None:
    """Core sets measure at once, each on its cores and threads, on one controller."""
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
    by_colour = {engine.environ().get("COLOUR"): engine for engine in processes("ngbkit.device.engine")}
    controllers = processes("ngbkit.cluster.controller")
    leaders = [process for process in controllers if os.getpgid(process.pid) == process.pid]

    assert {"ok"} == set(data["status"].values.ravel())
    assert [1, 1] == [environments[label]["cores_usable"] for label in ("low", "high")]
    assert ([first], [last]) == (by_colour[None].cpu_affinity(), by_colour["blue"].cpu_affinity())
    assert "-1" == by_colour["blue"].environ()["CUDA_VISIBLE_DEVICES"]
    assert 1 == len(leaders)


def test_a_changed_device_starts_a_new_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unchanged device shares its engine."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, '[own]\nlaunch = "local"')
    first, second = engines.acquire("own"), engines.acquire("own")
    write(tmp_path, '[own]\nlaunch = "local"\nenv = { COLOUR = "red" }')
    third = engines.acquire("own")

    assert first is second
    assert first is not third
    assert not first.is_alive()


def test_a_greeting_that_is_lost_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller drops what it routes before the engine's connection is complete; a late reply is ignored."""
    engine = engines.acquire("cpu")
    client = engine.view.client
    send, requests = client.session.send, []

    def lose_first(socket: Any, message: Any, **settings: Any) -> Any:
        if message["header"]["msg_type"] == "apply_request":
            requests.append((socket, message, settings))
            if len(requests) == 1:
                return message
        return send(socket, message, **settings)

    monkeypatch.setattr("ngbkit.cluster.engine._RESEND_S", 0.5)
    monkeypatch.setattr(client.session, "send", lose_first)
    environment = engine.hello()
    lost_socket, lost, settings = requests[0]
    client._io_loop.add_callback(send, lost_socket, lost, **settings)
    vitals = engine.vitals()

    assert environment["cores_usable"] >= 1
    assert len(requests) >= 3
    assert vitals.memory_available_bytes is not None
    assert not client.outstanding


@pytest.mark.guard
def test_a_slow_device_never_blocks_a_fast_one(
    mlp: Workload, tmp_path: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow device that another process locks never blocks a fast one."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, '[slow]\nlaunch = "local"\n[fast]\nlaunch = "local"')
    lock = plan.locate_lock(state_dir, "slow")
    with Interrupt() as interrupt, acquire_lock(lock, "another", interrupt.descriptor, print):
        run = Sweep(mlp, ["onnxruntime"], [1, 2], repeats=10, devices=["slow", "fast"]).start()
        wait_until(lambda: run.progress.done >= 2)
        meanwhile = run.dataset()["status"]
    data = run.result()

    assert {"pending"} == set(meanwhile.sel(device="slow").values.ravel())
    assert {"ok"} == set(meanwhile.sel(device="fast").values.ravel()) == set(data["status"].values.ravel())


def test_devices_of_one_machine_take_turns(
    mlp: Workload, tmp_path: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPU of a machine waits for its GPU, and reports it."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, '[server]\nlaunch = "local"')
    core = min(os.sched_getaffinity(0))
    with (
        Interrupt() as interrupt,
        acquire_cores(state_dir / LAYOUT.cores, [core], "20300101-000000-abcd on gpu", interrupt.descriptor, print),
    ):
        run = Sweep(mlp, ["onnxruntime"], [1], repeats=10, devices=["server"]).start()
        wait_until(lambda: "server shares cores with run 20300101-000000-abcd on gpu" in run.progress.text)
        meanwhile = run.progress.done
    data = run.result()

    assert 0 == meanwhile
    assert {"ok"} == set(data["status"].values.ravel())


def test_an_engine_reports_its_vitals() -> None:
    """An engine reports its load, its memory and the end of its output."""
    engine = engines.acquire()
    engine.hello()
    vitals = engine.vitals()

    assert vitals.load is not None
    assert (vitals.memory_available_bytes or 0) > 1e6
    assert "Completed registration" in vitals.log


def test_running_engines_are_found_and_stopped_by_label(processes: Processes) -> None:
    """A second stop does nothing."""
    first = engines.acquire()

    assert {"cpu": first} == engines.find_running()

    engines.stop("cpu")
    engines.stop("cpu")

    assert {} == engines.find_running()
    assert [] == processes("ngbkit.device.engine")


@pytest.mark.guard
def test_an_engine_that_was_killed_is_replaced_in_a_removed_folder(
    mlp: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: Processes
) -> None:
    """A killed engine is replaced, even if its folders were removed."""
    folder = tmp_path / "notebook"
    folder.mkdir()
    monkeypatch.chdir(folder)
    engine = engines.acquire("cpu")
    shutil.rmtree(options.get_state_dir() / LAYOUT.engines)
    folder.rmdir()
    (process,) = processes("ngbkit.device.engine")
    process.kill()
    wait_until(lambda: not engine.is_alive())
    data = Sweep(mlp, ["onnxruntime"], repeats=5).run()

    assert {"ok"} == set(data["status"].values.ravel())
