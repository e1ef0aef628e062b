"""Probes of a GPU: the problem if none is usable, and its description otherwise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hardware.accelerators.faking import VISIBLE, show_driver

from ngbkit.errors import DeviceError
from ngbkit.hardware.accelerators import cuda, inspection, probing


@pytest.fixture(autouse=True)
def _driver(driver_folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Probes find the fake driver."""
    show_driver(driver_folder, monkeypatch)
    yield
    probing.clear_cache()


def test_a_working_gpu_has_no_problem() -> None:
    """A machine with a driver, a GPU and a silent library has no problem."""
    assert "" == cuda.find_problem("numpy", "import numpy")
    assert "" == cuda.find_problem("anything", "")


def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The problem of a missing driver has the loader's message and a remedy, and no library is probed."""
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    problem = cuda.find_problem("torch", "print('asked')")

    assert "no NVIDIA driver on this machine (" in problem
    assert "libcuda.so.1: file too short" in problem
    assert "torch needs one and a GPU: install NVIDIA's driver" in problem
    assert {} == cuda.describe()


@pytest.mark.parametrize("call", ["cuInit", "cuDeviceGetCount", "cuDevicePrimaryCtxRetain"])
def test_a_driver_that_does_not_start_is_reported(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The problem of a driver that does not start has the name of its error."""
    monkeypatch.setenv("FAKE_CUDA_FAIL", f"{call}:803")
    problem = cuda.find_problem("torch", "")

    assert "the NVIDIA driver does not start (" in problem
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803: " in problem
    assert "nvidia-smi" in problem


def test_a_driver_that_crashes_ends_only_its_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that crashes ends only its probe, and the problem says so."""
    monkeypatch.setenv("FAKE_CUDA_FAIL", "cuInit:crash")

    assert "does not start (looking for a GPU: it ended with -6" in cuda.find_problem("torch", "")


def test_a_hidden_gpu_differs_from_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The problem names the variable that hides it, with its value."""
    monkeypatch.setenv(VISIBLE, "-1")
    hidden = cuda.find_problem("torch", "")
    monkeypatch.delenv(VISIBLE)
    visible = cuda.find_problem("torch", "")
    monkeypatch.setenv("FAKE_CUDA_GPUS", "0")
    probing.clear_cache()
    none = cuda.find_problem("torch", "")

    assert "no NVIDIA GPU is visible to this process, because CUDA_VISIBLE_DEVICES is '-1'; torch needs one" in hidden
    assert "" == visible
    assert "the NVIDIA driver finds no GPU, and torch needs one" in none


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("print('built without CUDA')", "built without CUDA"),
        (
            "import no_such_library",
            "torch is installed and does not load: it ended with 1: ModuleNotFoundError: No mod",
        ),
        ("import os; os.abort()", "torch is installed and does not load: it ended with -6: it printed nothing"),
    ],
)
def test_a_library_reports_its_problem(program: str, problem: str) -> None:
    """The problem of a library is its output, its error or its crash."""
    assert cuda.find_problem("torch", program).startswith(problem)


def test_a_library_that_hangs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that hangs is killed at a time limit and reported."""
    cuda.describe()
    monkeypatch.setattr(probing, "TIMEOUT_S", 0.2)

    assert "did not end within 0.2 s" in cuda.find_problem("torch", "import time; time.sleep(60)")


def test_each_library_is_probed_once(tmp_path: Path) -> None:
    """The cache returns the first answer, until it is cleared."""
    program = f"import pathlib; open({str(tmp_path / 'asked')!r}, 'a').write('x')"
    for _ in range(2):
        cuda.find_problem("torch", program)
    once = (tmp_path / "asked").read_text()
    probing.clear_cache()
    cuda.find_problem("torch", program)

    assert ("x", "xx") == (once, (tmp_path / "asked").read_text())


def test_the_gpu_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The description of a GPU is plain JSON with units in its names."""
    described = cuda.describe()
    described.pop("driver_version", None)

    assert {
        "name": "Fake GPU",
        "compute_capability": "8.7",
        "memory_bytes": 1 << 30,
        "l2_bytes": 4096,
        "multiprocessors": 8,
        "integrated": True,
        "bus_id": "0000:01:00.0",
        "cuda_version": "13.1",
    } == described


def test_the_compute_capability_is_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compute capability is a pair; the error has the reason if there is none."""
    assert (8, 7) == cuda.read_compute_capability()

    monkeypatch.setenv(VISIBLE, "")
    with pytest.raises(DeviceError, match="CUDA_VISIBLE_DEVICES is ''"):
        cuda.read_compute_capability()


@pytest.mark.parametrize(
    ("file", "text", "version"),
    [
        ("sys/module/nvidia/version", "580.65.06\n", "580.65.06"),
        (
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\nGCC version: 12.2.0\n",
            "570.124.06",
        ),
        ("proc/driver/nvidia/params", "", ""),
    ],
)
def test_the_version_of_the_driver_is_read(file: str, text: str, version: str, tmp_path: Path) -> None:
    """The version of the driver is read from the kernel, or empty."""
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)

    assert version == inspection.read_driver_version(tmp_path)


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("cuda.describe(), cuda.read_compute_capability(), cuda.find_problem('json', 'import json')", 0),
        ("cuda.Driver()", 3),
    ],
)
def test_a_process_that_probes_can_fork_children_that_use_the_gpu(code: str, exit_code: int) -> None:
    """Children of a process that probes can use the GPU; those of one with a driver fail."""
    program = f"""
import os, sys
from ngbkit.hardware.accelerators import cuda
{code}
if os.fork() == 0:
    try:
        cuda.Driver().allocate(1)
    except RuntimeError:
        os._exit(3)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert exit_code == subprocess.run([sys.executable, "-c", program], check=False).returncode
