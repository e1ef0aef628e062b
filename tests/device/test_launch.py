"""An engine on a device: started with its settings, and always removed."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import limit_s, wait_until

from ngbkit.cluster.engine import Engine, create_identity
from ngbkit.cluster.hubs import Hub
from ngbkit.device import launch
from ngbkit.device.engine import MARK, Settings
from ngbkit.errors import DeviceError
from ngbkit.options import LAYOUT
from ngbkit.workloads.subprocesses import build_python_path


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A controller of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NGBKIT_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        started = Hub.start()
    yield started
    started.stop()


def build_settings(hub: Hub, state_dir: Path, **fields: Any) -> Settings:
    """The settings of an engine of the device ``far``."""
    environment = {"PYTHONPATH": build_python_path(), **fields.pop("environment", {})}
    fields = {"watch": os.getpid(), **fields}
    return Settings(
        label="far",
        identity=create_identity("far"),
        connection=hub.connection,
        state_dir=str(state_dir),
        environment=environment,
        **fields,
    )


def is_alive(pid: int) -> bool:
    """Whether that process runs."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_engine_has_the_settings_of_its_device(hub: Hub, tmp_path: Path) -> None:
    """Cores, environment and state folder are its own, and the key is not visible to others."""
    core = min(os.sched_getaffinity(0))
    settings = build_settings(hub, tmp_path, cores=(core,), environment={"COLOUR": "blue"})
    launched = launch.launch(settings)
    process = psutil.Process(launched.pid)
    engine = Engine(device="far", view=hub.wait_for_engine(settings.identity, limit_s()))
    key = hub.connection["key"]

    assert 1 == engine.hello()["cores_usable"]
    assert str(tmp_path) == str(engine.state_dir)
    assert [core] == process.cpu_affinity()
    assert ("blue", str(tmp_path)) == (process.environ()["COLOUR"], process.environ()["NGBKIT_STATE_DIR"])
    assert key not in json.dumps([process.environ(), process.cmdline()])
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and key in file.read_text(errors="replace")]
    files = [launched.folder / name for name in ("about.json", "engine.log")]
    for path in [tmp_path / "engines", launched.folder, *files]:
        assert 0 == path.stat().st_mode & 0o077, path

    launch.stop(launched.folder)

    assert not is_alive(launched.pid)
    assert [] == list((tmp_path / "engines").iterdir())


def test_an_engine_without_files_still_ends(hub: Hub, tmp_path: Path) -> None:
    """A deleted state folder, such as a temporary one, neither keeps its engine alive nor blocks."""
    launched = launch.launch(build_settings(hub, tmp_path))
    shutil.rmtree(tmp_path / "engines")

    launch.stop(launched.folder)

    assert not is_alive(launched.pid)


@pytest.mark.parametrize(
    ("log", "limit"), [("the wrong ipyparallel", ""), ("File too large", r"a file .*\(ulimit -f\).*\n")]
)
def test_an_engine_that_does_not_start_shows_its_log(log: str, limit: str, hub: Hub, tmp_path: Path) -> None:
    """The error of an engine that does not start has its log, also one that mentions a limit, and no files remain."""
    broken = tmp_path / "broken" / "ipyparallel"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise SystemExit('the wrong ipyparallel')")
    path = os.pathsep.join([str(broken.parent), build_python_path()])

    with pytest.raises(DeviceError, match="the engine ended with 1; its log says:\nthe wrong ipyparallel"):
        launch.launch(build_settings(hub, tmp_path, environment={"PYTHONPATH": path}))
    assert [] == list((tmp_path / "engines").iterdir())


def test_an_engine_ends_with_its_client(hub: Hub, tmp_path: Path) -> None:
    """An engine ends, and removes its files, when its client is killed."""
    client = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    launched = launch.launch(build_settings(hub, tmp_path, watch=client.pid))
    client.kill()
    client.wait()

    wait_until(lambda: not is_alive(launched.pid))
    wait_until(lambda: not launched.folder.exists())

    assert [] == list((tmp_path / "engines").iterdir())


