"""The supply rails of a Jetson, as its INA3221 sensors see them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ngbkit.hardware.environment import number, read

# The rail that feeds all others of the module, where the board has a sensor on it.
_INPUTS = ("VDD_IN", "POM_5V_IN")
# On an AGX Orin this rail is fed from that one, which is measured too: it is not to be counted twice.
_FED_FROM = {"VDDQ_VDD2_1V8AO": "VIN_SYS_5V0"}
_MICRO, _MILLI = 1e-6, 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Rail:
    """One channel of a sensor.

    Parameters
    ----------
    name
        As NVIDIA names it: ``VDD_GPU_SOC``.
    files
        What its power is the product of.
    scale
        From that product to watts.
    alarm
        The file that holds 1 while the current is above its critical limit; ``""`` where there is none.
    """

    name: str
    files: tuple[str, ...]
    scale: float
    alarm: str = ""

    def watts(self) -> float | None:
        """What goes through it now; None where the sensor does not answer."""
        found = [quick_number(file) for file in self.files]
        values = [one for one in found if one is not None]
        return self.scale * math.prod(values) if len(values) == len(found) else None


def find(root: Path) -> list[Rail]:
    """All rails with a sensor: hwmon's from JetPack 5 on, those of industrial I/O before."""
    return [*_hwmon(root / "sys/class/hwmon"), *_industrial(root / "sys/bus/i2c/drivers")]


def whole(rails: Sequence[Rail]) -> list[Rail]:
    """Those that together are all that goes into the module, as far as it is measured, and each watt once.

    An AGX board has no sensor on its input: the sum of its rails leaves out the carrier board and what is lost in
    conversion, and is less than a meter at the plug shows.
    """
    names = {rail.name for rail in rails}
    inputs = [rail for rail in rails if rail.name in _INPUTS]
    return inputs or [rail for rail in rails if _FED_FROM.get(rail.name) not in names]


def update_s(root: Path) -> float | None:
    """How long the slowest sensor takes to renew all its channels, in seconds; None where none tells."""
    found = [number(folder / "update_interval") for folder in _sensors(root / "sys/class/hwmon")]
    return max((one * _MILLI for one in found if one), default=None)


def quick_number(file: str) -> int | None:
    """A file of the kernel's that holds one whole number; four times as fast as `environment.number`."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(handle, 64))
        finally:
            os.close(handle)
    except (OSError, ValueError):
        return None


def _sensors(folder: Path) -> Iterator[Path]:
    return (one for one in sorted(folder.glob("hwmon[0-9]*")) if read(one / "name").startswith("ina3221"))


def _hwmon(folder: Path) -> Iterator[Rail]:
    for sensor in _sensors(folder):
        # Channels 1 to 3; in4 to in6 are voltages of the shunts, and in7 is their sum.
        for channel in "123":
            name = read(sensor / f"in{channel}_label")
            # A channel that is not connected is called so, has no name, or is switched off.
            if name in ("", "NC") or number(sensor / f"in{channel}_enable") == 0:
                continue
            alarm = sensor / f"curr{channel}_crit_alarm"
            told = [sensor / f"power{channel}_input"]
            files = told if told[0].exists() else [sensor / f"in{channel}_input", sensor / f"curr{channel}_input"]
            yield Rail(
                name=name,
                files=tuple(str(file) for file in files),
                # Microwatts, or millivolts times milliamperes.
                scale=_MICRO,
                alarm=str(alarm) if alarm.exists() else "",
            )


def _industrial(folder: Path) -> Iterator[Rail]:
    for label in sorted(folder.glob("ina3221*/*/iio:device*/rail_name_*")):
        name, channel, sensor = read(label), label.name.rpartition("_")[2], label.parent
        if name in ("", "NC"):
            continue
        power = sensor / f"in_power{channel}_input"
        if power.exists():
            yield Rail(name=name, files=(str(power),), scale=_MILLI)
        else:
            pair = (sensor / f"in_voltage{channel}_input", sensor / f"in_current{channel}_input")
            yield Rail(name=name, files=(str(pair[0]), str(pair[1])), scale=_MICRO)
