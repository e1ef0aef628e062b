"""Energy of a CPU by its own counters (RAPL), which Linux offers in powercap; AMD's have the same files."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngbkit.hardware.environment import read_chip, read_number, read_text
from ngbkit.hardware.telemetry.rails import read_number_fast
from ngbkit.hardware.telemetry.reading import Reading

# A package, and a domain of it. The same package by another bus is called intel-rapl-mmio.
_PACKAGE, _DOMAIN = re.compile(r"intel-rapl:\d+"), re.compile(r"intel-rapl:\d+:\d+")
_MICRO = 1e-6
# Counters are updated every millisecond.
_LAG_S = 0.001
# Often enough that none wraps around twice: AMD's do after 65 kJ. Ends of turns are read anyway.
_PERIOD_S = 30.0


@dataclass(slots=True, kw_only=True)
class Counter:
    """One counter, which begins anew after its range; `read_joules` counts on."""

    name: str
    file: str
    # In microjoules; None where the kernel does not report it.
    range_uj: int | None
    _total_uj: int = 0
    _last_uj: int | None = field(default=None)

    def read_joules(self) -> float | None:
        """Read the joules since the first reading; None if the counter does not answer."""
        count = read_number_fast(self.file)
        if count is None:
            return None
        step = 0 if self._last_uj is None else count - self._last_uj
        # Without a range a smaller count is a reset, which makes the total fall: no energy is derived from that.
        self._total_uj += step + self.range_uj if step < 0 and self.range_uj else step
        self._last_uj = count
        return self._total_uj * _MICRO


class CpuChip:
    """The packages of a machine with their memory: all of them, with all that runs and idles there.

    Cores and graphics (``core``, ``uncore``) are a part of their package, and the platform (``psys``) has the packages
    as a part of it: these are not counted.
    """

    lag_s = _LAG_S
    period_s = _PERIOD_S

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._clock = root, clock
        self._counters = list(_find_counters(root))

    def find_problem(self) -> str:
        """Explain why the energy cannot be read, and what to do about it; ``""`` if it can."""
        if not self._counters:
            return (
                "no energy counter of the CPU: Linux's powercap lists no package (virtual machines have none; "
                "elsewhere load the driver: sudo modprobe intel_rapl_msr)"
            )
        for counter in self._counters:
            try:
                int(Path(counter.file).read_text())
            except PermissionError:
                return (
                    f"the energy counter of the CPU is readable by root alone ({counter.file}): until the next start, "
                    f"sudo chmod a+r {Path(counter.file).parents[1]}/intel-rapl:*/energy_uj allows it, to every user "
                    "of the machine (CVE-2020-8694 is why it is not the default)"
                )
            except (OSError, ValueError):
                return f"the energy counter of the CPU does not answer ({counter.file})"
        return ""

    def read(self) -> Reading:
        """Read all counters now; there is no energy if one of them does not answer."""
        now = self._clock()
        energies = [counter.read_joules() for counter in self._counters]
        joules = [energy for energy in energies if energy is not None]
        return Reading(time_s=now, energy_j=sum(joules) if len(joules) == len(energies) else None)

    def describe(self) -> dict[str, Any]:
        """Describe the counters, as plain JSON."""
        return {
            "name": read_chip(self._root),
            "read_with": "powercap",
            "domains": [counter.name for counter in self._counters],
            "energy_counter": True,
            "energy_lag_s": self.lag_s,
        }


def find_cpu(root: Path) -> CpuChip | str:
    """Find the counters of the CPU, or why they cannot be read."""
    chip = CpuChip(root)
    return chip.find_problem() or chip


def _find_counters(root: Path) -> Iterator[Counter]:
    """Find the counters of packages, and of the memory beside them."""
    folder = root / "sys/class/powercap"
    for zone in sorted(folder.glob("intel-rapl:*")):
        name = read_text(zone / "name")
        is_package = _PACKAGE.fullmatch(zone.name) and name.startswith("package")
        if is_package or (_DOMAIN.fullmatch(zone.name) and name == "dram"):
            owner = read_text(folder / zone.name.rpartition(":")[0] / "name")
            yield Counter(
                name=name if is_package else f"{owner} {name}",
                file=str(zone / "energy_uj"),
                range_uj=read_number(zone / "max_energy_range_uj"),
            )
