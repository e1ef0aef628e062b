"""Devices of one machine: their engines start together, and those that share cores measure in turn."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ngbkit.cluster.machines import Starts, group_by_cores, group_by_machine

DEVICES = """\
[gpu]
launch = "local"
accelerator = "cuda:0"

[server]
launch = "ssh"
host = "server"

[server-gpu]
launch = "ssh"
host = "server"
accelerator = "cuda:0"

[socket0]
launch = "ssh"
host = "big"
cores = "0-3"

[socket1]
launch = "ssh"
host = "big"
cores = "4-7"

[node]
launch = "slurm"
host = "server"
address = "10.0.0.5"
"""
LABELS = ("cpu", "server", "socket1", "gpu", "node", "server-gpu", "socket0", "attached")


@pytest.fixture(autouse=True)
def devices_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "devices.toml"
    path.write_text(DEVICES)
    path.chmod(0o600)
    monkeypatch.chdir(tmp_path)
    return path


def test_devices_of_one_host_are_on_one_machine() -> None:
    """Devices of one host are on one machine; jobs and attached engines are each on their own."""
    expected = [{"cpu", "gpu"}, {"server", "server-gpu"}, {"socket0", "socket1"}, {"node"}, {"attached"}]

    groups = group_by_machine(LABELS)

    assert sorted(map(sorted, expected)) == sorted(map(sorted, groups))


def test_devices_with_cores_of_their_own_measure_side_by_side(devices_file: Path) -> None:
    """Devices without common cores measure at the same time, unless a third overlaps both."""
    assert [{"socket0"}, {"socket1"}] == sorted(map(set, group_by_cores(["socket1", "socket0"])), key=min)

    with devices_file.open("a") as file:
        file.write('[both]\nlaunch = "ssh"\nhost = "big"\ncores = [3, 4]\n')

    assert [{"socket0", "socket1", "both"}] == list(map(set, group_by_cores(["socket1", "socket0", "both"])))


def test_no_device_measures_while_an_engine_of_its_machine_starts() -> None:
    """A device waits while an engine of its machine starts, and reports which."""
    starts, texts, measured = Starts(["cpu", "gpu", "server"]), [], threading.Event()
    starts.finish("cpu")

    def wait() -> None:
        starts.wait("cpu", texts.append, lambda: False)
        measured.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not measured.wait(0.3)
    starts.finish("gpu")
    thread.join()

    assert ["waiting until the engine of gpu has started, on the same machine"] == texts


def test_a_run_that_is_stopped_waits_no_longer() -> None:
    """A stopped run ends its wait for another engine."""
    starts = Starts(["cpu", "gpu"])
    starts.finish("cpu")

    with pytest.raises(InterruptedError):
        starts.wait("cpu", str, lambda: True)
