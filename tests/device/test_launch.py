"""An engine on a device: started, told what it must know, and never left behind."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import limit_s, wait_until

from ngbkit.cluster.engine import Engine, identity
from ngbkit.cluster.hub import Hub, python_path
from ngbkit.device import launch
from ngbkit.device.engine import Settings
from ngbkit.device.keepalive import GOODBYE, Lifeline
from ngbkit.errors import DeviceError


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A controller of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NGBKIT_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        started = Hub.start()
    yield started
    started.stop()


def settings(hub: Hub, state_dir: Path, **more: Any) -> Settings:
    """What an engine of the device ``far`` is told."""
    environment = {"PYTHONPATH": python_path(), **more.pop("environment", {})}
    told = {"watch": os.getpid(), **more}
    return Settings(
        label="far",
        identity=identity("far"),
        connection=hub.connection,
        state_dir=str(state_dir),
        environment=environment,
        **told,
    )


def alive(pid: int) -> bool:
    """Whether that process runs."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_engine_has_what_its_device_asks_for(hub: Hub, tmp_path: Path) -> None:
    """Cores, environment and state folder are its own, and the key is in no place where others look."""
    core = min(os.sched_getaffinity(0))
    told = settings(hub, tmp_path, cores=(core,), environment={"COLOUR": "blue"})
    launched = launch.launch(told)
    process = psutil.Process(launched.pid)
    engine = Engine(device="far", view=hub.wait_for(told.identity, limit_s()))
    key = hub.connection["key"]

    assert 1 == engine.hello()["cores_usable"]
    assert str(tmp_path) == str(engine.state_dir)
    assert [core] == process.cpu_affinity()
    assert ("blue", str(tmp_path)) == (process.environ()["COLOUR"], process.environ()["NGBKIT_STATE_DIR"])
    assert key not in json.dumps([process.environ(), process.cmdline()])
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and key in file.read_text(errors="replace")]
    own = [launched.folder / name for name in ("about.json", "engine.log")]
    for path in [tmp_path / "engines", launched.folder, *own]:
        assert 0 == path.stat().st_mode & 0o077, path

    launch.stop(launched.folder)

    assert not alive(launched.pid)
    assert [] == list((tmp_path / "engines").iterdir())


def test_an_engine_whose_files_are_gone_ends_all_the_same(hub: Hub, tmp_path: Path) -> None:
    """A state folder that was deleted, as a temporary one is, keeps no engine, and holds nobody up."""
    launched = launch.launch(settings(hub, tmp_path))
    shutil.rmtree(tmp_path / "engines")

    launch.stop(launched.folder)

    assert not alive(launched.pid)


def test_an_engine_that_does_not_come_up_shows_its_log(hub: Hub, tmp_path: Path) -> None:
    """Nothing of it is left."""
    broken = tmp_path / "broken" / "ipyparallel"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise SystemExit('the wrong ipyparallel')")
    path = os.pathsep.join([str(broken.parent), python_path()])

    with pytest.raises(DeviceError, match="the engine ended with 1; its log says:\nthe wrong ipyparallel"):
        launch.launch(settings(hub, tmp_path, environment={"PYTHONPATH": path}))
    assert [] == list((tmp_path / "engines").iterdir())


def test_an_engine_ends_with_the_client_that_it_is_for(hub: Hub, tmp_path: Path) -> None:
    """And its files go too."""
    client = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    launched = launch.launch(settings(hub, tmp_path, watch=client.pid))
    client.kill()
    client.wait()

    wait_until(lambda: not alive(launched.pid))
    wait_until(lambda: not launched.folder.exists())

    assert [] == list((tmp_path / "engines").iterdir())


def test_what_others_left_is_removed_and_what_lives_is_not(hub: Hub, tmp_path: Path) -> None:
    """Killed engines leave files, killed clients leave engines; both go with the next launch."""
    home = tmp_path / "engines"
    living = launch.launch(settings(hub, tmp_path))
    killed = launch.launch(settings(hub, tmp_path))
    os.killpg(killed.pid, signal.SIGKILL)
    orphan = launch.launch(settings(hub, tmp_path))
    about = json.loads((orphan.folder / "about.json").read_text())
    line = {"host": "127.0.0.1", "port": 9, "token": "ab"}
    (orphan.folder / "about.json").write_text(json.dumps({**about, "watch": None, "lifeline": line}))
    wait_until(lambda: not alive(killed.pid))
    launch.clean(home)

    assert [living.folder.name] == [folder.name for folder in home.iterdir()]
    assert (True, False) == (alive(living.pid), alive(orphan.pid))
    launch.stop(living.folder)


def test_a_process_that_has_the_number_of_an_engine_is_left_alone(tmp_path: Path) -> None:
    """Numbers are given again; a file that tells of an earlier holder of one does not end the present one."""
    folder = tmp_path / "engines" / "old"
    folder.mkdir(parents=True)
    about = {"host": platform.node(), "pid": os.getpid(), "started": 1.0, "watch": None, "lifeline": None}
    (folder / "about.json").write_text(json.dumps(about))
    launch.clean(tmp_path / "engines")

    assert not folder.exists()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Where a client listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def lifeline(server: socket.socket) -> Lifeline:
    """The way to it."""
    return Lifeline(host="127.0.0.1", port=server.getsockname()[1], token="ab" * 16)


def test_a_goodbye_ends_at_once(server: socket.socket) -> None:
    """Whoever greets with the token is the client."""
    line = lifeline(server)
    ended: list[bool] = []
    line.follow(lambda: ended.append(True))
    connection, _ = server.accept()
    connection.sendall(line.token.encode() + b"\n\n\n")
    time.sleep(0.2)
    before = list(ended)
    connection.sendall(GOODBYE)
    wait_until(lambda: ended)
    connection.close()

    assert [] == before


def test_a_client_that_is_gone_ends_after_a_while(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tunnel that comes back in time does not."""
    monkeypatch.setattr("ngbkit.device.keepalive.GRACE_S", 2.0)
    monkeypatch.setattr("ngbkit.device.keepalive._AGAIN_S", 0.1)
    line = lifeline(server)
    ended: list[bool] = []
    line.follow(lambda: ended.append(True))
    for _ in range(2):
        connection, _ = server.accept()
        connection.sendall(line.token.encode() + b"\n")
        time.sleep(0.1)
        connection.close()
    still_there = not ended
    server.close()
    wait_until(lambda: ended)

    assert still_there


def test_a_stranger_on_the_port_is_not_the_client(server: socket.socket) -> None:
    """The port may belong to another by now."""

    def greet() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

    threading.Thread(target=greet, daemon=True).start()

    assert not lifeline(server).answers()
