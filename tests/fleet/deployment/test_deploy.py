"""Deploys to a device of this machine with its own folder, with and without a network."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import wait_until

import ngbkit
from ngbkit import cli, options
from ngbkit.cluster.devices import Device
from ngbkit.errors import DeviceError, UnknownNameError, UsageError
from ngbkit.fleet.deployment import DEVICE_EXTRAS, remote, wheel, wheelhouse
from ngbkit.fleet.deployment import deploy as deploying
from ngbkit.fleet.deployment.deploy import Deployment, deploy
from ngbkit.fleet.deployment.onsite import folder, install
from ngbkit.fleet.deployment.onsite.folder import LOCK, MARK, Refused
from ngbkit.fleet.deployment.onsite.install import READY
from ngbkit.fleet.deployment.remote import request

# No index and no folder of this machine: the device gets only the wheels that are sent to it.
OFFLINE = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels for a device like this machine, downloaded once."""
    home = tmp_path_factory.mktemp("client")
    local = Device(label="local", launch="local", state_dir=str(home / "device"), python=sys.executable)
    with options.set_options(state_dir=home):
        machine = request(local, "look", fields={"named": True, "system": False})
        return wheelhouse.download(machine, wheel.build(home / "wheel"), (), lambda line: None)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    """A device without a network, with a folder that the tests share; each leaves it unchanged."""
    state_dir = tmp_path_factory.mktemp("far") / "state"
    return Device(label="far", launch="local", state_dir=str(state_dir), python=sys.executable, env=OFFLINE)


@pytest.fixture(scope="module")
def deployed(device: Device, wheels: Path) -> Deployment:
    return deploy(device, extras=(), wheels=wheels)


@pytest.fixture
def fresh(device: Device, tmp_path: Path) -> Device:
    """A device without any deploy."""
    return replace(device, label="fresh", state_dir=str(tmp_path / "fresh"))


@pytest.fixture
def home(device: Device, deployed: Deployment) -> Path:
    """The state folder of the shared device after a deploy."""
    return Path(deployed.state_dir)


def list_names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_a_deploy_needs_no_network(deployed: Deployment, home: Path) -> None:
    """A deploy without a network creates an environment that only its owner can read, and nothing else."""
    compilers = {compiler["compiler"]: compiler["missing"] for compiler in deployed.compilers}

    assert [MARK, "env"] == list_names(home)
    assert (0o700, 0o700) == tuple(stat.S_IMODE(path.stat().st_mode) for path in (home, home / "env"))
    assert (ngbkit.__version__, str(home / "env/bin/python")) == (deployed.version, deployed.python)
    assert ngbkit.__version__ == deployed.environment["packages"]["ngbkit"]
    assert {"numpy", "ipyparallel"} <= set(deployed.environment["packages"])
    assert compilers["openvino"].startswith("openvino not installed")


@pytest.mark.guard
def test_a_deploy_over_a_network(tmp_path: Path) -> None:
    """The device keeps no downloads; the result is rendered as text."""
    far = Device(label="far", launch="local", state_dir=str(tmp_path / "far"), python=sys.executable)
    progress: list[str] = []
    lines = deploy(far, extras=(), report=progress.append).to_text().splitlines()

    assert any(line.startswith("Successfully installed") for line in progress)
    assert [MARK, "env"] == list_names(tmp_path / "far")
    assert f"far: ngbkit {ngbkit.__version__} is ready in {tmp_path / 'far'}" == lines[0]
    assert {"chip", "cores", "memory", "Python", "libraries", "compilers"} <= {line.split()[0] for line in lines}
    assert any(line.startswith("  openvino ") and "not available: openvino not installed" in line for line in lines)


def test_the_running_ngbkit_is_deployed(device: Device, home: Path, wheels: Path, tmp_path: Path) -> None:
    """The wheel built on the device equals the wheel built here, byte for byte."""
    local = wheel.build(tmp_path / "here")
    deploy(device, extras=(), wheels=wheels)
    program = "from pathlib import Path; from ngbkit.fleet.deployment import wheel; wheel.build(Path('there'))"
    subprocess.run([home / "env/bin/python", "-I", "-c", program], check=True, cwd=tmp_path)

    assert local.read_bytes() == (tmp_path / "there" / local.name).read_bytes()


