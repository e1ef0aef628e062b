"""A device of this machine with a folder of its own: ngbkit comes to it, with and without a network, and goes again."""

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
from ngbkit.cluster.deployment import deploy as deploying
from ngbkit.cluster.deployment import remote, wheel, wheelhouse
from ngbkit.cluster.deployment.deploy import DEVICE_EXTRAS, Deployed, deploy
from ngbkit.cluster.deployment.onsite import folder, install
from ngbkit.cluster.deployment.onsite.folder import LOCK, MARK, Refused
from ngbkit.cluster.deployment.onsite.install import READY
from ngbkit.cluster.deployment.remote import carry
from ngbkit.cluster.devices import Device
from ngbkit.errors import DeviceError, UnknownNameError, UsageError

# No index and no folder of this machine: what a device gets is what is sent to it.
OFFLINE = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels that a device like this machine needs, fetched once."""
    home = tmp_path_factory.mktemp("client")
    here = Device(label="here", launch="local", state_dir=str(home / "device"), python=sys.executable)
    with options.set_options(state_dir=home):
        about = carry(here, "look", told={"named": True, "system": False})
        return wheelhouse.gather(about, wheel.build(home / "wheel"), (), lambda line: None)


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    """A device without a network, with a folder that the tests share, which each leaves as it found it."""
    state_dir = tmp_path_factory.mktemp("far") / "state"
    return Device(label="far", launch="local", state_dir=str(state_dir), python=sys.executable, env=OFFLINE)


@pytest.fixture(scope="module")
def deployed(device: Device, wheels: Path) -> Deployed:
    return deploy(device, extras=(), wheels=wheels)


@pytest.fixture
def fresh(device: Device, tmp_path: Path) -> Device:
    """Another one, that nothing was ever brought to."""
    return replace(device, label="fresh", state_dir=str(tmp_path / "fresh"))


@pytest.fixture
def home(device: Device, deployed: Deployed) -> Path:
    """The folder of a device that has been deployed to."""
    return Path(deployed.state_dir)


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_ngbkit_comes_to_a_device_without_a_network(deployed: Deployed, home: Path) -> None:
    """Into an environment that only its owner can read, with nothing left beside it."""
    compilers = {one["compiler"]: one["missing"] for one in deployed.compilers}

    assert [MARK, "env"] == names(home)
    assert (0o700, 0o700) == tuple(stat.S_IMODE(path.stat().st_mode) for path in (home, home / "env"))
    assert (ngbkit.__version__, str(home / "env/bin/python")) == (deployed.version, deployed.python)
    assert ngbkit.__version__ == deployed.environment["packages"]["ngbkit"]
    assert {"numpy", "ipyparallel"} <= set(deployed.environment["packages"])
    assert compilers["openvino"].startswith("openvino not installed")


def test_ngbkit_comes_to_a_device_with_a_network(tmp_path: Path) -> None:
    """What the device fetches lies nowhere else afterwards; what it can do is told for people."""
    far = Device(label="far", launch="local", state_dir=str(tmp_path / "far"), python=sys.executable)
    said: list[str] = []
    done = deploy(far, extras=(), say=said.append)
    lines = done.to_text().splitlines()

    assert any(line.startswith("Successfully installed") for line in said)
    assert [MARK, "env"] == names(tmp_path / "far")
    assert f"far: ngbkit {ngbkit.__version__} is ready in {tmp_path / 'far'}" == lines[0]
    assert {"chip", "cores", "memory", "Python", "libraries", "compilers"} <= {line.split()[0] for line in lines}
    assert any(line.startswith("  openvino ") and "not available: openvino not installed" in line for line in lines)


def test_what_is_deployed_is_what_runs_here(device: Device, home: Path, wheels: Path, tmp_path: Path) -> None:
    """A wheel that is made over there is the wheel that was sent, byte for byte."""
    here = wheel.build(tmp_path / "here")
    deploy(device, extras=(), wheels=wheels)
    program = "from pathlib import Path; from ngbkit.cluster.deployment import wheel; wheel.build(Path('there'))"
    subprocess.run([home / "env/bin/python", "-I", "-c", program], check=True, cwd=tmp_path)

    assert here.read_bytes() == (tmp_path / "there" / here.name).read_bytes()


def test_deploying_again_updates_in_place(device: Device, home: Path, wheels: Path) -> None:
    """ngbkit is replaced though its version is the same, what is there already does not travel, the rest stays."""
    (home / "env" / "kept").touch()
    (module,) = (home / "env").glob("lib/python*/site-packages/ngbkit/clock.py")
    module.write_text("changed")
    said: list[str] = []
    deploy(device, extras=(), wheels=wheels, say=said.append)

    assert (home / "env" / "kept").exists()
    assert "changed" != module.read_text()
    assert said[0].startswith("sending 1 wheel(s), ")
    assert [] == [line for line in said if line.startswith("Requirement already satisfied")]


def test_another_python_is_reason_for_another_environment(
    device: Device, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where one was named; and an environment that does not run any more is none."""
    env = home / "env"
    named, nobody, system = (
        {"named": one, "system": two} for one, two in ((True, False), (False, False), (False, True))
    )
    stays = [install._stays(env, asked) for asked in (nobody, named, system)]
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    differs = [install._stays(env, asked) for asked in (nobody, named, system)]
    (env / "bin/python").rename(env / "bin/gone")
    broken = install._stays(env, nobody)
    (env / "bin/gone").rename(env / "bin/python")

    assert ([True, True, False], [True, False, False], False) == (stays, differs, broken)


