"""A device behind ssh, with another Python and without a network: a deploy, a sweep, the removal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Host, start_host
from patience import wait_until
from pythons import find_other_python
from requirements import OTHER_PYTHON, PROGRAMS, require_program, skip

from ngbkit import cli, options
from ngbkit.api import Sweep
from ngbkit.cluster import engines
from ngbkit.cluster.devices import Device
from ngbkit.errors import DeviceError
from ngbkit.fleet.deployment.deploy import deploy
from ngbkit.fleet.deployment.removal import remove
from ngbkit.workloads.base import Workload

STATE = ".local/state/ngbkit"
FAR = Device(label="far", launch="ssh", host="far")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A machine whose pip has no index."""
    python = find_other_python()
    if python is None:
        skip(OTHER_PYTHON)
    nothing = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1"}
    with start_host(tmp_path_factory.mktemp("far"), python=python, environment=nothing) as machine:
        yield machine


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory, host: Host) -> Path:
    """Its wheels, downloaded once by a deploy that stops before it sends them."""
    home = tmp_path_factory.mktemp("client")

    def stop(line: str) -> None:
        if line.startswith("sending"):
            raise KeyboardInterrupt

    with options.set_options(state_dir=home), pytest.raises(KeyboardInterrupt):
        deploy(FAR, extras=["onnxruntime"], wheels=True, report=stop)
    (folder,) = (home / "wheelhouses").iterdir()
    return folder


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current folder with a devices file."""
    (tmp_path / "devices.toml").write_text('[far]\nlaunch = "ssh"\nhost = "far"\n')
    (tmp_path / "devices.toml").chmod(0o600)
    monkeypatch.chdir(tmp_path)


def list_entries(host: Host) -> set[str]:
    """List the entries of its state folder."""
    folder = host.home / STATE
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def test_a_removal_restores_the_machine(
    host: Host, wheels: Path, in_folder: None, mlp: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine is deployed to, measures, and is restored by the removal."""
    files = host.list_files()
    deployment = deploy(FAR, extras=["onnxruntime"], wheels=wheels)
    missing = {compiler["compiler"]: compiler["missing"] for compiler in deployment.compilers}
    data = Sweep(mlp, ["onnxruntime"], [1, 2], repeats=5, threads=1, devices=["far"]).run()
    environment = json.loads(data.attrs["environments"])["far"]
    with pytest.raises(DeviceError, match=r"an engine lives on device far \(far\)"):
        remove(FAR)
    engines.close()
    wait_until(lambda: not host.find_processes())
    code = cli.main(["deploy", "far", "--remove"])

    assert ("", str(host.home / STATE / "env/bin/python"), "") == (
        missing["onnxruntime"],
        deployment.python,
        deployment.remark,
    )
    assert {"ok"} == set(data["status"].values.ravel())
    assert deployment.environment["python"] == environment["python"]
    assert cli.OK == code
    assert capsys.readouterr().out.startswith("far: removed env, ")
    assert (files, set()) == (host.list_files(), list_entries(host))


def test_an_unreachable_machine_is_reported() -> None:
    """The error of an unreachable machine has the output of ssh."""
    require_program(PROGRAMS["ssh"])
    nowhere = Device(label="gone", launch="ssh", host="nowhere.invalid")
    for act in (deploy, remove):
        with pytest.raises(DeviceError, match=r"cannot reach nowhere.invalid .*Could not resolve"):
            act(nowhere)  # type: ignore[operator]
