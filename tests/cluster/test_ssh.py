"""A device behind ssh with another Python: measurements survive faults of the link, and nothing remains."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from hosts import Host, Link, create_network, start_host
from patience import wait_until
from pythons import create_other_environment
from watching import Processes

from ngbkit import runs
from ngbkit.api import Sweep
from ngbkit.cluster import engines
from ngbkit.cluster.devices import Device
from ngbkit.cluster.launchers import ssh
from ngbkit.errors import DeviceError
from ngbkit.runs import Run
from ngbkit.sweep.journal import Journal
from ngbkit.workloads.base import Workload

# The entries that remain on a device: records, locks, and caches for the next run.
KEPT = (".ngbkit", "artifacts/", "cache/", "cores/", "devices/", "hosts.json", "peaks.json")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python of another version, with ngbkit."""
    return create_other_environment(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A machine on loopback."""
    with start_host(tmp_path_factory.mktemp("far")) as machine:
        yield machine


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: Path) -> Callable[..., None]:
    """Writes the devices file of the current folder: a device ``far`` with these keys."""

    def write(**keys: Any) -> None:
        table = {"launch": "ssh", "host": "far", "python": str(python), **keys}
        file = tmp_path / "devices.toml"
        file.write_text("[far]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in table.items()))
        file.chmod(0o600)
        monkeypatch.chdir(tmp_path)

    write()
    return write


@pytest.fixture(autouse=True)
def _nothing_left(processes: Processes, host: Host) -> Iterator[None]:
    """After the engines are closed no process remains, on either machine."""
    yield
    engines.close()
    wait_until(lambda: not processes() and not host.find_processes())


def build_sweep(mlp: Workload, batches: int = 4, repeats: int = 10, **more: Any) -> Sweep:
    return Sweep(mlp, ["onnxruntime"], range(1, batches + 1), repeats=repeats, threads=1, devices=["far"], **more)


def read_starts(run: Run) -> dict[str, float]:
    """Read the start of each recorded trial."""
    with Journal(run.folder / "journal.sqlite", writable=False) as journal:
        return {record.trial_id: record.started_at for record in journal.records()}


def read_statuses(run: Run) -> set[str]:
    return set(run.dataset()["status"].values.ravel())


def list_addresses(processes: list[psutil.Process]) -> set[str]:
    """List the addresses that these processes listen on."""
    addresses = set()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            connections = process.net_connections()
            addresses |= {socket.laddr.ip for socket in connections if socket.status == psutil.CONN_LISTEN}
    return addresses


@pytest.mark.guard
def test_a_remote_device_beside_this_machine(
    mlp: Workload, devices: Any, host: Host, processes: Processes, python: Path
) -> None:
    """A remote device and this machine give one dataset, and nothing remains or listens publicly."""
    both = Sweep(mlp, ["onnxruntime"], [1, 2], repeats=10, threads=1, devices=["cpu", "far"])
    run = both.start()
    data = run.result()
    environments = json.loads(data.attrs["environments"])
    local, remote = processes(), host.find_processes()
    keys = [engine.view.client.session.key.decode() for engine in engines.find_running().values()]

    assert {"ok"} == set(data["status"].values.ravel())
    assert ["cpu", "far"] == data["device"].values.tolist()
    assert environments["cpu"]["python"] != environments["far"]["python"]
    assert str(host.home) in " ".join(remote[0].environ().values())
    assert 2 == len(set(keys))
    text = json.dumps([[process.cmdline(), process.environ()] for process in [*local, *remote]])
    assert not [key for key in keys if key in text]
    assert {"127.0.0.1"} >= list_addresses([*local, *remote, psutil.Process()])

    engines.close()

    wait_until(lambda: not host.find_processes())
    state = ".local/state/ngbkit/"
    assert [] == [file for file in host.list_files() if not file.startswith(tuple(state + name for name in KEPT))]


def test_a_device_without_ngbkit_is_reported(devices: Any, mlp: Workload) -> None:
    """The error suggests a deploy."""
    device = Device(label="far", launch="ssh", host="far")
    with pytest.raises(DeviceError, match=r"`ngbkit deploy far`"):
        ssh.start(device)
    with pytest.raises(DeviceError, match=r"No module named .?ngbkit.*\n?.*`ngbkit deploy far`"):
        ssh.start(Device(label="far", launch="ssh", host="far", python="/usr/bin/python3"))


def test_a_failed_engine_shows_its_log(host: Host, python: Path) -> None:
    """The error at the client has the engine's output."""
    broken = host.folder / "broken" / "ipyparallel"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise SystemExit('the wrong ipyparallel')")
    device = Device(label="far", launch="ssh", host="far", python=str(python), env={"PYTHONPATH": str(broken.parent)})

    with pytest.raises(DeviceError, match=r"device far did not start: .*its log says:\nthe wrong ipyparallel"):
        ssh.start(device)


def test_an_unknown_host_is_named(python: Path, host: Host) -> None:
    """The error has a remedy."""
    with pytest.raises(DeviceError, match=r"device nowhere did not start: .*give it a Host entry"):
        ssh.start(Device(label="nowhere", launch="ssh", host="nowhere.invalid", python=str(python)))


def test_a_broken_tunnel_is_rebuilt(mlp: Workload, devices: Any, host: Host, processes: Processes) -> None:
    """The same engine continues after the end of ssh or of its session on the device."""
    run = build_sweep(mlp, batches=6, repeats=60).start()
    wait_until(lambda: run.progress.done >= 1)
    (engine,) = host.find_processes("ngbkit.device.engine")
    for kill in (lambda: [process.kill() for process in processes("-N", "ExitOnForwardFailure")], host.kill_sessions):
        kill()
        wait_until(lambda: processes("-N", "ExitOnForwardFailure"))
        time.sleep(1)
    run.result()

    assert {"ok"} == read_statuses(run)
    assert engine.is_running()


def test_the_next_start_removes_the_engine_of_a_killed_client(
    mlp_file: Path, devices: Any, host: Host, state_dir: Path, processes: Processes
) -> None:
    """The run resumes without its recorded trials."""
    program = f"""
from ngbkit import Sweep
Sweep({str(mlp_file)!r}, "onnxruntime", range(1, 6), repeats=60, threads=1, devices="far").run()
"""
    with subprocess.Popen([sys.executable, "-c", program]) as client:
        wait_until(lambda: list(runs.summaries()) and next(iter(runs.summaries())).statuses.get("ok", 0) >= 2)
        client.send_signal(signal.SIGKILL)
    (old,) = host.find_processes("ngbkit.device.engine")
    (summary,) = runs.summaries()
    wait_until(lambda: not processes())
    resumed = runs.resume(summary.id)
    earlier = read_starts(resumed)
    resumed.result()
    later = read_starts(resumed)

    assert {"ok"} == read_statuses(resumed)
    assert len(earlier) >= 2
    assert earlier.items() <= later.items()
    assert not old.is_running()
    engines.close()
    folders = [host.home / f".local/state/ngbkit/{part}" for part in ("engines", "scratch")]
    # On a busy machine the engine may need longer to end than the goodbye waits for it.
    wait_until(lambda: not [path for folder in folders for path in folder.iterdir()])


@pytest.fixture(scope="module")
def link() -> Iterator[Link]:
    """A network with an address of its own."""
    with create_network() as network:
        yield network


@pytest.fixture
def far(link: Link, tmp_path: Path, host: Host) -> Iterator[Host]:
    """A machine on that network."""
    with start_host(tmp_path / "there", alias="there", namespace=link) as machine:
        yield machine
        engines.close()


def test_a_pause_of_the_link_costs_nothing(mlp: Workload, devices: Any, far: Host, link: Link) -> None:
    """The device measures through seconds of silence, a dozen heartbeats, and all records arrive."""
    devices(host="there")
    run = build_sweep(mlp, batches=4, repeats=100).start()
    wait_until(lambda: run.progress.done >= 1)
    (engine,) = far.find_processes("ngbkit.device.engine")
    link.down()
    time.sleep(3)
    link.up()
    run.result()

    assert {"ok"} == read_statuses(run)
    assert engine.is_running()


def test_a_direct_link_is_encrypted(mlp: Workload, devices: Any, far: Host, link: Link, processes: Processes) -> None:
    """The controller listens on the configured address, for clients with its key."""
    devices(host="there", network="direct", address=link.local)
    run = build_sweep(mlp, batches=1).start()
    run.result()
    (engine,) = [engine for _, engine in engines._engines.values()]

    assert {"ok"} == read_statuses(run)
    assert engine.view.client.curve_serverkey
    # Its processes use loopback.
    assert {link.local, "127.0.0.1"} == list_addresses(processes("ngbkit.cluster.controller"))
    engines.close()
    wait_until(lambda: not far.find_processes())


def test_stop_reaches_a_far_device(mlp: Workload, devices: Any, host: Host) -> None:
    """A stop ends the run on a remote device and keeps its records."""
    run = build_sweep(mlp, batches=4, repeats=100).start()
    wait_until(lambda: run.progress.done >= 1)
    run.stop()

    assert run.wait()
    assert "stopped" == run.state
    assert os.getpid() not in [process.pid for process in host.find_processes()]
