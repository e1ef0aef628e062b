"""A Jetson, read from its sysfs: power of its rails, load and clock of its GPU, temperatures, over-current."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ngbkit.hardware.environment import ROOT, number, read
from ngbkit.hardware.telemetry import rails
from ngbkit.hardware.telemetry.rails import quick_number
from ngbkit.hardware.telemetry.reading import Reading, Seldom

# Its name in devfreq: by the kind of chip up to JetPack 5, `gpu` on the first and the newest boards. Without the
# address, boards of other makers would match.
_GPU = re.compile(r"(17|57)000000\.(gpu|gm20b|gp10b|gv11b|ga10b)|gpu-gpc-0")
# Longer than any averaging that NVIDIA sets its sensors to, for those that do not tell theirs.
_LAG_S = 0.1
# What Orin's three counters count (NVIDIA's guide to its power and performance).
_EVENTS = {"oc1": "under-voltage"}
_OVER_CURRENT = "over-current"
# Cooling devices that hold clocks down; fans and mere alerts are others.
_SLOWING = re.compile(r"cpufreq|devfreq|throttle|balanced")
_MODE = re.compile(r"POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)")
_STATUS = re.compile(r"pmode:(\d+)")


def is_jetson(root: Path = ROOT) -> bool:
    """Whether this is one: by its device tree, and in a container, which may not see that, by its GPU."""
    return "nvidia,tegra" in _tree(root, "compatible") or _gpu_folder(root) is not None


def find(root: Path = ROOT, *, gpu: bool) -> JetsonChip | None:
    """The board, and its GPU where that is what computes; None where it tells nothing."""
    chip = JetsonChip(root, gpu=gpu)
    return chip if chip.tells() else None


class JetsonChip:
    """A Jetson's module: its power is that of CPU, GPU and memory together, whichever of them computes.

    Its GPU has no memory of its own, and no counter of energy. Temperatures, alarms and cooling are up to 0.2 s old;
    what Orin counts of over-current never is: that is in the `events` of a reading.

    Parameters
    ----------
    root
        Where /proc, /sys, /etc and /var hang.
    gpu
        Whether the GPU computes. Otherwise the clock is that of the fastest CPU cluster, and the GPU's load is None.
    clock
        Gives the time of a reading, in seconds.

    Attributes
    ----------
    has_gpu
        Whether the GPU computes and is the Tegra's own.
    """

    def __init__(self, root: Path, *, gpu: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._clock = root, clock
        self._rails = rails.find(root)
        self._whole = rails.whole(self._rails)
        self._alarms = [rail.alarm for rail in self._rails if rail.alarm]
        folder = _gpu_folder(root) if gpu else None
        self.has_gpu = folder is not None
        self._load = _load_file(root, folder) if folder is not None else None
        self._clocks, self._clock_scale = _clock_files(root, folder, gpu)
        self._counters = [
            (_EVENTS.get(file.name.partition("_")[0], _OVER_CURRENT), str(file))
            for file in sorted((root / "sys/class/hwmon").glob("hwmon[0-9]*/oc[0-9]*_event_cnt"))
        ]
        thermal = root / "sys/class/thermal"
        self._zones = [
            str(zone / "temp")
            for zone in sorted(thermal.glob("thermal_zone[0-9]*"))
            # Its value is made up on a TX: 100 °C, always.
            if not read(zone / "type").startswith("PMIC")
        ]
        self._cooling = [
            str(one / "cur_state")
            for one in sorted(thermal.glob("cooling_device[0-9]*"))
            if _SLOWING.search(read(one / "type"))
        ]
        # Each temperature is a message to another processor, and each alarm one over the sensors' bus.
        self._slow = Seldom(self._read_slow)

    @property
    def lag_s(self) -> float:
        """The longest time that the power may be behind, in seconds."""
        return rails.update_s(self._root) or _LAG_S

    def tells(self) -> bool:
        """Whether anything can be read at all."""
        return bool(self._rails or self._load or self._clocks or self._zones)

    def read(self) -> Reading:
        """The board now."""
        now = self._clock()
        watts = [rail.watts() for rail in self._whole]
        known = [one for one in watts if one is not None]
        load = None if self._load is None else quick_number(self._load)
        clocks = [one for one in map(quick_number, self._clocks) if one is not None]
        temperature, throttled = self._slow.at(now)
        return Reading(
            at_s=now,
            power_w=sum(known) if known and len(known) == len(watts) else None,
            busy_percent=None if load is None else load / 10,
            clock_mhz=max(clocks) / self._clock_scale if clocks else None,
            temperature_c=temperature,
            throttled=throttled,
            events=self._count(),
        )

    def describe(self) -> dict[str, Any]:
        """Board, release, power mode, rails and highest clock, as plain JSON; what is not told is None."""
        highest = [number(Path(file).with_name(_HIGHEST[Path(file).name])) for file in self._clocks]
        return {
            "name": _tree(self._root, "model") or None,
            "read_with": "sysfs",
            "driver": read(self._root / "etc/nv_tegra_release").partition("\n")[0].strip("# ") or None,
            "power_mode": power_mode(self._root),
            "power_rails": [rail.name for rail in self._whole],
            "rails": [rail.name for rail in self._rails],
            "clock_max_mhz": max((one / self._clock_scale for one in highest if one is not None), default=None),
            "energy_counter": False,
            "energy_lag_s": self.lag_s,
        }

    def _read_slow(self) -> tuple[float | None, frozenset[str]]:
        """The hottest temperature, and what holds clocks down."""
        found = [one for one in map(quick_number, self._zones) if one is not None]
        holding = {_OVER_CURRENT: self._alarms, "thermal": self._cooling}
        throttled = frozenset(word for word, files in holding.items() if any(map(quick_number, files)))
        # A zone that is switched off answers with -256 °C.
        return max((one / 1000 for one in found if one > 0), default=None), throttled

    def _count(self) -> dict[str, int]:
        events: Counter[str] = Counter()
        for word, file in self._counters:
            events[word] += quick_number(file) or 0
        return dict(events)


def power_mode(root: Path = ROOT) -> str | None:
    """The name of the mode that `nvpmodel` has set: ``MAXN``; its number where it has no name; None where unknown."""
    found = _STATUS.search(read(root / "var/lib/nvpmodel/status"))
    if found is None:
        return None
    names = {int(mode): str(name) for mode, name in _MODE.findall(read(root / "etc/nvpmodel.conf"))}
    return names.get(int(found[1]), str(int(found[1])))


# Where the highest value of a clock is told.
_HIGHEST = {"cur_freq": "max_freq", "scaling_cur_freq": "scaling_max_freq"}


def _clock_files(root: Path, folder: Path | None, gpu: bool) -> tuple[list[str], float]:
    """Files that hold the clock, and how many of their units are a megahertz."""
    if gpu:
        return ([str(folder / "cur_freq")] if folder is not None else []), 1e6
    clusters = (root / "sys/devices/system/cpu/cpufreq").glob("policy[0-9]*/scaling_cur_freq")
    return [str(file) for file in sorted(clusters)], 1e3


def _gpu_folder(root: Path) -> Path | None:
    """The GPU in devfreq; one that is not part of the Tegra chip is not there."""
    return next((one for one in sorted((root / "sys/class/devfreq").glob("*")) if _GPU.fullmatch(one.name)), None)


def _load_file(root: Path, folder: Path) -> str | None:
    """The file that holds the GPU's load, in tenths of a percent."""
    links = (root / "sys/devices/gpu.0/load", root / "sys/devices/platform/gpu.0/load")
    return next((str(one) for one in (folder / "device/load", *links) if one.exists()), None)


def _tree(root: Path, name: str) -> str:
    """A property of the device tree; several texts in one are put apart by spaces."""
    found = read(root / "proc/device-tree" / name) or read(root / "sys/firmware/devicetree/base" / name)
    return found.replace("\0", " ")
