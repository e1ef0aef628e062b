"""What is said where there is no GPU to use, and what it is where there is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hardware.accelerators.faking import VISIBLE, show_driver

from ngbkit.errors import DeviceError
from ngbkit.hardware.accelerators import cuda, looking, probing


@pytest.fixture(autouse=True)
def _driver(driver_folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Processes that are asked find the fake driver."""
    show_driver(driver_folder, monkeypatch)
    yield
    probing.forget()


def test_nothing_lacks_where_all_is_there() -> None:
    """A driver, a GPU, and a library that says nothing."""
    assert "" == cuda.lacks("numpy", "import numpy")
    assert "" == cuda.lacks("anything", "")


def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the loader says, and with what to do; the library is not asked."""
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    reason = cuda.lacks("torch", "print('asked')")

    assert "there is no NVIDIA driver on this machine (" in reason
    assert "libcuda.so.1: file too short" in reason
    assert "torch needs one and a GPU: install NVIDIA's driver" in reason
    assert {} == cuda.describe()


@pytest.mark.parametrize("call", ["cuInit", "cuDeviceGetCount", "cuDevicePrimaryCtxRetain"])
def test_a_driver_that_does_not_start_is_told(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that answers with an error is told from one that is not there, by the error's name."""
    monkeypatch.setenv("FAKE_CUDA_FAIL", f"{call}:803")
    reason = cuda.lacks("torch", "")

    assert "the NVIDIA driver does not start (" in reason
    assert "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803: " in reason
    assert "nvidia-smi" in reason


def test_a_driver_that_crashes_takes_nothing_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the process that asks, which says so."""
    monkeypatch.setenv("FAKE_CUDA_FAIL", "cuInit:crash")

    assert "does not start (looking for a GPU: it ended with -6" in cuda.lacks("torch", "")


def test_a_hidden_gpu_is_told_from_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a variable hides them, the reason is the variable, and its value; else it is the machine."""
    monkeypatch.setenv(VISIBLE, "-1")
    hidden = cuda.lacks("torch", "")
    monkeypatch.delenv(VISIBLE)
    seen = cuda.lacks("torch", "")
    monkeypatch.setenv("FAKE_CUDA_GPUS", "0")
    probing.forget()
    none = cuda.lacks("torch", "")

    assert "no NVIDIA GPU that this process may see, for CUDA_VISIBLE_DEVICES is '-1', and torch needs one" in hidden
    assert "" == seen
    assert "the NVIDIA driver finds no GPU, and torch needs one" in none


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("print('built without CUDA')", "built without CUDA"),
        (
            "import no_such_library",
            "torch is installed and does not load: it ended with 1: ModuleNotFoundError: No mod",
        ),
        ("import os; os.abort()", "torch is installed and does not load: it ended with -6: it said nothing"),
    ],
)
def test_a_library_says_what_it_lacks(program: str, reason: str) -> None:
    """What it prints, what it raises, or that it crashed."""
    assert cuda.lacks("torch", program).startswith(reason)


def test_a_library_that_hangs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended after a while."""
    cuda.describe()
    monkeypatch.setattr(probing, "TIMEOUT_S", 0.2)

    assert "did not end within 0.2 s" in cuda.lacks("torch", "import time; time.sleep(60)")


def test_each_is_asked_once(tmp_path: Path) -> None:
    """The second answer is the first, until it is to be forgotten."""
    program = f"import pathlib; open({str(tmp_path / 'asked')!r}, 'a').write('x')"
    for _ in range(2):
        cuda.lacks("torch", program)
    once = (tmp_path / "asked").read_text()
    probing.forget()
    cuda.lacks("torch", program)

    assert ("x", "xx") == (once, (tmp_path / "asked").read_text())


def test_the_gpu_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain JSON, by names that carry their unit; the version of the driver is the kernel's to tell."""
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
    """Or an error that says why there is none."""
    assert (8, 7) == cuda.compute_capability()

    monkeypatch.setenv(VISIBLE, "")
    with pytest.raises(DeviceError, match="CUDA_VISIBLE_DEVICES is ''"):
        cuda.compute_capability()


@pytest.mark.parametrize(
    ("place", "text", "version"),
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
def test_the_version_of_the_driver_is_read(place: str, text: str, version: str, tmp_path: Path) -> None:
    """Where the kernel tells it, and nothing where it does not."""
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_text(text)

    assert version == looking.driver_version(tmp_path)


@pytest.mark.parametrize(
    ("asks", "code"),
    [
        ("cuda.describe(), cuda.compute_capability(), cuda.lacks('json', 'import json')", 0),
        ("cuda.Driver()", 3),
    ],
)
def test_who_asks_here_can_fork_children_that_use_the_gpu(asks: str, code: int) -> None:
    """Unlike who has a driver in its own process, whose children get errors."""
    program = f"""
import os, sys
from ngbkit.hardware.accelerators import cuda
{asks}
if os.fork() == 0:
    try:
        cuda.Driver().allocate(1)
    except RuntimeError:
        os._exit(3)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert code == subprocess.run([sys.executable, "-c", program], check=False).returncode
