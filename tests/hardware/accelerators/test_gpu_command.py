"""The command that tries everything on a GPU, on a fake one: its parts, its bundle, its wheels, its clocks."""

from __future__ import annotations

import importlib
import json
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hardware.accelerators.faking import FakeGpu

from ngbkit.compilers.base import Program
from ngbkit.hardware.accelerators.cuda import Driver
from ngbkit.sweep.records import Contract

BENCHMARKS = Path(__file__).parents[3] / "bench"


@pytest.fixture
def wheels(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("gpu_wheels")


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
        "--wheels",
        os.devnull,
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


def test_a_bundle_carries_the_parts_to_another_machine(tmp_path: Path, driver_folder: Path) -> None:
    """A part that is finished on one machine is not run on the next."""
    bundle = tmp_path / "bundle.tar.gz"
    first = try_gpu(tmp_path / "first", "--only", "machine", "--bundle", str(bundle), driver=driver_folder)
    # As another machine would have left it.
    part = {"ok": True, "line": "measured elsewhere", "seconds": 1.0}
    (tmp_path / "first" / "parts" / "sweep.json").write_text(json.dumps(part))
    again = try_gpu(tmp_path / "first", "--only", "machine", "--bundle", str(bundle), driver=driver_folder)
    second = try_gpu(tmp_path / "second", "--only", "sweep", "--bundle", str(bundle), driver=driver_folder)

    assert (0, 0, 0) == (first.returncode, again.returncode, second.returncode), second.stdout + second.stderr
    assert "Fake GPU" in first.stdout
    assert part == json.loads((tmp_path / "second" / "parts" / "sweep.json").read_text())


def test_wheels_travel_in_pieces(wheels: ModuleType, tmp_path: Path) -> None:
    """A wheel is installed as soon as its last piece is there."""
    wheel = tmp_path / "planted-1.0-py3-none-any.whl"
    content = np.random.default_rng(0).bytes(50_000).hex()
    tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("planted.py", f"CONTENT = {content!r}\n")
        archive.writestr("planted-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
        archive.writestr("planted-1.0.dist-info/WHEEL", tags)
        archive.writestr("planted-1.0.dist-info/RECORD", "planted.py,,\n")
    pieces, collected, site = tmp_path / "pieces", tmp_path / "collected", tmp_path / "site"
    pieces.mkdir()
    sizes = wheels.split(wheel, pieces, 0.02)
    last = max(pieces.iterdir())
    later = last.rename(tmp_path / last.name)
    incomplete = wheels.install(pieces, collected, site)
    later.rename(last)

    assert len(sizes) == len(list(pieces.iterdir())) > 2
    assert [] == incomplete
    assert [wheel.name] == wheels.install(pieces, collected, site)
    assert content in (site / "planted.py").read_text()


def test_code_of_other_gpus_is_blanked(wheels: ModuleType) -> None:
    """A library keeps its code for one architecture, its headers, and bytes that only look like a header."""

    def build(codes: list[tuple[int, int, bytes]]) -> bytes:
        entries = b"".join(
            struct.pack("<HHIQIIHHI", kind, 0x101, 64, len(code), 0, 0, 0, 0, sm).ljust(64, b"\0") + code
            for kind, sm, code in codes
        )
        return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries

    other = b"head" + struct.pack("<I", 0xBA55ED50) + b"tail" * 8
    library = other + build([(2, 80, b"a" * 24), (2, 90, b"b" * 16), (1, 90, b"ptx.")]) + b"rest"
    expected = other + build([(2, 80, bytes(24)), (2, 90, b"b" * 16), (1, 90, bytes(4))]) + b"rest"

    assert expected == wheels.blank_others(library, 90)


def test_each_sweep_is_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command has a part for each run of its sweep, and the sweep a run for each part."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    command, sweep = (importlib.import_module(name) for name in ("gpu", "gpu_sweep"))

    assert set(sweep.RUNS) == {f"gpu-{name}" if name else "gpu" for name in command.SWEEPS}


def test_the_requirements_are_those_of_the_extras(wheels: ModuleType) -> None:
    """The requirements are those of the extras, less installed packages and duplicates of a module."""
    names = {wheels.read_name(text) for text in wheels.list_requirements(["onnxruntime-gpu", "tensorrt-rtx"], {"Onnx"})}

    packages = {"nvidia-ml-py", "onnxruntime", "onnxruntime-gpu", "onnxruntime-ep-nv-tensorrt-rtx-cu13"}
    assert packages | {"ml-dtypes", "onnx-ir", "onnxscript"} == names
    assert names - {"onnxruntime"} == set(wheels.drop_conflicts(names))
    with pytest.raises(SystemExit, match=r"invalid extra: got 'nothing'; expected one of .*tvm"):
        list(wheels.list_requirements(["nothing"], set()))


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
