"""Use of a chip over all turns of one trial, computed from the readings of each."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ngbkit.hardware.telemetry.reading import Reading

# The maximum relative uncertainty of a reported energy.
_PRECISION = 0.05
# The standard deviation of the difference of two delays, each uniform in [0, 1].
_SPREAD = 1 / math.sqrt(6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Use of a chip during some turns; a value that the chip does not report is None."""

    # The total length of the turns.
    turns_s: float = 0.0
    # The number of readings.
    samples: int = 0
    # Energy of all turns together, accurate to 5 %; None if the readings are not that accurate. See `Totals`.
    energy_j: float | None = None
    # The mean share of the time in which anything ran on the GPU. Each reading is itself a mean, with NVML of the last
    # 1/6 s to 1 s: for shorter turns it includes work before the turn.
    gpu_percent: float | None = None
    # The maximum GPU memory in use by any process.
    peak_memory_bytes: int | None = None
    # The maximum of the trial's own processes, as far as the driver reports it.
    process_memory_bytes: int | None = None
    # The median clock, and the lowest.
    clock_mhz: float | None = None
    lowest_clock_mhz: float | None = None
    # The highest.
    temperature_c: float | None = None
    # Every cause that slowed it down at any moment of a turn, in plain words.
    throttled: frozenset[str] = frozenset()

    def to_facts(self) -> dict[str, Any]:
        """Convert the values without a field of their own in a measurement to plain JSON."""
        return {
            "turns_s": self.turns_s,
            "samples": self.samples,
            "process_memory_bytes": self.process_memory_bytes,
            "clock_mhz": self.clock_mhz,
            "lowest_clock_mhz": self.lowest_clock_mhz,
            "temperature_c": self.temperature_c,
            "throttled": sorted(self.throttled),
        }


@dataclass(slots=True, kw_only=True)
class Totals:
    """Adds up turns.

    **Energy.** A chip updates its power and its energy counter only every so often: a reading is delayed by up to the
    chip's lag. The counter's difference between the two ends of a turn would therefore include work before the turn,
    other compilers' turns or idling, and omit the turn's own last moments. That does not average out over turns,
    however many: its share is half a lag over the length of a turn. So the readings of a turn's first lag are
    discarded; every later reading belongs to the turn. The energy between those readings (the counter's difference, or
    else the area under the power, by trapezoids) gives a mean power, which is assumed for the whole turns. A turn that
    is not longer than the lag contributes nothing.

    The remaining error is that both ends of the counter's difference are delayed by random parts of a lag. Over n turns
    with s seconds between such readings that makes a standard deviation of lag * sqrt(n / 6) / s of the energy. Above
    5 % the energy is None. With NVML's lag of 0.1 s, one turn of 0.92 s suffices, or 67 of 0.2 s, and no number of
    turns of 0.1 s: trials of short calls need one long turn for the sake of their energy.

    **The rest.** The first reading of a turn reports the time before it, so that clocks, use and throttling come from
    the later ones. An event that is only counted belongs to a turn if its count rises in it.
    """

    # The maximum delay of power and energy.
    lag_s: float
    _turns_s: float = 0.0
    _samples: int = 0
    _steady_s: float = 0.0
    _steady_j: float = 0.0
    _steady_turns: int = 0
    _busy_s: float = 0.0
    _busy: float = 0.0
    _memory: list[int] = field(default_factory=list)
    _process_memory: list[int] = field(default_factory=list)
    _clocks: Counter[float] = field(default_factory=Counter)
    _temperatures: list[float] = field(default_factory=list)
    _throttled: set[str] = field(default_factory=set)

    def add(self, readings: Sequence[Reading], process_memory: Sequence[int] = ()) -> None:
        """Add the readings of one turn, in order, from before its first call until after its last.

        `process_memory` is the GPU memory of the trial's own processes in each reading that reports it.
        """
        self._samples += len(readings)
        self._temperatures += _find_highest(reading.temperature_c for reading in readings)
        self._memory += _find_highest(reading.memory_used_bytes for reading in readings)
        self._process_memory += _find_highest(process_memory)
        if len(readings) < 2:
            return
        first, *later = readings
        self._turns_s += later[-1].time_s - first.time_s
        self._add_energy([reading for reading in readings if reading.time_s - first.time_s >= self.lag_s])
        for previous, reading in itertools.pairwise(readings):
            if reading.busy_percent is not None:
                self._busy += reading.busy_percent * (reading.time_s - previous.time_s)
                self._busy_s += reading.time_s - previous.time_s
        self._clocks.update(reading.clock_mhz for reading in later if reading.clock_mhz is not None)
        self._throttled.update(
            *(reading.throttled for reading in later), _find_increases(first.events, later[-1].events)
        )

    def summarize(self) -> Use:
        """Summarize all turns so far."""
        clocks = list(self._clocks.elements())
        return Use(
            turns_s=self._turns_s,
            samples=self._samples,
            energy_j=self._compute_energy(),
            gpu_percent=self._busy / self._busy_s if self._busy_s else None,
            peak_memory_bytes=max(self._memory, default=None),
            process_memory_bytes=max(self._process_memory, default=None),
            clock_mhz=statistics.median(clocks) if clocks else None,
            lowest_clock_mhz=min(clocks, default=None),
            temperature_c=max(self._temperatures, default=None),
            throttled=frozenset(self._throttled),
        )

    def _add_energy(self, conclusive: Sequence[Reading]) -> None:
        energy = _subtract_counts(conclusive) or _integrate_power(conclusive)
        if energy is not None:
            seconds, joules = energy
            self._steady_s += seconds
            self._steady_j += joules
            self._steady_turns += 1

    def _compute_energy(self) -> float | None:
        if not self._steady_s:
            return None
        uncertainty = self.lag_s * math.sqrt(self._steady_turns) * _SPREAD / self._steady_s
        return self._steady_j / self._steady_s * self._turns_s if uncertainty <= _PRECISION else None


def _subtract_counts(readings: Sequence[Reading]) -> tuple[float, float] | None:
    """Compute seconds and joules between the first and the last count; None without two, or after a counter reset."""
    counts = [(reading.time_s, reading.energy_j) for reading in readings if reading.energy_j is not None]
    if len(counts) < 2 or counts[-1][1] < counts[0][1]:
        return None
    return counts[-1][0] - counts[0][0], counts[-1][1] - counts[0][1]


def _integrate_power(readings: Sequence[Reading]) -> tuple[float, float] | None:
    """Compute seconds and joules between the first and the last power; None without two."""
    powers = [(reading.time_s, reading.power_w) for reading in readings if reading.power_w is not None]
    if len(powers) < 2:
        return None
    area = sum((t1 - t0) * (p0 + p1) / 2 for (t0, p0), (t1, p1) in itertools.pairwise(powers))
    return powers[-1][0] - powers[0][0], area


def _find_highest(values: Iterable[Any]) -> list[Any]:
    """Find the highest value that is not None, as a list; empty if there is none."""
    reported = [value for value in values if value is not None]
    return [max(reported)] if reported else []


def _find_increases(first: Mapping[str, int], last: Mapping[str, int]) -> set[str]:
    return {cause for cause, count in last.items() if count > first.get(cause, count)}
