"""Telemetry by NVML: a GPU that answers everything, and others that refuse."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import Pynvml, build_gpu

from ngbkit.hardware import telemetry

SLICE = {
    "nvmlDeviceGetUUID": "MIG-77bb",
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=1 << 30, total=10 << 30),
    "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=9, usedGpuMemory=5)],
}
TALKATIVE: dict[Any, Any] = {
    "instant_mw": 412_500,
    "nvmlDeviceGetTotalEnergyConsumption": 98_765_432,
    "nvmlDeviceGetPowerUsage": 300_000,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=40),
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=3 << 30, total=80 << 30),
    "nvmlDeviceGetComputeRunningProcesses": [
        SimpleNamespace(pid=7, usedGpuMemory=1 << 30),
        SimpleNamespace(pid=8, usedGpuMemory=None),
    ],
    ("nvmlDeviceGetClockInfo", 1): 1755,
    ("nvmlDeviceGetClockInfo", 2): 2619,
    ("nvmlDeviceGetTemperature", 0): 61,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x04 | 0x01 | 0x02,
    "nvmlDeviceGetArchitecture": 9,
    "nvmlDeviceGetVbiosVersion": "96.00",
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    ("nvmlDeviceGetMaxClockInfo", 1): 1980,
    "nvmlDeviceGetEccMode": [1, 1],
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetPersistenceMode": 0,
}


@pytest.fixture(autouse=True)
def _no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the test chooses a GPU."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)


def open_chip(
    monkeypatch: pytest.MonkeyPatch, root: Path, *gpus: dict[Any, Any], accelerator: str = "cuda:0"
) -> telemetry.Chip:
    monkeypatch.setitem(sys.modules, "pynvml", Pynvml(list(gpus), {"nvmlSystemGetDriverVersion": "580.1"}))
    chip = telemetry.open(accelerator, root)
    assert chip is not None
    return chip


def test_a_gpu_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reading of a GPU is in plain units, and idling is no throttling."""
    reading = open_chip(monkeypatch, tmp_path, build_gpu(0, TALKATIVE)).read()

    assert (98765.432, 412.5, 97.0) == (reading.energy_j, reading.power_w, reading.busy_percent)
    assert (3 << 30, {7: 1 << 30}) == (reading.memory_used_bytes, reading.process_memory_bytes)
    assert (1755.0, 2619.0, 61.0) == (reading.clock_mhz, reading.memory_clock_mhz, reading.temperature_c)
    assert {"power cap"} == reading.throttled


@pytest.mark.parametrize(
    ("refused", "field"),
    [
        ("nvmlDeviceGetTotalEnergyConsumption", "energy_j"),
        ("nvmlDeviceGetUtilizationRates", "busy_percent"),
        ("nvmlDeviceGetMemoryInfo", "memory_used_bytes"),
        (("nvmlDeviceGetClockInfo", 1), "clock_mhz"),
        (("nvmlDeviceGetTemperature", 0), "temperature_c"),
    ],
)
def test_a_refusal_costs_one_field(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refused: object, field: str
) -> None:
    """A refused query leaves one field empty, and all others stay."""
    complete = open_chip(monkeypatch, tmp_path, build_gpu(0, TALKATIVE)).read()
    partial = {name: answer for name, answer in TALKATIVE.items() if name != refused}
    reading = open_chip(monkeypatch, tmp_path, build_gpu(0, partial)).read()
    names = ("energy_j", "power_w", "busy_percent", "memory_used_bytes", "clock_mhz", "temperature_c", "throttled")

    assert [field] == [name for name in names if getattr(reading, name) != getattr(complete, name)]
    assert None is getattr(reading, field)


def test_a_gpu_that_refuses_everything_is_still_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All is None, and nothing raises; an unreported throttling is none."""
    chip = open_chip(monkeypatch, tmp_path, build_gpu(0))
    reading, description = chip.read(), chip.describe()

    assert telemetry.Reading(time_s=reading.time_s) == reading
    assert description == json.loads(json.dumps(description))
    assert (None, None, False) == (description["power_limit_w"], description["ecc"], description["energy_counter"])


@pytest.mark.parametrize(
    ("answers", "power", "lag"),
    [
        ({"instant_mw": 90_000, "nvmlDeviceGetPowerUsage": 70_000}, 90.0, 0.1),
        ({"nvmlDeviceGetPowerUsage": 70_000, "nvmlDeviceGetArchitecture": 4}, 70.0, 0.1),
        # The mean of a second, on a GPU without instantaneous power and energy counter.
        ({"nvmlDeviceGetPowerUsage": 70_000, "nvmlDeviceGetArchitecture": 8}, 70.0, 1.0),
        ({"nvmlDeviceGetPowerUsage": 70_000}, 70.0, 1.0),
        ({"nvmlDeviceGetTotalEnergyConsumption": 1000, "nvmlDeviceGetArchitecture": 8}, None, 0.1),
    ],
)
def test_the_delay_of_power_depends_on_its_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: dict[Any, Any], power: float | None, lag: float
) -> None:
    """The lag of power depends on its source, of which the instantaneous one is preferred."""
    chip = open_chip(monkeypatch, tmp_path, build_gpu(0, answers))

    assert (power, lag) == (chip.read().power_w, chip.lag_s)


def test_an_older_driver_reports_throttling_by_its_older_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hardware slowdown has two causes, and both are reported."""
    answers = {"nvmlDeviceGetCurrentClocksThrottleReasons": 0x48}

    assert {"hardware slowdown", "hardware thermal slowdown"} == (
        open_chip(monkeypatch, tmp_path, build_gpu(0, answers)).read().throttled
    )


