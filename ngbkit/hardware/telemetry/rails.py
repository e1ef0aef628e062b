"""Supply rails of a Jetson, read from its INA3221 sensors."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ngbkit.hardware.environment import read_number, read_text

# The rail that feeds all others of the module, if the board has a sensor on it.
_INPUTS = ("VDD_IN", "POM_5V_IN")
# On an AGX Orin the second rail feeds the first, and both have sensors: its power must not count twice.
_FED_FROM = {"VDDQ_VDD2_1V8AO": "VIN_SYS_5V0"}
_MICRO, _MILLI = 1e-6, 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rail:
    """One channel of a sensor."""

    # NVIDIA's name of it: ``VDD_GPU_SOC``.
    name: str
    # The files whose product, times `scale`, is its power in watts.
    files: tuple[str, ...]
    scale: float
    # The file that reads 1 while the current is above its critical limit; ``""`` without one.
    alarm: str = ""

    def read_watts(self) -> float | None:
        """Read its power now; None if the sensor does not answer."""
        readings = [read_number_fast(file) for file in self.files]
        values = [reading for reading in readings if reading is not None]
        return self.scale * math.prod(values) if len(values) == len(readings) else None


def find_rails(root: Path) -> list[Rail]:
    """Find all rails with a sensor: hwmon's from JetPack 5 on, industrial I/O's before."""
    return [*_find_hwmon_rails(root / "sys/class/hwmon"), *_find_iio_rails(root / "sys/bus/i2c/drivers")]


def select_inputs(rails: Sequence[Rail]) -> list[Rail]:
    """Select the rails that add up to the measured input of the module, each watt once.

    An AGX board has no sensor on its input: the sum of its rails omits the carrier board and conversion losses, and is
    less than a meter at the plug shows.
    """
    names = {rail.name for rail in rails}
    inputs = [rail for rail in rails if rail.name in _INPUTS]
    return inputs or [rail for rail in rails if _FED_FROM.get(rail.name) not in names]


def read_update_interval_s(root: Path) -> float | None:
    """Read how long the slowest sensor takes to update all its channels; None if none reports it."""
    intervals = [read_number(folder / "update_interval") for folder in _find_sensors(root / "sys/class/hwmon")]
    return max((interval * _MILLI for interval in intervals if interval), default=None)


def read_number_fast(file: str) -> int | None:
    """Read a kernel file that contains one integer, four times as fast as `environment.read_number`."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(handle, 64))
        finally:
            os.close(handle)
    except (OSError, ValueError):
        return None


def _find_sensors(folder: Path) -> Iterator[Path]:
    sensors = sorted(folder.glob("hwmon[0-9]*"))
    return (sensor for sensor in sensors if read_text(sensor / "name").startswith("ina3221"))


def _find_hwmon_rails(folder: Path) -> Iterator[Rail]:
    for sensor in _find_sensors(folder):
        # Channels 1 to 3; in4 to in6 are voltages of the shunts, and in7 is their sum.
        for channel in "123":
            name = read_text(sensor / f"in{channel}_label")
            # An unconnected channel is named NC, has no name, or is switched off.
            if name in ("", "NC") or read_number(sensor / f"in{channel}_enable") == 0:
                continue
            alarm = sensor / f"curr{channel}_crit_alarm"
            power = sensor / f"power{channel}_input"
            files = [power] if power.exists() else [sensor / f"in{channel}_input", sensor / f"curr{channel}_input"]
            yield Rail(
                name=name,
                files=tuple(str(file) for file in files),
                # Microwatts, or millivolts times milliamperes.
                scale=_MICRO,
                alarm=str(alarm) if alarm.exists() else "",
            )


def _find_iio_rails(folder: Path) -> Iterator[Rail]:
    for label in sorted(folder.glob("ina3221*/*/iio:device*/rail_name_*")):
        name, channel, sensor = read_text(label), label.name.rpartition("_")[2], label.parent
        if name in ("", "NC"):
            continue
        power = sensor / f"in_power{channel}_input"
        if power.exists():
            yield Rail(name=name, files=(str(power),), scale=_MILLI)
        else:
            pair = (sensor / f"in_voltage{channel}_input", sensor / f"in_current{channel}_input")
            yield Rail(name=name, files=(str(pair[0]), str(pair[1])), scale=_MICRO)
