"""What is done while a form is filled in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from patience import wait_until
from watching import Processes

from ngbkit.cluster import engines
from ngbkit.notebook.panels import SweepPanel, ahead
from ngbkit.sweep.grid import Sweep
from ngbkit.workloads.base import Workload

start = ahead.start  # as it is: the fixture of this folder takes its place


def test_an_engine_is_there_before_it_is_asked_for(mlp: Workload, processes: Processes) -> None:
    """The run that comes then takes the same one, and the fork servers that it has."""
    sweep = Sweep(mlp, compilers=["identity", "onnxruntime"], repeats=5)
    for thread in start(sweep):
        thread.join()
    found = engines.running()["cpu"]
    servers = [one.pid for one in processes() if "ngbkit.device.forkserver" in one.cmdline()]

    assert servers
    assert found is engines.engine("cpu")
    assert [] == start(sweep)
    assert {"ok"} == set(sweep.run()["status"].values.ravel())
    assert set(servers) <= {one.pid for one in processes()}
    engines.stop("cpu")


def test_a_far_device_is_left_alone(mlp: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's GPU server or a batch job is not started because a box is ticked."""
    (tmp_path / "devices.toml").write_text('[far]\nlaunch = "ssh"\nhost = "nowhere"\n')
    monkeypatch.chdir(tmp_path)

    assert [] == start(Sweep(mlp, devices=["far"]))


def test_what_goes_wrong_is_for_the_run_to_say(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is raised in a thread that nobody looks at."""

    def fail(label: str) -> None:
        raise OSError(label)

    monkeypatch.setattr(engines, "engine", fail)
    for thread in start(Sweep(mlp)):
        thread.join()

    assert {} == engines.running()


def test_a_panel_starts_what_its_sweep_needs(shell: InteractiveShell, mlp_file: Path, started: list[set[str]]) -> None:
    """Not when it is shown, but as soon as there is a network; and once."""
    panel = SweepPanel()
    wait_until(lambda: bool(panel.form.search.options))
    assert [] == started

    panel.form.networks.value = [str(mlp_file)]
    panel.form.batch_sizes.value = "1,4"

    assert [("cpu",)] == [sweep.devices for sweep in started]


def test_libraries_that_lack_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever draws says what to install."""
    monkeypatch.setitem(sys.modules, "vl_convert", None)

    ahead.load()

    assert "altair" in sys.modules
    assert sys.modules["vl_convert"] is None
