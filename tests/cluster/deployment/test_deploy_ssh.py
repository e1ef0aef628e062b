"""A device that ssh reaches, of another Python and without a network: deployed to, measured on, and left as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Host, sshd
from patience import wait_until
from pythons import far_python
from requirements import OTHER_PYTHON, PROGRAMS, require_program, skip

from ngbkit import cli, options
from ngbkit.cluster import engines
from ngbkit.cluster.deployment.deploy import deploy
from ngbkit.cluster.deployment.undeploy import undeploy
from ngbkit.cluster.devices import Device
from ngbkit.errors import DeviceError
from ngbkit.sweep.grid import Sweep
from ngbkit.workloads.base import Workload

STATE = ".local/state/ngbkit"
FAR = Device(label="far", launch="ssh", host="far")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A machine whose pip has no index to ask."""
    python = far_python()
    if python is None:
        skip(OTHER_PYTHON)
    nothing = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1"}
    with sshd(tmp_path_factory.mktemp("far"), python=python, environment=nothing) as found:
        yield found


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory, host: Host) -> Path:
    """What was fetched for it, once, by a deploy that this stops as soon as it has been sent."""
    home = tmp_path_factory.mktemp("client")

    def stop(line: str) -> None:
        if line.startswith("sending"):
            raise KeyboardInterrupt

    with options.set_options(state_dir=home), pytest.raises(KeyboardInterrupt):
        deploy(FAR, extras=["onnxruntime"], wheels=True, say=stop)
    (folder,) = (home / "wheelhouses").iterdir()
    return folder


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current folder with a devices file."""
    (tmp_path / "devices.toml").write_text('[far]\nlaunch = "ssh"\nhost = "far"\n')
    (tmp_path / "devices.toml").chmod(0o600)
    monkeypatch.chdir(tmp_path)


def state(host: Host) -> set[str]:
    """What lies in its folder."""
    folder = host.home / STATE
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def test_it_is_measured_on_and_left_as_it_was(
    host: Host, wheels: Path, in_folder: None, mlp: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    """From nothing but a Python to a dataset and back to nothing, while whoever uses it is not cut off."""
    before = host.files()
    done = deploy(FAR, extras=["onnxruntime"], wheels=wheels)
    found = {one["compiler"]: one["missing"] for one in done.compilers}
    data = Sweep(mlp, ["onnxruntime"], [1, 2], repeats=5, threads=1, devices=["far"]).run()
    environment = json.loads(data.attrs["environments"])["far"]
    with pytest.raises(DeviceError, match=r"an engine lives on device far \(far\)"):
        undeploy(FAR)
    engines.close()
    wait_until(lambda: not host.processes())
    code = cli.main(["undeploy", "far"])

    assert ("", str(host.home / STATE / "env/bin/python"), "") == (found["onnxruntime"], done.python, done.remark)
    assert {"ok"} == set(data["status"].values.ravel())
    assert done.environment["python"] == environment["python"]
    assert cli.OK == code
    assert capsys.readouterr().out.startswith("far: removed env, ")
    assert (before, set()) == (host.files(), state(host))


def test_a_link_that_breaks_leaves_nothing_under_way(host: Host, wheels: Path) -> None:
    """The device ends what it does when its client is gone; what is half made is made anew, or taken away."""

    def cut(line: str) -> None:
        if line.startswith("Processing"):
            host.kill_sessions()

    with pytest.raises(DeviceError, match="far cannot be reached"):
        deploy(FAR, extras=(), wheels=wheels, say=cut)
    wait_until(lambda: not host.processes())
    left = state(host)
    undeploy(FAR)

    assert {".ngbkit", "env"} == left - {"downloads"}
    assert set() == state(host)


def test_one_that_cannot_be_reached_is_told_so() -> None:
    """With what ssh said."""
    require_program(PROGRAMS["ssh"])
    nowhere = Device(label="gone", launch="ssh", host="nowhere.invalid")
    for act in (deploy, undeploy):
        with pytest.raises(DeviceError, match=r"nowhere.invalid cannot be reached .*Could not resolve"):
            act(nowhere)  # type: ignore[operator]