def test_a_newer_library_reports_temperature_by_its_newer_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The older name is deprecated."""
    assert (
        44.0
        == open_chip(monkeypatch, tmp_path, build_gpu(0, {("nvmlDeviceGetTemperatureV", 0): 44})).read().temperature_c
    )


def test_memory_of_the_driver_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The used memory excludes the driver's, if the library reports it."""
    answers = {("nvmlDeviceGetMemoryInfo", 2): SimpleNamespace(used=2 << 30, total=80 << 30)}
    monkeypatch.setattr(Pynvml, "nvmlMemory_v2", 2, raising=False)

    assert 2 << 30 == open_chip(monkeypatch, tmp_path, build_gpu(0, {**TALKATIVE, **answers})).read().memory_used_bytes


def test_a_gpu_describes_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The description of a GPU is plain JSON with its name, driver, limits and modes."""
    description = open_chip(monkeypatch, tmp_path, build_gpu(0, TALKATIVE)).describe()

    assert description == json.loads(json.dumps(description))
    assert ("NVIDIA Some GPU", "580.1", "96.00", 700.0) == (
        *(description["name"], description["driver"], description["vbios"], description["power_limit_w"]),
    )
    assert (1980, True, False, False) == (
        description["clock_max_mhz"],
        description["ecc"],
        description["mig"],
        description["persistence"],
    )
    assert (True, 0.1, None) == (description["energy_counter"], description["energy_lag_s"], description["assumed"])


def test_the_gpu_is_the_one_that_children_see(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process's choice of visible GPUs precedes the accelerator's number, as for its children."""
    gpus = [build_gpu(number, TALKATIVE) for number in range(3)]
    by_number = open_chip(monkeypatch, tmp_path, *gpus, accelerator="cuda:2").describe()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    by_choice = open_chip(monkeypatch, tmp_path, *gpus, accelerator="cuda:2").describe()

    assert ("GPU-22aa-0000", "GPU-11aa-0000") == (by_number["uuid"], by_choice["uuid"])


def test_a_slice_has_memory_of_its_own_and_no_power(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Power, energy and use are those of all slices together, clocks those of the shared GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-77bb")
    chip = open_chip(
        monkeypatch, tmp_path, build_gpu(0, {**TALKATIVE, "nvmlDeviceGetMigMode": [1, 1], "slices": [{}, SLICE]})
    )
    reading = chip.read()

    assert (1 << 30, {9: 5}, 1755.0) == (reading.memory_used_bytes, reading.process_memory_bytes, reading.clock_mhz)
    assert (None, None, None) == (reading.power_w, reading.energy_j, reading.busy_percent)
    assert ("MIG-77bb", True, False) == (
        *(chip.describe()["uuid"], chip.describe()["mig"]),
        chip.describe()["energy_counter"],
    )


@pytest.mark.parametrize(
    ("pynvml", "problem"),
    [
        (None, "pip install nvidia-ml-py"),
        (Pynvml([], {"nvmlInit": "Library Not Found"}), "Library Not Found; it is part of NVIDIA's driver"),
        (Pynvml([build_gpu(0)]), r"^no GPU '4'.*NVML lists 0 \(GPU-00aa-0000\)"),
    ],
)
def test_without_the_gpu_there_is_a_problem_and_no_chip(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pynvml: Pynvml | None, problem: str
) -> None:
    """The problem of a missing library, driver or GPU names it, and the GPUs that are there."""
    monkeypatch.setitem(sys.modules, "pynvml", pynvml)

    assert None is telemetry.open("cuda:4", tmp_path)
    assert re.search(problem, telemetry.find_problem("cuda:4", tmp_path))


def test_a_working_gpu_has_no_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The answer is an empty text."""
    monkeypatch.setitem(sys.modules, "pynvml", Pynvml([build_gpu(0)]))

    assert "" == telemetry.find_problem("cuda:0", tmp_path)
