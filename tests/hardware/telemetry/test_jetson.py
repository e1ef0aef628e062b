"""A Jetson's sysfs, as three releases lay it out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from boards import AGX_ORIN, HWMON, ORIN_NX, THERMAL, XAVIER
from fakes import Pynvml, gpu
from recorded import record

from ngbkit.hardware import telemetry
from ngbkit.hardware.telemetry.jetson import JetsonChip


def opened(root: Path, files: dict[str, Any], accelerator: str = "cuda:0") -> telemetry.Chip:
    chip = telemetry.open(accelerator, record(root, files))
    assert chip is not None
    return chip


def test_an_agx_orin_is_read_from_hwmon_and_devfreq(tmp_path: Path) -> None:
    """Its power is the sum of its rails, the one that is fed from another counted once."""
    reading = opened(tmp_path, AGX_ORIN).read()

    assert 19.88 * 0.5 + 19.88 * 0.1 + 5.0 == pytest.approx(reading.power_w)
    assert (87.3, 918.0, 52.125) == (reading.busy_percent, reading.clock_mhz, reading.temperature_c)
    assert {"under-voltage": 1, "over-current": 52} == reading.events
    assert (frozenset(), None, None) == (reading.throttled, reading.memory_used_bytes, reading.energy_j)


def test_the_input_of_a_module_is_all_its_power(tmp_path: Path) -> None:
    """Where it has a sensor, the others are parts of it."""
    chip = opened(tmp_path, ORIN_NX)
    reading = chip.read()

    assert (10.0, 0.0, 306.0) == (pytest.approx(reading.power_w), reading.busy_percent, reading.clock_mhz)
    assert (["VDD_IN"], ["VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"]) == (
        *(chip.describe()["power_rails"], chip.describe()["rails"]),
    )


def test_a_xavier_is_read_from_industrial_io(tmp_path: Path) -> None:
    """Its sensors tell power in milliwatts; a temperature that is made up is left out; cooling is throttling."""
    reading = opened(tmp_path, XAVIER).read()

    assert 2 * (1.0 + 1.001 + 1.002) == pytest.approx(reading.power_w)
    assert (99.8, 1377.0, 40.0) == (reading.busy_percent, reading.clock_mhz, reading.temperature_c)
    assert {"thermal"} == reading.throttled


def test_a_sensor_without_power_tells_voltage_and_current(tmp_path: Path) -> None:
    """Of industrial I/O too."""
    sensor = "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0"
    rail = {"rail_name_0": "POM_5V_IN", "in_voltage0_input": 5000, "in_current0_input": 700}
    nano = {"proc/device-tree/compatible": "nvidia,tegra210", **{f"{sensor}/{name}": at for name, at in rail.items()}}

    assert 3.5 == pytest.approx(opened(tmp_path, nano, "cpu").read().power_w)


def test_a_channel_with_power_of_its_own_is_taken_at_its_word(tmp_path: Path) -> None:
    """In microwatts, as hwmon counts."""
    files = {**ORIN_NX, f"{HWMON}/hwmon1/power1_input": 7_250_000}

    assert 7.25 == pytest.approx(opened(tmp_path, files).read().power_w)


def test_a_channel_that_is_switched_off_is_no_rail(tmp_path: Path) -> None:
    """It would not answer, and with it the sum would be unknown."""
    chip = opened(tmp_path, {**AGX_ORIN, f"{HWMON}/hwmon3/in3_enable": 0})

    # Nothing that is measured feeds the last one then.
    assert ["VDD_GPU_SOC", "VDD_CPU_CV", "VDDQ_VDD2_1V8AO"] == chip.describe()["power_rails"]


def test_the_cpu_of_a_jetson_has_the_boards_power(tmp_path: Path) -> None:
    """And the clock of its fastest cluster, but nothing of the GPU."""
    reading = opened(tmp_path, AGX_ORIN, "cpu").read()

    assert 19.88 * 0.6 + 5.0 == pytest.approx(reading.power_w)
    assert (None, 2201.6) == (reading.busy_percent, reading.clock_mhz)


def test_a_rail_that_does_not_answer_makes_power_unknown(tmp_path: Path) -> None:
    """A part of the sum would pass for the whole; the other fields stay."""
    reading = opened(tmp_path, {**AGX_ORIN, f"{HWMON}/hwmon3/curr2_input": ""}).read()

    assert (None, 87.3) == (reading.power_w, reading.busy_percent)


@pytest.mark.parametrize(
    ("file", "value", "word"),
    [
        (f"{HWMON}/hwmon3/curr1_crit_alarm", 1, "over-current"),
        (f"{THERMAL}/cooling_device1/cur_state", 1, "thermal"),
        (f"{THERMAL}/cooling_device3/cur_state", 2, "thermal"),
    ],
)
def test_what_slows_the_board_is_told(tmp_path: Path, file: str, value: int, word: str) -> None:
    """A fan that turns and a warning of a hot surface are not among it."""
    assert {word} == opened(tmp_path, {**AGX_ORIN, file: value}).read().throttled


def test_a_board_whose_zones_are_off_has_no_temperature(tmp_path: Path) -> None:
    """-256 °C is not one."""
    zones = {f"{THERMAL}/thermal_zone{at}/temp": -256000 for at in range(2)}

    assert None is opened(tmp_path, {**ORIN_NX, **zones}).read().temperature_c


def test_temperatures_are_read_anew_after_a_while(tmp_path: Path) -> None:
    """Each is a message to another processor."""
    times = iter([10.0, 10.1, 10.3])
    chip = JetsonChip(record(tmp_path, AGX_ORIN), gpu=True, clock=lambda: next(times))
    before = chip.read().temperature_c
    record(tmp_path, {f"{THERMAL}/thermal_zone0/temp": 60000})

    assert (52.125, 52.125, 60.0) == (before, chip.read().temperature_c, chip.read().temperature_c)


def test_a_jetson_describes_itself(tmp_path: Path) -> None:
    """Board, release, power mode and rails, as plain JSON."""
    about = opened(tmp_path, AGX_ORIN).describe()

    assert about == json.loads(json.dumps(about))
    assert ("Jetson AGX Orin Developer Kit", "MODE_30W", 1300.5) == (
        *(about["name"], about["power_mode"], about["clock_max_mhz"]),
    )
    assert "R35 (release), REVISION: 4.1" in about["driver"]
    assert ["VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"] == about["power_rails"]
    assert (False, 0.027) == (about["energy_counter"], pytest.approx(about["energy_lag_s"]))


def test_a_jetson_that_hides_its_mode_is_described_without(tmp_path: Path) -> None:
    """A mode without a name is told by its number; sensors without an interval are taken to be slow."""
    unnamed = opened(tmp_path / "a", {**ORIN_NX, "var/lib/nvpmodel/status": "pmode:0003"}).describe()
    hidden = opened(tmp_path / "b", XAVIER)

    assert ("3", None, 0.1) == (unnamed["power_mode"], hidden.describe()["power_mode"], hidden.lag_s)


def test_a_container_on_a_jetson_may_see_no_device_tree(tmp_path: Path) -> None:
    """Its GPU gives it away; another maker's board with a GPU is none."""
    seen = {name: text for name, text in AGX_ORIN.items() if not name.startswith("proc/")}

    assert telemetry.open("cuda:0", record(tmp_path / "a", seen)) is not None
    assert None is telemetry.open("cpu", record(tmp_path / "b", {"sys/class/devfreq/fb000000.gpu/cur_freq": 1}))