def test_a_deploy_that_was_killed_leaves_nothing_under_way(fresh: Device, wheels: Path, tmp_path: Path) -> None:
    """The device sees that its client is gone, ends what it does and cleans up; the next deploy begins anew."""
    home = tmp_path / "fresh"
    program = (
        "import json, sys; from pathlib import Path; from ngbkit.cluster.devices import Device;"
        "from ngbkit.cluster.deployment.deploy import deploy;"
        "deploy(Device(**json.loads(sys.argv[1])), extras=(), wheels=Path(sys.argv[2]))"
    )
    told = {"label": "fresh", "launch": "local", "state_dir": str(home), "python": sys.executable, "env": OFFLINE}
    client = subprocess.Popen([sys.executable, "-c", program, json.dumps(told), str(wheels)], start_new_session=True)
    wait_until((home / "env" / "bin" / "python").exists)
    os.killpg(client.pid, signal.SIGKILL)
    client.wait()
    wait_until(lambda: not (home / LOCK).exists())
    left = names(home)
    (home / "env" / "half").touch()
    deploy(fresh, extras=(), wheels=wheels)

    assert {MARK, "env"} == {*left} - {"downloads"}
    assert (False, True) == ((home / "env" / "half").exists(), (home / "env" / READY).exists())


def test_a_deploy_that_is_interrupted_is_ended_over_there(fresh: Device, wheels: Path, tmp_path: Path) -> None:
    """Ctrl-C at the client reaches the device before the client has it."""

    def interrupt(line: str) -> None:
        if line.startswith("Processing"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deploy(fresh, extras=(), wheels=wheels, say=interrupt)

    assert {MARK, "env"} == {*names(tmp_path / "fresh")} - {"downloads"}
    assert not (tmp_path / "fresh" / "env" / READY).exists()


def test_the_second_of_two_deploys_is_told_of_the_first(device: Device, home: Path, wheels: Path) -> None:
    """Whose process it is; one that has ended holds nothing."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with folder.locked(home):
            held.set()
            release.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    with pytest.raises(DeviceError, match=rf"another deploy or undeploy is at work there \(process {os.getpid()} on "):
        deploy(device, extras=(), wheels=wheels)
    release.set()
    holder.join()
    (home / LOCK).mkdir()
    (home / LOCK / "holder.json").write_text(
        json.dumps({"host": os.uname().nodename, "pid": os.getpid(), "started": 1})
    )
    deploy(device, extras=(), wheels=wheels)

    assert [MARK, "env"] == names(home)


def test_a_lock_that_says_nothing_of_its_holder_is_given_a_minute(tmp_path: Path) -> None:
    """It is being made, or whoever made it was killed between two lines."""
    (tmp_path / LOCK).mkdir()
    with pytest.raises(Refused, match="is at work there"), folder.locked(tmp_path):
        pass
    os.utime(tmp_path / LOCK, (0, 0))
    with folder.locked(tmp_path):
        held = names(tmp_path)

    assert ([LOCK], []) == (held, names(tmp_path))


def test_a_failure_tells_what_pip_said_last(fresh: Device, wheels: Path, tmp_path: Path) -> None:
    """And what came for it is removed."""
    (tmp_path / "few").mkdir()
    (one,) = wheels.glob("psutil-*.whl")
    (tmp_path / "few" / one.name).write_bytes(one.read_bytes())
    with pytest.raises(DeviceError, match=r"(?s)device fresh: pip ended with 1:\n.*No matching distribution found for"):
        deploy(fresh, extras=(), wheels=tmp_path / "few")

    assert {MARK, "env"} == {*names(tmp_path / "fresh")} - {"downloads"}
    assert not (tmp_path / "fresh" / "env" / READY).exists()


def test_an_environment_in_use_is_not_changed(device: Device, home: Path, wheels: Path) -> None:
    """An engine would measure with a part of each."""
    python = home / "env/bin/python"
    with subprocess.Popen([python, "-c", "import time; print(1, flush=True); time.sleep(600)"]) as engine:
        about = {"label": "far", "pid": engine.pid, "started": psutil.Process(engine.pid).create_time()}
        (home / "engines" / "one").mkdir(parents=True)
        (home / "engines" / "one" / "about.json").write_text(json.dumps(about))
        try:
            with pytest.raises(DeviceError, match=r"an engine runs in that environment \(far\): end it"):
                deploy(device, extras=(), wheels=wheels)
        finally:
            engine.kill()
    folder.remove(home / "engines")

    assert (home / "env" / READY).exists()


@pytest.mark.parametrize("name", ["thesis.tex", "env"])
def test_a_folder_of_somebody_else_is_left_alone(name: str, fresh: Device, tmp_path: Path) -> None:
    """Nothing is put beside what ngbkit has not put there."""
    (tmp_path / "fresh" / name).mkdir(parents=True)
    with pytest.raises(DeviceError, match=rf"holds what ngbkit has not put there \({name}\): name a folder of its own"):
        deploy(fresh, extras=())

    assert [name] == names(tmp_path / "fresh")


def test_what_a_shell_says_of_its_own_is_passed_over(fresh: Device) -> None:
    """A greeting of a start-up file, or of a line of `setup`."""
    greeting = replace(fresh, setup="echo welcome; echo 'no mail' >&2")
    said: list[str] = []
    about = carry(greeting, "look", told={"named": True, "system": False}, say=said.append)

    assert ["no mail"] == said
    assert ".".join(map(str, sys.version_info[:2])) == about["markers"]["python_version"]


def test_a_python_that_is_too_old_is_told_so(fresh: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its version, and the two ways to name another."""
    monkeypatch.setattr(remote, "_START", remote._START.replace("(3, 10)", "(99, 0)"))
    with pytest.raises(DeviceError, match=r"device fresh: \S+ there is Python 3\.\d+.*needs 3.10.*--python"):
        deploy(fresh, extras=())


def test_a_python_that_is_not_there_is_told_so(fresh: Device) -> None:
    """In the words of the shell over there."""
    with pytest.raises(DeviceError, match=r"(?s)there is no python3.99 on this machine .*not found.*by --python"):
        deploy(fresh, extras=(), python="python3.99")


def test_a_python_without_pip_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Debian ships what makes environments apart."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else object())
    with pytest.raises(Refused, match=r"since it has no ensurepip: install its venv package .*apt install python3\.\d"):
        install._make(tmp_path / "env", {"named": False, "system": False})


def test_modules_that_hide_what_was_installed_are_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A checkout that PYTHONPATH names would be measured with in its place."""
    monkeypatch.setenv("PYTHONPATH", str(Path(ngbkit.__file__).parents[1]))
    (home / "wheels").mkdir()
    with pytest.raises(Refused, match=r"is not what was installed but \S+/ngbkit/__init__.py: PYTHONPATH is set"):
        install._check(home / "env", home)
    (home / "wheels").rmdir()


def test_an_extra_that_brings_no_compiler_is_refused(device: Device) -> None:
    """With those that do; the client's are not for a device."""
    for extra in ("tourch", "notebook"):
        with pytest.raises(UnknownNameError) as refused:
            deploy(device, extras=[extra])

        assert sorted(DEVICE_EXTRAS) == refused.value.known


def test_a_cluster_of_the_users_own_is_refused() -> None:
    """Its Python is theirs."""
    with pytest.raises(UsageError, match=r"launch = 'attach'.*pip install ngbkit"):
        deploy(Device(label="own", launch="attach", cluster="mine"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "Runs use python = '/opt/python', as the devices file says."),
        ({"python": None}, "Runs on this machine use their client's own Python. To use this one: python = '/far/env/"),
        ({"python": None, "launch": "ssh", "host": "x"}, ""),
        ({"python": "/far/env/bin/python"}, ""),
        ({"python": "~/.local/state/ngbkit/env/bin/python3", "state_dir": None}, ""),
        ({"python": "/else/env/bin/python"}, "Runs use python = '/else/env/bin/python'"),
    ],
)
def test_the_remark_says_which_python_runs_use(change: dict[str, Any], told: str) -> None:
    """Where it is not yet the one that was deployed."""
    far = Device(**{"label": "far", "launch": "local", "state_dir": "/far", "python": "/opt/python", **change})
    remark = deploying._remark(far, "/far/env/bin/python")

    assert (told, bool(told)) == (remark[: len(told)], bool(remark))