def test_a_busy_engine_ends_on_sigterm(hub: Hub, tmp_path: Path) -> None:
    """A busy engine ends, and removes its files, on SIGTERM."""
    settings = build_settings(hub, tmp_path)
    launched = launch.launch(settings)
    view = hub.wait_for_engine(settings.identity, limit_s())
    scratch = tmp_path / LAYOUT.scratch
    (scratch / f"{launched.pid}-0-{platform.node()}").mkdir(parents=True)
    busy = tmp_path / "busy"
    view.execute(f"import time; open({str(busy)!r}, 'w').close(); time.sleep(600)", block=False)
    wait_until(busy.exists)

    os.kill(launched.pid, signal.SIGTERM)

    wait_until(lambda: not is_alive(launched.pid))
    assert [] == [*(tmp_path / "engines").iterdir(), *scratch.iterdir()]


def test_a_launch_removes_dead_engines_and_no_live_ones(hub: Hub, tmp_path: Path) -> None:
    """Killed engines leave files and daemons, killed clients leave engines; the next launch removes them."""
    home = tmp_path / "engines"
    living = launch.launch(build_settings(hub, tmp_path))
    killed = launch.launch(build_settings(hub, tmp_path))
    daemon = subprocess.Popen(
        ["sleep", "600"], start_new_session=True, env={**os.environ, MARK: psutil.Process(killed.pid).environ()[MARK]}
    )
    os.killpg(killed.pid, signal.SIGKILL)
    orphan = launch.launch(build_settings(hub, tmp_path))
    metadata = json.loads((orphan.folder / "about.json").read_text())
    address = {"host": "127.0.0.1", "port": 9, "token": "ab"}
    (orphan.folder / "about.json").write_text(json.dumps({**metadata, "watch": None, "lifeline": address}))
    wait_until(lambda: not is_alive(killed.pid))
    launch.remove_leftovers(home)

    assert [living.folder.name] == [folder.name for folder in home.iterdir()]
    assert (True, False) == (is_alive(living.pid), is_alive(orphan.pid))
    assert -signal.SIGKILL == daemon.wait()
    launch.stop(living.folder)


def test_a_process_with_the_pid_of_an_engine_survives(tmp_path: Path) -> None:
    """The system reuses pids; the file of an earlier engine does not end the present process."""
    folder = tmp_path / "engines" / "old"
    folder.mkdir(parents=True)
    metadata = {
        "host": platform.node(),
        "pid": os.getpid(),
        "started": 1.0,
        "watch": None,
        "lifeline": None,
        "label": "",
    }
    (folder / "about.json").write_text(json.dumps(metadata))
    launch.remove_leftovers(tmp_path / "engines")

    assert not folder.exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '"x"', "7", '{"pid": "x"}', '{"pid": 1, "started": null}', "[" * 10_000]
)
def test_a_damaged_description_of_an_engine_ends_no_launch(text: str, tmp_path: Path) -> None:
    """A launch survives a damaged description of an engine and removes it later."""
    folder = tmp_path / "engines" / "damaged"
    folder.mkdir(parents=True)
    (folder / "about.json").write_text(text)
    launch.remove_leftovers(folder.parent)
    assert folder.exists()
    assert not launch.is_running(folder)
    os.utime(folder, (0, 0))
    launch.remove_leftovers(folder.parent)

    assert not folder.exists()


def test_a_machine_that_lets_no_engine_start_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine and its controller would wait for each other for minutes."""
    monkeypatch.setattr(launch.resource, "getrlimit", lambda _: (40, 40))
    with pytest.raises(DeviceError, match="invalid limit of open files: got 40; expected at least 128"):
        launch.check_machine()
    monkeypatch.undo()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(launch.socket, "create_connection", refuse)
    with pytest.raises(DeviceError, match=r"no loopback network.*\(Network is unreachable\)"):
        Hub.start()