def test_a_jetson_without_its_own_gpu_may_have_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in a slot is NVML's; where that fails, the board is what is left."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    root = record(tmp_path, {name: text for name, text in AGX_ORIN.items() if "ga10b" not in name})
    monkeypatch.setitem(sys.modules, "pynvml", Pynvml([gpu(0)]))
    slotted = telemetry.open("cuda:0", root)
    monkeypatch.setitem(sys.modules, "pynvml", Pynvml([]))
    alone = telemetry.open("cuda:0", root)

    assert slotted is not None
    assert alone is not None
    assert ("NVML", "sysfs") == (slotted.describe()["read_with"], alone.describe()["read_with"])


def test_an_ordinary_cpu_tells_nothing(tmp_path: Path) -> None:
    """And nothing is lacking there; nor on a Jetson."""
    assert None is telemetry.open("cpu", tmp_path)
    assert ("", "") == (telemetry.lacks("cpu", tmp_path), telemetry.lacks("cuda:0", record(tmp_path / "a", ORIN_NX)))


def test_a_tegra_that_shows_nothing_is_no_chip(tmp_path: Path) -> None:
    """An emulated one, for example."""
    assert None is telemetry.open("cpu", record(tmp_path, {"proc/device-tree/compatible": "nvidia,tegra234"}))
