"""The kernel in the wheel, and the kernels of devices, which start and measure on their device by default."""

from __future__ import annotations

import json
import shutil
import struct
import sys
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from ngbkit import cli, options, set_options
from ngbkit.api import Sweep
from ngbkit.commands import kernels
from ngbkit.errors import UnknownNameError, UsageError

SHIPPED = Path(__file__).parents[2] / "kernels" / "ngbkit"
DEVICES = """
[orin]
launch = "ssh"
host = "orin"
"""
CODE = """
from ngbkit import Sweep
print(Sweep("resnet18").devices, "ngbench" in get_ipython().magics_manager.magics["cell"])
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Jupyter folder with the kernel in the wheel, and a devices file."""
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_PATH"):
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    monkeypatch.setattr("jupyter_core.paths.ENV_JUPYTER_PATH", [])  # has the kernels of the Python environment
    shutil.copytree(SHIPPED, tmp_path / "jupyter" / "kernels" / "ngbkit")
    file = tmp_path / "config" / "devices.toml"
    file.parent.mkdir()
    file.write_text(DEVICES)
    monkeypatch.setenv("NGBKIT_CONFIG_DIR", str(file.parent))
    return tmp_path


def run_kernels(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, str]]:
    assert 0 == cli.main(["kernels", *words, "--json"])
    return json.loads(capsys.readouterr().out)


def execute(manager: KernelManager, code: str) -> str:
    """Run code in a kernel, and return the text that it prints."""
    client = manager.client()
    client.start_channels()
    client.wait_for_ready()
    printed: list[str] = []
    client.execute_interactive(
        code,
        output_hook=lambda message: printed.append(
            message["content"].get("text") or "\n".join(message["content"].get("traceback", []))
        ),
    )
    client.stop_channels()
    return "".join(printed)


def test_kernels_are_installed_listed_and_removed(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    """Each device of the devices file gets a kernel, with the logos."""
    assert ["ngbkit"] == [row["kernel"] for row in run_kernels(capsys)]
    rows = run_kernels(capsys, "install")
    assert [("ngbkit", "any"), ("ngbkit-orin", "orin")] == [(row["kernel"], row["device"]) for row in rows]
    folder = Path(rows[1]["where"])
    assert {file.name for file in SHIPPED.iterdir()} == {file.name for file in folder.iterdir()}
    assert "ngbkit on orin" == json.loads((folder / "kernel.json").read_text())["display_name"]
    (home / "config" / "devices.toml").write_text('[nano]\nlaunch = "ssh"\nhost = "nano"\n')
    assert "no such device any more" in run_kernels(capsys)[1]["remark"]
    assert ["ngbkit"] == [row["kernel"] for row in run_kernels(capsys, "remove")]


def test_the_kernel_of_another_python_is_not_replaced(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    """A second environment gets a kernel of its own, and removes no other."""
    foreign = home / "jupyter" / "kernels" / "ngbkit-orin" / "kernel.json"
    foreign.parent.mkdir()
    spec = {"argv": ["/usr/bin/env"], "display_name": "ngbkit on orin", "env": {options.DEVICE: "orin"}}
    foreign.write_text(json.dumps(spec))
    for _ in range(2):
        rows = run_kernels(capsys, "install", "orin")
        assert ["ngbkit-orin", Path(rows[2]["where"]).name] == [row["kernel"] for row in rows[1:]]
    assert "/usr/bin/env" == rows[1]["python"]
    assert sys.executable == rows[2]["python"]
    assert f"({sys.prefix})" in Path(rows[2]["where"], "kernel.json").read_text()
    foreign.write_text(json.dumps({**spec, "argv": [str(home / "missing" / "python")]}))
    rows = run_kernels(capsys, "remove")
    assert ["", "jupyter kernelspec remove ngbkit-orin"] == [row["remark"].rpartition(": ")[2] for row in rows]


def test_an_unknown_device_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The error suggests the nearest name."""
    assert 2 == cli.main(["kernels", "install", "orrin"])
    assert "orin" in capsys.readouterr().err
    assert 2 == cli.main(["kernels", "remove", "orin"])
    assert 2 == cli.main(["kernels", "list", "orin"])
    with pytest.raises(UnknownNameError):
        kernels.install("orrin")


@pytest.mark.parametrize(("name", "device"), [("ngbkit", "cpu"), ("ngbkit-orin", "orin")])
def test_a_kernel_starts_with_its_magics_and_its_device(name: str, device: str) -> None:
    """The kernel in the wheel measures on this machine by default, that of a device there."""
    kernels.install("orin")
    manager = KernelManager(kernel_name=name)
    manager.start_kernel()
    try:
        printed = execute(manager, CODE)
    finally:
        manager.shutdown_kernel(now=True)

    assert f"('{device}',) True" in printed


def test_the_shipped_kernel_has_logos_of_the_sizes_that_jupyter_shows() -> None:
    """Jupyter finds it as the wheel installs it."""
    heads = [(SHIPPED / name).read_bytes()[:24] for name in ("logo-32x32.png", "logo-64x64.png")]

    assert [(32, 32), (64, 64)] == [struct.unpack(">II", head[16:]) for head in heads]
    assert "<svg" in (SHIPPED / "logo-svg.svg").read_text()
    assert "ngbkit" in KernelSpecManager().find_kernel_specs()


def test_the_device_is_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session or the environment sets the default device; a sweep may name another."""
    assert ("cpu",) == Sweep("resnet18").devices
    monkeypatch.setenv(options.DEVICE, "orin")
    assert ("orin",) == Sweep("resnet18").devices
    with set_options(device="nano"):
        assert ("nano",) == Sweep("resnet18").devices
    assert ("cpu",) == Sweep("resnet18", devices="cpu").devices
    with pytest.raises(UsageError, match="device"):
        set_options(device="")


def test_kernels_are_listed_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython warns that it cannot write there, which is no matter here."""
    monkeypatch.setenv("HOME", str(tmp_path / "missing"))
    monkeypatch.delenv("IPYTHONDIR", raising=False)

    assert cli.OK == cli.main(["kernels"])
