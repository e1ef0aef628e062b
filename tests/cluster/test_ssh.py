"""A device that ssh reaches, with a Python of its own: measured there, whatever happens on the way, and left clean."""

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
from hosts import Host, Link, network_namespace, sshd
from patience import wait_until
from pythons import far_environment
from watching import Processes

from ngbkit import runs
from ngbkit.cluster import engines
from ngbkit.cluster.devices import Device
from ngbkit.cluster.launchers import ssh
from ngbkit.errors import DeviceError
from ngbkit.runs import Run
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.journal import Journal
from ngbkit.workloads.base import Workload

# What a device keeps: what it measured, and what makes the next run there faster.
KEPT = ("artifacts/", "cache/", "devices/", "peaks.json")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python of another version than this one's, with ngbkit."""
    return far_environment(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A machine on loopback."""
    with sshd(tmp_path_factory.mktemp("far")) as found:
        yield found


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: Path) -> Callable[..., None]:
    """Writes the devices file of the current folder: one device ``far``, with these keys."""

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
    """Once the engines are closed no process is left, here or there."""
    yield
    engines.close()
    wait_until(lambda: not processes() and not host.processes())


def sweep(mlp: Workload, batches: int = 4, repeats: int = 10, **more: Any) -> Sweep:
    return Sweep(mlp, ["onnxruntime"], range(1, batches + 1), repeats=repeats, threads=1, devices=["far"], **more)


def started(run: Run) -> dict[str, float]:
    """When each trial that has a record began."""
    with Journal(run.folder / "journal.sqlite", writable=False) as journal:
        return {record.trial_id: record.started_at for record in journal.records()}


def statuses(run: Run) -> set[str]:
    return set(run.dataset()["status"].values.ravel())


def listening(processes: list[psutil.Process]) -> set[str]:
    """Every address that one of them listens on."""
    found = set()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found |= {one.laddr.ip for one in process.net_connections() if one.status == psutil.CONN_LISTEN}
    return found


def test_a_device_of_another_python_beside_this_one(
    mlp: Workload, devices: Any, host: Host, processes: Processes, python: Path
) -> None:
    """Both at once, in one dataset; the key is in no command line, nothing listens beyond loopback, nothing is left."""
    both = Sweep(mlp, ["onnxruntime"], [1, 2], repeats=10, threads=1, devices=["cpu", "far"])
    run = both.start()
    data = run.result()
    environments = json.loads(data.attrs["environments"])
    here, there = processes(), host.processes()
    keys = [engine.view.client.session.key.decode() for engine in engines.running().values()]

    assert {"ok"} == set(data["status"].values.ravel())
    assert ["cpu", "far"] == data["device"].values.tolist()
    assert environments["cpu"]["python"] != environments["far"]["python"]
    assert str(host.home) in " ".join(there[0].environ().values())
    assert 2 == len(set(keys))
    told = json.dumps([[one.cmdline(), one.environ()] for one in [*here, *there]])
    assert not [key for key in keys if key in told]
    assert {"127.0.0.1"} >= listening([*here, *there, psutil.Process()])

    engines.close()

    wait_until(lambda: not host.processes())
    state = ".local/state/ngbkit/"
    assert [] == [file for file in host.files() if not file.startswith(tuple(state + name for name in KEPT))]


def test_one_that_has_no_ngbkit_says_how_it_gets_it(devices: Any, mlp: Workload) -> None:
    """The environment that deploy makes is not there."""
    device = Device(label="far", launch="ssh", host="far")
    with pytest.raises(DeviceError, match=r"`ngbkit deploy far`"):
        ssh.start(device)
    with pytest.raises(DeviceError, match=r"No module named .?ngbkit.*\n?.*`ngbkit deploy far`"):
        ssh.start(Device(label="far", launch="ssh", host="far", python="/usr/bin/python3"))


def test_one_that_does_not_come_up_shows_its_log(host: Host, python: Path) -> None:
    """What the engine said over there is in the error here."""
    broken = host.folder / "broken" / "ipyparallel"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise SystemExit('the wrong ipyparallel')")
    device = Device(label="far", launch="ssh", host="far", python=str(python), env={"PYTHONPATH": str(broken.parent)})

    with pytest.raises(DeviceError, match=r"device far did not come up: .*its log says:\nthe wrong ipyparallel"):
        ssh.start(device)


def test_a_host_that_is_not_there_is_named(python: Path, host: Host) -> None:
    """With what to look at."""
    with pytest.raises(DeviceError, match=r"device nowhere did not come up: .*give it a Host entry"):
        ssh.start(Device(label="nowhere", launch="ssh", host="nowhere.invalid", python=str(python)))


def test_a_tunnel_that_breaks_is_built_again(mlp: Workload, devices: Any, host: Host, processes: Processes) -> None:
    """The same engine goes on, whether ssh here or its session there has ended."""
    run = sweep(mlp, batches=5, repeats=300).start()
    wait_until(lambda: run.progress.done >= 1)
    (engine,) = host.processes("ngbkit.device.engine")
    for kill in (lambda: [one.kill() for one in processes("-N", "ExitOnForwardFailure")], host.kill_sessions):
        kill()
        wait_until(lambda: processes("-N", "ExitOnForwardFailure"))
        time.sleep(1)
    run.result()

    assert {"ok"} == statuses(run)
    assert engine.is_running()


def test_a_killed_client_leaves_an_engine_that_the_next_start_removes(
    mlp_file: Path, devices: Any, host: Host, state_dir: Path, processes: Processes
) -> None:
    """The run resumes, and what was finished is not run again."""
    program = f"""
from ngbkit import Sweep
Sweep({str(mlp_file)!r}, "onnxruntime", range(1, 7), repeats=200, threads=1, devices="far").run()
"""
    with subprocess.Popen([sys.executable, "-c", program]) as client:
        wait_until(lambda: list(runs.summaries()) and next(iter(runs.summaries())).statuses.get("ok", 0) >= 2)
        client.send_signal(signal.SIGKILL)
    (old,) = host.processes("ngbkit.device.engine")
    (summary,) = runs.summaries()
    wait_until(lambda: not processes())
    resumed = runs.resume(summary.id)
    before = started(resumed)
    resumed.result()
    after = started(resumed)

    assert {"ok"} == statuses(resumed)
    assert len(before) >= 2
    assert before.items() <= after.items()
    assert not old.is_running()
    engines.close()
    left = [
        path.name for part in ("engines", "scratch") for path in (host.home / f".local/state/ngbkit/{part}").iterdir()
    ]
    assert [] == left


@pytest.fixture(scope="module")
def link() -> Iterator[Link]:
    """A network with an address of its own."""
    with network_namespace() as found:
        yield found


@pytest.fixture
def far(link: Link, tmp_path: Path, host: Host) -> Iterator[Host]:
    """A machine on that network."""
    with sshd(tmp_path / "there", alias="there", namespace=link) as found:
        yield found
        engines.close()


def test_a_link_that_is_down_for_a_while_costs_nothing(mlp: Workload, devices: Any, far: Host, link: Link) -> None:
    """Twenty seconds of silence: the device goes on, and all that it measured arrives."""
    devices(host="there")
    run = sweep(mlp, batches=10, repeats=400).start()
    wait_until(lambda: run.progress.done >= 1)
    (engine,) = far.processes("ngbkit.device.engine")
    link.down()
    time.sleep(20)
    link.up()
    run.result()

    assert {"ok"} == statuses(run)
    assert engine.is_running()


def test_a_direct_link_is_encrypted(mlp: Workload, devices: Any, far: Host, link: Link, processes: Processes) -> None:
    """The controller listens on the one address that was asked for, and to those who have its key."""
    devices(host="there", network="direct", address=link.here)
    run = sweep(mlp, batches=1).start()
    run.result()
    (engine,) = [engine for _, engine in engines._engines.values()]

    assert {"ok"} == statuses(run)
    assert engine.view.client.curve_serverkey
    # Its parts talk to each other on loopback.
    assert {link.here, "127.0.0.1"} == listening(processes("ngbkit.cluster.controller"))
    engines.close()
    wait_until(lambda: not far.processes())


def test_stop_reaches_a_far_device(mlp: Workload, devices: Any, host: Host) -> None:
    """Within a second or so, what was measured is kept."""
    run = sweep(mlp, batches=8, repeats=400).start()
    wait_until(lambda: run.progress.done >= 1)
    run.stop()

    assert run.wait()
    assert "stopped" == run.state
    assert os.getpid() not in [one.pid for one in host.processes()]
