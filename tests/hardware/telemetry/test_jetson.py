"""Telemetry of a Jetson, from the sysfs of three releases."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from boards import AGX_ORIN, HWMON, ORIN_NX, THERMAL, XAVIER
from fakes import Pynvml, build_gpu
from recorded import record

from ngbkit.hardware import telemetry
from ngbkit.hardware.telemetry.jetson import JetsonChip


def open_chip(root: Path, files: dict[str, Any], accelerator: str = "cuda:0") -> telemetry.Chip:
    chip = telemetry.open(accelerator, record(root, files))
    assert chip is not None
    return chip


def test_an_agx_orin_is_read_from_hwmon_and_devfreq(tmp_path: Path) -> None:
    """The power of an AGX Orin is the sum of its rails, without the one that another feeds."""
    reading = open_chip(tmp_path, AGX_ORIN).read()

    assert 19.88 * 0.5 + 19.88 * 0.1 + 5.0 == pytest.approx(reading.power_w)
    assert (87.3, 918.0, 52.125) == (reading.busy_percent, reading.clock_mhz, reading.temperature_c)
    assert {"under-voltage": 1, "over-current": 52} == reading.events
    assert (frozenset(), None, None) == (reading.throttled, reading.memory_used_bytes, reading.energy_j)


def test_the_input_of_a_module_is_all_its_power(tmp_path: Path) -> None:
    """The sensor of a module's input gives its whole power, and the others are parts of it."""
    chip = open_chip(tmp_path, ORIN_NX)
    reading = chip.read()

    assert (10.0, 0.0, 306.0) == (pytest.approx(reading.power_w), reading.busy_percent, reading.clock_mhz)
    assert (["VDD_IN"], ["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"]) == (
        *(chip.describe()["power_rails"], chip.describe()["rails"]),
    )


def test_a_xavier_is_read_from_industrial_io(tmp_path: Path) -> None:
    """The sensors of a Xavier report power in milliwatts, and cooling counts as throttling."""
    reading = open_chip(tmp_path, XAVIER).read()

    assert 2 * (1.0 + 1.001 + 1.002) == pytest.approx(reading.power_w)
    assert (99.8, 1377.0, 40.0) == (reading.busy_percent, reading.clock_mhz, reading.temperature_c)
    assert {"thermal"} == reading.throttled


def test_power_is_voltage_times_current(tmp_path: Path) -> None:
    """The power of a sensor in industrial I/O is its voltage times its current."""
    sensor = "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0"
    rail = {"rail_name_0": "POM_5V_IN", "in_voltage0_input": 5000, "in_current0_input": 700}
    nano = {
        "proc/device-tree/compatible": "nvidia,tegra210",
        **{f"{sensor}/{name}": value for name, value in rail.items()},
    }

    assert 3.5 == pytest.approx(open_chip(tmp_path, nano, "cpu").read().power_w)


def test_the_power_of_a_channel_is_preferred(tmp_path: Path) -> None:
    """The power that a channel reports is preferred to voltage times current."""
    files = {**ORIN_NX, f"{HWMON}/hwmon1/power1_input": 7_250_000}

    assert 7.25 == pytest.approx(open_chip(tmp_path, files).read().power_w)


def test_a_channel_that_is_switched_off_is_no_rail(tmp_path: Path) -> None:
    """A channel that is switched off is no rail of the sum."""
    chip = open_chip(tmp_path, {**AGX_ORIN, f"{HWMON}/hwmon3/in3_enable": 0})

    # No rail with a sensor feeds the last one then.
    assert ["VDD_GPU_SOC", "VDD_CPU_CV", "VDDQ_VDD2_1V8AO"] == chip.describe()["power_rails"]


def test_the_cpu_of_a_jetson_has_the_boards_power(tmp_path: Path) -> None:
    """The CPU of a Jetson reads the board's power and the clock of its fastest cluster."""
    reading = open_chip(tmp_path, AGX_ORIN, "cpu").read()

    assert 19.88 * 0.6 + 5.0 == pytest.approx(reading.power_w)
    assert (None, 2201.6) == (reading.busy_percent, reading.clock_mhz)


def test_a_rail_that_does_not_answer_makes_power_unknown(tmp_path: Path) -> None:
    """An incomplete sum would be wrong; the other fields stay."""
    reading = open_chip(tmp_path, {**AGX_ORIN, f"{HWMON}/hwmon3/curr2_input": ""}).read()

    assert (None, 87.3) == (reading.power_w, reading.busy_percent)