def test_the_shell_deploys_by_label(
    home: Path, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the devices file calls it; JSON is for programs, and what is not valid is told in a paragraph."""
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
    words = ["--extras", "", "--wheelhouse", str(wheels)]
    codes = [cli.main(["deploy", "far", *words, "--json"])]
    done = json.loads(capsys.readouterr().out)
    codes += [cli.main(line) for line in (["deploy", "far", *words], ["deploy", "fra"], ["undeploy", "cpu"])]
    printed = capsys.readouterr()

    assert [cli.OK, cli.OK, cli.INVALID, cli.OK] == codes
    assert ("far", ngbkit.__version__, str(home)) == (done["device"], done["version"], done["state_dir"])
    assert printed.out.startswith(f"far: ngbkit {ngbkit.__version__} is ready in {home}\n")
    assert "To bring more of them: ngbkit deploy far --extras NAMES\n" in printed.out
    assert "cpu: nothing of ngbkit's was there" in printed.out
    assert "unknown device 'fra'. Did you mean far?" in printed.err


def test_an_environment_may_see_the_packages_of_its_system(tmp_path: Path) -> None:
    """As on a Jetson, whose torch and TensorRT come with it; otherwise it sees its own."""
    for system in (False, True):
        install._make(tmp_path / "env", {"named": False, "system": system})
        (tmp_path / "env" / READY).touch()

        assert system == install._sees_system(tmp_path / "env")