def test_deploying_again_updates_in_place(device: Device, home: Path, wheels: Path) -> None:
    """ngbkit is replaced even by the same version, no installed wheel is sent again, the rest stays."""
    (home / "env" / "kept").touch()
    (module,) = (home / "env").glob("lib/python*/site-packages/ngbkit/options.py")
    module.write_text("changed")
    progress: list[str] = []
    deploy(device, extras=(), wheels=wheels, report=progress.append)

    assert (home / "env" / "kept").exists()
    assert "changed" != module.read_text()
    assert progress[0].startswith("sending 1 wheel(s), ")
    assert [] == [line for line in progress if line.startswith("Requirement already satisfied")]


def test_another_python_needs_another_environment(device: Device, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new environment replaces a broken one, or one of another Python."""
    env = home / "env"
    default, python, system = (
        {"named": is_named, "system": has_system}
        for is_named, has_system in ((False, False), (True, False), (False, True))
    )
    same = [install._is_reusable(env, request) for request in (default, python, system)]
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    newer = [install._is_reusable(env, request) for request in (default, python, system)]
    (env / "bin/python").rename(env / "bin/gone")
    broken = install._is_reusable(env, default)
    (env / "bin/gone").rename(env / "bin/python")

    assert ([True, True, False], [True, False, False], False) == (same, newer, broken)


def test_a_killed_deploy_leaves_no_process(fresh: Device, wheels: Path, tmp_path: Path) -> None:
    """The device notices the end of its client and cleans up; the next deploy starts from scratch."""
    home = tmp_path / "fresh"
    program = (
        "import json, sys; from pathlib import Path; from ngbkit.cluster.devices import Device;"
        "from ngbkit.fleet.deployment.deploy import deploy;"
        "deploy(Device(**json.loads(sys.argv[1])), extras=(), wheels=Path(sys.argv[2]))"
    )
    fields = {"label": "fresh", "launch": "local", "state_dir": str(home), "python": sys.executable, "env": OFFLINE}
    client = subprocess.Popen([sys.executable, "-c", program, json.dumps(fields), str(wheels)], start_new_session=True)
    wait_until((home / "env" / "bin" / "python").exists)
    os.killpg(client.pid, signal.SIGKILL)
    client.wait()
    wait_until(lambda: not (home / LOCK).exists())
    remains = list_names(home)
    (home / "env" / "half").touch()
    deploy(fresh, extras=(), wheels=wheels)

    assert {MARK, "env"} == {*remains} - {"downloads"}
    assert (False, True) == ((home / "env" / "half").exists(), (home / "env" / READY).exists())


def test_an_interrupted_deploy_ends_on_the_device(fresh: Device, wheels: Path, tmp_path: Path) -> None:
    """Ctrl-C at the client ends the device's program before the client itself."""

    def interrupt(line: str) -> None:
        if line.startswith("Processing"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deploy(fresh, extras=(), wheels=wheels, report=interrupt)

    assert {MARK, "env"} == {*list_names(tmp_path / "fresh")} - {"downloads"}
    assert not (tmp_path / "fresh" / "env" / READY).exists()


def test_a_second_deploy_is_refused(device: Device, home: Path, wheels: Path) -> None:
    """The error names the process of the first; the lock of an ended process is replaced."""
    is_locked, release = threading.Event(), threading.Event()

    def lock() -> None:
        with folder.lock(home):
            is_locked.set()
            release.wait()

    holder = threading.Thread(target=lock)
    holder.start()
    is_locked.wait()
    with pytest.raises(DeviceError, match=rf"another deploy or removal runs there \(process {os.getpid()} on "):
        deploy(device, extras=(), wheels=wheels)
    release.set()
    holder.join()
    (home / LOCK).mkdir()
    (home / LOCK / "holder.json").write_text(
        json.dumps({"host": os.uname().nodename, "pid": os.getpid(), "started": 1})
    )
    deploy(device, extras=(), wheels=wheels)

    assert [MARK, "env"] == list_names(home)


def test_a_lock_without_a_holder_is_respected_for_a_minute(tmp_path: Path) -> None:
    """A lock without a holder is respected for a minute and then replaced."""
    (tmp_path / LOCK).mkdir()
    with pytest.raises(Refused, match="runs there"), folder.lock(tmp_path):
        pass
    os.utime(tmp_path / LOCK, (0, 0))
    with folder.lock(tmp_path):
        entries = list_names(tmp_path)

    assert ([LOCK], []) == (entries, list_names(tmp_path))


def test_a_failure_reports_the_output_of_pip(fresh: Device, wheels: Path, tmp_path: Path) -> None:
    """A failed deployment reports the output of pip and removes the wheels."""
    (tmp_path / "few").mkdir()
    (psutil_wheel,) = wheels.glob("psutil-*.whl")
    (tmp_path / "few" / psutil_wheel.name).write_bytes(psutil_wheel.read_bytes())
    with pytest.raises(DeviceError, match=r"(?s)device fresh: pip ended with 1:\n.*No matching distribution found for"):
        deploy(fresh, extras=(), wheels=tmp_path / "few")

    assert {MARK, "env"} == {*list_names(tmp_path / "fresh")} - {"downloads"}
    assert not (tmp_path / "fresh" / "env" / READY).exists()


def test_an_environment_in_use_is_not_changed(device: Device, home: Path, wheels: Path) -> None:
    """An engine would measure with a mix of old and new modules."""
    python = home / "env/bin/python"
    with subprocess.Popen([python, "-c", "import time; print(1, flush=True); time.sleep(600)"]) as engine:
        metadata = {"label": "far", "pid": engine.pid, "started": psutil.Process(engine.pid).create_time()}
        (home / "engines" / "one").mkdir(parents=True)
        (home / "engines" / "one" / "about.json").write_text(json.dumps(metadata))
        try:
            with pytest.raises(DeviceError, match=r"an engine runs in that environment \(far\): end it"):
                deploy(device, extras=(), wheels=wheels)
        finally:
            engine.kill()
    folder.remove(home / "engines")

    assert (home / "env" / READY).exists()


@pytest.mark.parametrize("name", ["thesis.tex", "env"])
def test_a_foreign_folder_is_left_alone(name: str, fresh: Device, tmp_path: Path) -> None:
    """Nothing is written beside foreign files."""
    (tmp_path / "fresh" / name).mkdir(parents=True)
    with pytest.raises(DeviceError, match=rf"has files that are not ngbkit's \({name}\): name a folder of its own"):
        deploy(fresh, extras=())

    assert [name] == list_names(tmp_path / "fresh")


def test_other_output_of_a_shell_is_ignored(fresh: Device) -> None:
    """The deployment ignores greetings of a start-up file or of `setup`."""
    greeting = replace(fresh, setup="echo welcome; echo 'no mail' >&2")
    progress: list[str] = []
    machine = request(greeting, "look", fields={"named": True, "system": False}, report=progress.append)

    assert ["no mail"] == progress
    assert ".".join(map(str, sys.version_info[:2])) == machine["markers"]["python_version"]


def test_an_old_python_is_refused(fresh: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has its version, and the two ways to name another."""
    monkeypatch.setattr(remote, "_START", remote._START.replace("(3, 10)", "(99, 0)"))
    with pytest.raises(DeviceError, match=r"device fresh: \S+ there is Python 3\.\d+.*needs 3.10.*--python"):
        deploy(fresh, extras=())


def test_a_missing_python_is_reported(fresh: Device) -> None:
    """The error of a missing Python has the message of the device's shell."""
    with pytest.raises(DeviceError, match=r"(?s)no python3.99 on this machine .*not found.*by --python"):
        deploy(fresh, extras=(), python="python3.99")


def test_a_python_without_pip_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Debian packages `venv` separately; the error names the package."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else object())
    with pytest.raises(
        Refused, match=r"because it has no ensurepip: install its venv package .*apt install python3\.\d"
    ):
        install._create(tmp_path / "env", {"named": False, "system": False})


def test_modules_that_shadow_the_installation_are_reported(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Deployment refuses modules that shadow the installed ngbkit."""
    monkeypatch.setenv("PYTHONPATH", str(Path(ngbkit.__file__).parents[1]))
    (home / "wheels").mkdir()
    with pytest.raises(Refused, match=r"imports \S+/ngbkit/__init__.py, not the installed ngbkit: PYTHONPATH is set"):
        install._check(home / "env", home)
    (home / "wheels").rmdir()


def test_an_extra_without_a_compiler_is_refused(device: Device) -> None:
    """The error lists those with one; the client's extras are not for a device."""
    for extra in ("tourch", "notebook"):
        with pytest.raises(UnknownNameError) as refused:
            deploy(device, extras=[extra])

        assert sorted(DEVICE_EXTRAS) == refused.value.choices


def test_a_column_without_a_release_has_no_wheels(device: Device) -> None:
    """A column without a release is refused before anything is sent."""
    with pytest.raises(UsageError, match=r"invalid release: got onnxruntime; expected .* onnxruntime@1\.23\.2"):
        deploy(device, releases=["onnxruntime"], wheels=True)


def test_the_wheels_of_releases_are_kept_on_the_device(tmp_path: Path) -> None:
    """They stay for later environments, and ngbkit's own installation has them too."""
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "numpy-2.0-py3-none-any.whl").write_text("new")
    for _ in range(2):
        install._keep_releases(tmp_path / "wheels", tmp_path / "releases", ["numpy-2.0-py3-none-any.whl"])

    assert ["releases", "wheels"] == list_names(tmp_path)
    assert "new" == (tmp_path / "releases" / "numpy-2.0-py3-none-any.whl").read_text()
    assert ["numpy-2.0-py3-none-any.whl"] == list_names(tmp_path / "wheels")


def test_a_cluster_of_the_users_own_is_refused() -> None:
    """The user maintains its Python."""
    with pytest.raises(UsageError, match=r"launch = 'attach'.*pip install ngbkit"):
        deploy(Device(label="own", launch="attach", cluster="mine"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "Runs use python = '/opt/python' of the devices file."),
        ({"python": None}, "Runs on this machine use the client's own Python. To use this one: python = '/far/env/"),
        ({"python": None, "launch": "ssh", "host": "x"}, ""),
        ({"python": "/far/env/bin/python"}, ""),
        ({"python": "~/.local/state/ngbkit/env/bin/python3", "state_dir": None}, ""),
        ({"python": "/else/env/bin/python"}, "Runs use python = '/else/env/bin/python'"),
    ],
)
def test_the_remark_names_the_python_of_runs(change: dict[str, Any], expected: str) -> None:
    """The remark names the Python of runs, unless it is the deployed one."""
    far = Device(**{"label": "far", "launch": "local", "state_dir": "/far", "python": "/opt/python", **change})
    remark = deploying._build_remark(far, "/far/env/bin/python")

    assert (expected, bool(expected)) == (remark[: len(expected)], bool(remark))


def test_the_shell_deploys_by_label(
    home: Path, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shell deploys to a device by its label, and prints text or JSON."""
    variables = ", ".join(f'{name} = "{value}"' for name, value in OFFLINE.items())
    lines = [
        "[far]",
        'launch = "local"',
        f'state_dir = "{home}"',
        f'python = "{sys.executable}"',
        f"env = {{{variables}}}",
    ]
    (tmp_path / "devices.toml").write_text("\n".join(lines) + "\n")
    (tmp_path / "devices.toml").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    (options.get_state_dir() / MARK).touch()
    words = ["--extras", "", "--wheelhouse", str(wheels)]
    codes = [cli.main(["deploy", "far", *words, "--json"])]
    deployment = json.loads(capsys.readouterr().out)
    codes += [cli.main(line) for line in (["deploy", "far", *words], ["deploy", "fra"], ["deploy", "cpu", "--remove"])]
    codes.append(cli.main(["deploy", "far", "--remove", "--wheelhouse"]))
    printed = capsys.readouterr()

    assert [cli.OK, cli.OK, cli.INVALID, cli.OK, cli.INVALID] == codes
    assert ("far", ngbkit.__version__, str(home)) == (
        deployment["device"],
        deployment["version"],
        deployment["state_dir"],
    )
    assert printed.out.startswith(f"far: ngbkit {ngbkit.__version__} is ready in {home}\n")
    assert "To install more of them: ngbkit deploy far --extras NAMES\n" in printed.out
    assert "cpu: found nothing of ngbkit's" in printed.out
    assert "unknown device 'fra'. Did you mean far?" in printed.err
    assert "expected --remove alone" in printed.err


def test_an_environment_may_include_the_packages_of_its_system(tmp_path: Path) -> None:
    """An environment includes the packages of its system on request, as a Jetson needs."""
    for system in (False, True):
        install._create(tmp_path / "env", {"named": False, "system": system})
        (tmp_path / "env" / READY).touch()

        assert system == install._sees_system(tmp_path / "env")