@pytest.mark.parametrize(
    ("file", "value", "word"),
    [
        (f"{HWMON}/hwmon3/curr1_crit_alarm", 1, "over-current"),
        (f"{THERMAL}/cooling_device1/cur_state", 1, "thermal"),
        (f"{THERMAL}/cooling_device3/cur_state", 2, "thermal"),
    ],
)
def test_causes_of_throttling_are_reported(tmp_path: Path, file: str, value: int, word: str) -> None:
    """A running fan and a warning of a hot surface are none."""
    assert {word} == open_chip(tmp_path, {**AGX_ORIN, file: value}).read().throttled


def test_a_board_whose_zones_are_off_has_no_temperature(tmp_path: Path) -> None:
    """-256 °C is not one."""
    zones = {f"{THERMAL}/thermal_zone{index}/temp": -256000 for index in range(2)}

    assert None is open_chip(tmp_path, {**ORIN_NX, **zones}).read().temperature_c


def test_temperatures_are_cached_for_a_while(tmp_path: Path) -> None:
    """Each costs a message to another processor."""
    times = iter([10.0, 10.1, 10.3])
    chip = JetsonChip(record(tmp_path, AGX_ORIN), gpu=True, clock=lambda: next(times))
    before = chip.read().temperature_c
    record(tmp_path, {f"{THERMAL}/thermal_zone0/temp": 60000})

    assert (52.125, 52.125, 60.0) == (before, chip.read().temperature_c, chip.read().temperature_c)


def test_a_jetson_describes_itself(tmp_path: Path) -> None:
    """The description of a Jetson is plain JSON with its board, release, power mode and rails."""
    description = open_chip(tmp_path, AGX_ORIN).describe()

    assert description == json.loads(json.dumps(description))
    assert ("Jetson AGX Orin Developer Kit", "MODE_30W", 1300.5) == (
        *(description["name"], description["power_mode"], description["clock_max_mhz"]),
    )
    assert "R35 (release), REVISION: 4.1" in description["driver"]
    assert ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"] == description["power_rails"]
    assert (False, 0.027) == (description["energy_counter"], pytest.approx(description["energy_lag_s"]))


def test_a_jetson_that_hides_its_mode_is_described_without(tmp_path: Path) -> None:
    """A mode without a name has its number; sensors without an interval count as slow."""
    unnamed = open_chip(tmp_path / "a", {**ORIN_NX, "var/lib/nvpmodel/status": "pmode:0003"}).describe()
    hidden = open_chip(tmp_path / "b", XAVIER)

    assert ("3", None, 0.1) == (unnamed["power_mode"], hidden.describe()["power_mode"], hidden.lag_s)


def test_a_container_on_a_jetson_may_see_no_device_tree(tmp_path: Path) -> None:
    """A Jetson without a device tree is identified by its GPU."""
    files = {name: text for name, text in AGX_ORIN.items() if not name.startswith("proc/")}

    assert telemetry.open("cuda:0", record(tmp_path / "a", files)) is not None
    assert None is telemetry.open("cpu", record(tmp_path / "b", {"sys/class/devfreq/fb000000.gpu/cur_freq": 1}))


def test_a_jetson_without_its_own_gpu_may_have_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML reads one in a slot; if that fails, the board remains."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    root = record(tmp_path, {name: text for name, text in AGX_ORIN.items() if "ga10b" not in name})
    monkeypatch.setitem(sys.modules, "pynvml", Pynvml([build_gpu(0)]))
    slotted = telemetry.open("cuda:0", root)
    monkeypatch.setitem(sys.modules, "pynvml", Pynvml([]))
    alone = telemetry.open("cuda:0", root)

    assert ("NVML", "sysfs") == (slotted.describe()["read_with"], alone.describe()["read_with"])


def test_a_jetson_has_no_problem(tmp_path: Path) -> None:
    """A Jetson has telemetry for its CPU and its GPU without a problem."""
    root = record(tmp_path, ORIN_NX)

    assert ("", "") == (telemetry.find_problem("cpu", root), telemetry.find_problem("cuda:0", root))


def test_a_tegra_without_files_is_no_chip(tmp_path: Path) -> None:
    """A Tegra without files, such as an emulated one, is no chip."""
    assert None is telemetry.open("cpu", record(tmp_path, {"proc/device-tree/compatible": "nvidia,tegra234"}))
