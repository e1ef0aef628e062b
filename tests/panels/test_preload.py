"""Engines and libraries that load while the user fills in a form."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from watching import Processes

from ngbkit import options
from ngbkit.api import Sweep
from ngbkit.cluster import engines
from ngbkit.device.interrupt import Interrupt
from ngbkit.device.lock import acquire_cores
from ngbkit.notebook import preload
from ngbkit.workloads.base import Workload

start_engines = preload.start_engines  # the fixture of this folder replaces it


def test_an_engine_starts_ahead_of_the_run(mlp: Workload, processes: Processes) -> None:
    """The next run uses that engine and its fork servers."""
    sweep = Sweep(mlp, compilers=["identity", "onnxruntime"], repeats=5)
    for thread in start_engines(sweep):
        thread.join()
    engine = engines.find_running()["cpu"]
    servers = [process.pid for process in processes() if "ngbkit.device.isolation.forkserver" in process.cmdline()]

    assert servers
    assert engine is engines.acquire("cpu")
    assert [] == start_engines(sweep)
    assert {"ok"} == set(sweep.run()["status"].values.ravel())
    assert set(servers) <= {process.pid for process in processes()}
    engines.stop("cpu")


def test_a_remote_device_gets_no_engine(mlp: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticking a box neither occupies a GPU server nor submits a batch job."""
    (tmp_path / "devices.toml").write_text('[remote]\nlaunch = "ssh"\nhost = "nowhere"\n')
    monkeypatch.chdir(tmp_path)

    assert [] == start_engines(Sweep(mlp, devices=["remote"]))


def test_errors_are_left_to_the_run(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """The background thread raises nothing."""

    labels = []

    def fail(label: str) -> None:
        labels.append(label)
        raise OSError(label)

    monkeypatch.setattr(engines, "acquire", fail)
    monkeypatch.setattr(engines, "find_running", dict)
    for thread in start_engines(Sweep(mlp)):
        thread.join()

    assert ["cpu"] == labels


def test_missing_libraries_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing a figure reports them."""
    monkeypatch.setitem(sys.modules, "vl_convert", None)

    preload.prepare_charts()

    assert "altair" in sys.modules
    assert sys.modules["vl_convert"] is None


def load(monkeypatch: pytest.MonkeyPatch, *, kernel: bool = True, **variables: str) -> list[Sweep]:
    """Load the extension in a shell; return the sweeps whose engines it starts."""
    sweeps: list[Sweep] = []
    monkeypatch.setenv(options.PRELOAD, "1")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(preload, "start_engines", lambda sweep: sweeps.append(sweep) or [])
    preload.begin(SimpleNamespace(kernel=object()) if kernel else SimpleNamespace())
    for thread in threading.enumerate():
        if thread.name == "ngbkit-preload":
            thread.join()
    return sweeps


def test_a_kernel_starts_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel starts the engine that cells with the usual compilers need."""
    (sweep,) = load(monkeypatch)

    assert (("cpu",), "cell", "identity") == (sweep.devices, sweep.workloads[0].source, sweep.compilers[0])


def test_other_shells_start_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a terminal, nor a kernel that replays recordings, nor that of a user who forbids it starts an engine."""
    assert [] == load(monkeypatch, kernel=False)
    assert [] == load(monkeypatch, NGBKIT_PRELOAD="0")
    assert [] == load(monkeypatch, NGBKIT_RECORDED=str(tmp_path))


def test_no_import_disturbs_a_measurement(monkeypatch: pytest.MonkeyPatch, state_dir: Path) -> None:
    """No engine starts while another run measures on this machine."""
    with Interrupt() as interrupt, acquire_cores(state_dir / "cores", [0], "a run", interrupt.descriptor, print):
        sweeps = load(monkeypatch)

    assert [] == sweeps
