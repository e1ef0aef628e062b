"""The command that tries everything on a GPU, on a fake one: its parts and its clocks."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hardware.accelerators.faking import FakeGpu

from ngbkit.compilers.base import Program
from ngbkit.hardware.accelerators.cuda import Driver
from ngbkit.sweep.records import Contract

BENCHMARKS = Path(__file__).parents[2] / "bench"


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu_checks")


def try_gpu(state: Path, *arguments: str, driver: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver or "")}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    command = [
        sys.executable,
        str(BENCHMARKS / "gpu.py"),
        "--state",
        str(state),
        "--minutes",
        "3",
        *arguments,
    ]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_machine_without_a_gpu_says_so(tmp_path: Path) -> None:
    """The command reports a missing GPU and what each compiler lacks, and runs nothing else."""
    process = try_gpu(tmp_path)

    assert 1 == process.returncode
    assert "no NVIDIA driver on this machine" in process.stdout
    assert process.stdout.rstrip().endswith("left: everything: this machine has no GPU that works")
    assert ["machine.json"] == [path.name for path in (tmp_path / "parts").iterdir()]


def test_a_finished_part_is_not_run_again(tmp_path: Path, driver_folder: Path) -> None:
    """A part with a result, also of another machine, keeps it; `--again` runs it anew."""
    parts = tmp_path / "state" / "parts"
    parts.mkdir(parents=True)
    part = {"ok": True, "line": "measured elsewhere", "seconds": 1.0}
    (parts / "sweep.json").write_text(json.dumps(part))
    process = try_gpu(tmp_path / "state", "--only", "sweep", driver=driver_folder)
    again = try_gpu(tmp_path / "state", "--only", "machine", "--again", "sweep", driver=driver_folder)

    assert 0 == process.returncode, process.stdout + process.stderr
    assert "Fake GPU" in process.stdout
    assert 0 == again.returncode, again.stdout + again.stderr
    assert ["machine.json"] == [path.name for path in parts.iterdir()]


def test_a_program_is_timed_by_both_clocks(checks: ModuleType, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both clocks time a program, and a flush of the cache does not count."""
    monkeypatch.setattr(checks, "SAMPLE_S", 1e-6)
    driver = Driver()

    def enqueue() -> None:
        gpu.launch(driver.stream.value, 2_000_000)

    def run() -> None:
        enqueue()
        driver.synchronize()

    contract = Contract(runtime="fake", precision="f32", threads=1)
    program = Program(run=run, fetch=list, contract=contract, enqueue=enqueue, stream=driver.stream.value or 0)
    row = checks.time_by_both(program)

    assert pytest.approx(2.0) == row["events_ms"]
    assert pytest.approx(1.0) == row["flushed_over_warm"][1]
    assert row["host_ms"] > 0
