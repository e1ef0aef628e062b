"""Telemetry of a Jetson from its sysfs: power of its rails, load and clock of its GPU, temperatures, over-current."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ngbkit.hardware.environment import ROOT, read_number, read_text
from ngbkit.hardware.telemetry import rails
from ngbkit.hardware.telemetry.rails import read_number_fast
from ngbkit.hardware.telemetry.reading import PERIOD_S, CachedValue, Reading

# Its name in devfreq: by the kind of chip up to JetPack 5, `gpu` on the first and the newest boards. Without the
# address, boards of other makers would match.
_GPU = re.compile(r"(17|57)000000\.(gpu|gm20b|gp10b|gv11b|ga10b)|gpu-gpc-0")
# Longer than any averaging that NVIDIA configures, for sensors that do not report theirs.
_LAG_S = 0.1
# The causes of Orin's three event counters (NVIDIA's guide to its power and performance).
_EVENTS = {"oc1": "under-voltage"}
_OVER_CURRENT = "over-current"
# Cooling devices that lower clocks; the others are fans and mere alerts.
_SLOWING = re.compile(r"cpufreq|devfreq|throttle|balanced")
_MODE = re.compile(r"POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)")
_STATUS = re.compile(r"pmode:(\d+)")


def is_jetson(root: Path = ROOT) -> bool:
    """Return whether this is a Jetson, by its device tree, or by its GPU in a container without access to the tree."""
    return "nvidia,tegra" in _read_tree(root, "compatible") or _find_gpu_folder(root) is not None


def find_board(root: Path = ROOT, *, gpu: bool) -> JetsonChip | None:
    """Find the board, and its GPU if `gpu` computes; None if nothing of it is readable."""
    chip = JetsonChip(root, gpu=gpu)
    return chip if chip.is_readable() else None


class JetsonChip:
    """A Jetson's module: its power is that of CPU, GPU and memory together, whichever of them computes.

    Its GPU has no memory of its own, and no energy counter. Temperatures, alarms and cooling are up to 0.2 s old;
    Orin's over-current counts, in the `events` of a reading, are always current. Unless `gpu` computes, the clock is
    that of the fastest CPU cluster and the GPU's load is None. `clock` returns the time of a reading, in seconds.
    """

    def __init__(self, root: Path, *, gpu: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._clock = root, clock
        self._rails = rails.find_rails(root)
        self._inputs = rails.select_inputs(self._rails)
        self._alarms = [rail.alarm for rail in self._rails if rail.alarm]
        folder = _find_gpu_folder(root) if gpu else None
        # Whether the GPU computes and is the Tegra's own.
        self.has_gpu = folder is not None
        self._load = _find_load_file(root, folder) if folder is not None else None
        self._clocks, self._clock_scale = _find_clock_files(root, folder, gpu)
        self._counters = [
            (_EVENTS.get(file.name.partition("_")[0], _OVER_CURRENT), str(file))
            for file in sorted((root / "sys/class/hwmon").glob("hwmon[0-9]*/oc[0-9]*_event_cnt"))
        ]
        thermal = root / "sys/class/thermal"
        self._zones = [
            str(zone / "temp")
            for zone in sorted(thermal.glob("thermal_zone[0-9]*"))
            # On a TX its value is a constant 100 °C.
            if not read_text(zone / "type").startswith("PMIC")
        ]
        self._cooling = [
            str(device / "cur_state")
            for device in sorted(thermal.glob("cooling_device[0-9]*"))
            if _SLOWING.search(read_text(device / "type"))
        ]
        # Each temperature costs a message to another processor, and each alarm one over the sensors' bus.
        self._limits = CachedValue(self._read_limits)

    period_s = PERIOD_S

    @property
    def lag_s(self) -> float:
        """The maximum delay of the power, in seconds."""
        return rails.read_update_interval_s(self._root) or _LAG_S

    def is_readable(self) -> bool:
        """Return whether any sensor is readable."""
        return bool(self._rails or self._load or self._clocks or self._zones)

    def read(self) -> Reading:
        """Read the board now."""
        now = self._clock()
        powers = [rail.read_watts() for rail in self._inputs]
        watts = [power for power in powers if power is not None]
        load = None if self._load is None else read_number_fast(self._load)
        clocks = [clock for clock in map(read_number_fast, self._clocks) if clock is not None]
        temperature, throttled = self._limits.get(now)
        return Reading(
            time_s=now,
            power_w=sum(watts) if watts and len(watts) == len(powers) else None,
            busy_percent=None if load is None else load / 10,
            clock_mhz=max(clocks) / self._clock_scale if clocks else None,
            temperature_c=temperature,
            throttled=throttled,
            events=self._count_events(),
        )

    def describe(self) -> dict[str, Any]:
        """Describe board, release, power mode, rails and highest clock, as plain JSON; None if not reported."""
        limits = [read_number(Path(file).with_name(_HIGHEST[Path(file).name])) for file in self._clocks]
        return {
            "name": _read_tree(self._root, "model") or None,
            "read_with": "sysfs",
            "driver": read_text(self._root / "etc/nv_tegra_release").partition("\n")[0].strip("# ") or None,
            "power_mode": read_power_mode(self._root),
            "power_rails": [rail.name for rail in self._inputs],
            "rails": [rail.name for rail in self._rails],
            "clock_max_mhz": max((limit / self._clock_scale for limit in limits if limit is not None), default=None),
            "energy_counter": False,
            "energy_lag_s": self.lag_s,
        }

    def _read_limits(self) -> tuple[float | None, frozenset[str]]:
        """Read the hottest temperature, and the causes that lower clocks."""
        temperatures = [value for value in map(read_number_fast, self._zones) if value is not None]
        causes = {_OVER_CURRENT: self._alarms, "thermal": self._cooling}
        throttled = frozenset(cause for cause, files in causes.items() if any(map(read_number_fast, files)))
        # A zone that is switched off reads -256 °C.
        return max((value / 1000 for value in temperatures if value > 0), default=None), throttled

    def _count_events(self) -> dict[str, int]:
        events: Counter[str] = Counter()
        for cause, file in self._counters:
            events[cause] += read_number_fast(file) or 0
        return dict(events)


def read_power_mode(root: Path = ROOT) -> str | None:
    """Read the name of the mode that `nvpmodel` has set: ``MAXN``; its number if it has no name; None if unknown."""
    status = _STATUS.search(read_text(root / "var/lib/nvpmodel/status"))
    if status is None:
        return None
    mode = int(status[1])
    names = {int(number): str(name) for number, name in _MODE.findall(read_text(root / "etc/nvpmodel.conf"))}
    return names.get(mode, str(mode))


# The file with the highest value of a clock.
_HIGHEST = {"cur_freq": "max_freq", "scaling_cur_freq": "scaling_max_freq"}


def _find_clock_files(root: Path, folder: Path | None, gpu: bool) -> tuple[list[str], float]:
    """Find the files that contain the clock, and how many of their units are a megahertz."""
    if gpu:
        return ([str(folder / "cur_freq")] if folder is not None else []), 1e6
    clusters = (root / "sys/devices/system/cpu/cpufreq").glob("policy[0-9]*/scaling_cur_freq")
    return [str(file) for file in sorted(clusters)], 1e3


def _find_gpu_folder(root: Path) -> Path | None:
    """Find the Tegra chip's own GPU in devfreq, which lists no other GPU."""
    folders = sorted((root / "sys/class/devfreq").glob("*"))
    return next((folder for folder in folders if _GPU.fullmatch(folder.name)), None)


def _find_load_file(root: Path, folder: Path) -> str | None:
    """Find the file that contains the GPU's load, in tenths of a percent."""
    links = (root / "sys/devices/gpu.0/load", root / "sys/devices/platform/gpu.0/load")
    return next((str(file) for file in (folder / "device/load", *links) if file.exists()), None)


def _read_tree(root: Path, name: str) -> str:
    """Read a property of the device tree; a space separates several texts in one."""
    text = read_text(root / "proc/device-tree" / name) or read_text(root / "sys/firmware/devicetree/base" / name)
    return text.replace("\0", " ")
