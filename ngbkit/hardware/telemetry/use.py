"""What a chip did over all turns of one trial, from readings taken in each."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ngbkit.hardware.telemetry.reading import Reading

# How uncertain energy may be, relative to itself, and still be told.
_PRECISION = 0.05
# The standard deviation of the difference of two times that are each behind by anything up to 1.
_SPREAD = 1 / math.sqrt(6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a chip did during some turns; what it does not tell is None.

    Parameters
    ----------
    turns_s
        How long the turns were together.
    samples
        How many readings there were.
    energy_j
        What it consumed in all turns together, to 5 %; None where that cannot be told. See `Totals`.
    gpu_percent
        The mean share of the time in which anything ran on the GPU. Each reading is itself a mean, with NVML of the
        last 1/6 s to 1 s: of turns that are shorter than that, it tells also what ran before them.
    peak_memory_bytes
        The most GPU memory that was taken, by whoever took it.
    process_memory_bytes
        The most that the processes of the trial took, as far as the driver tells.
    clock_mhz, lowest_clock_mhz
        The median and the lowest clock.
    temperature_c
        The highest.
    throttled
        All that slowed it down at any moment of a turn, in plain words.
    """

    turns_s: float = 0.0
    samples: int = 0
    energy_j: float | None = None
    gpu_percent: float | None = None
    peak_memory_bytes: int | None = None
    process_memory_bytes: int | None = None
    clock_mhz: float | None = None
    lowest_clock_mhz: float | None = None
    temperature_c: float | None = None
    throttled: frozenset[str] = frozenset()

    def facts(self) -> dict[str, Any]:
        """What has no variable of its own in a measurement, as plain JSON."""
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
    """Adds turns up.

    **Energy.** A chip renews its power, and its counter of energy, only so often: what a reading tells is behind by
    anything up to the chip's lag. The counter at the two ends of a turn would therefore charge the turn with what ran
    before it, other compilers' turns or idling, and leave out its own last moments. That does not average out over
    turns, however many: its share is half a lag over the length of a turn. So the readings of a turn's first lag are
    left out; from there on everything that is read belongs to the turn. What was consumed between those readings (the
    counter's difference, or else the area under the power, by trapezoids) gives a mean power, which is taken to hold
    for the whole turns. A turn that is not longer than the lag tells nothing.

    What is left is that both ends of the counter's difference are behind by random parts of a lag. Over n turns with
    s seconds between such readings that makes a standard deviation of lag * sqrt(n / 6) / s of the energy. Above 5 %
    the energy is None. With NVML's lag of 0.1 s, one turn of 0.92 s suffices, or 67 of 0.2 s, and no number of turns
    of 0.1 s: trials of short calls need one long turn for the sake of their energy.

    **The rest.** The reading that begins a turn tells of what was before it; of clocks, use and throttling the later
    ones count. Events that are only counted belong to a turn if the count rose in it.

    Parameters
    ----------
    lag_s
        The longest time that power and energy may be behind.
    """

    lag_s: float
    _turns_s: float = 0.0
    _samples: int = 0
    _settled_s: float = 0.0
    _settled_j: float = 0.0
    _settled_turns: int = 0
    _busy_s: float = 0.0
    _busy: float = 0.0
    _memory: list[int] = field(default_factory=list)
    _own_memory: list[int] = field(default_factory=list)
    _clocks: Counter[float] = field(default_factory=Counter)
    _temperatures: list[float] = field(default_factory=list)
    _throttled: set[str] = field(default_factory=set)

    def add(self, readings: Sequence[Reading], own_memory: Sequence[int] = ()) -> None:
        """Add one turn.

        Parameters
        ----------
        readings
            Those of the turn, in order; the first is taken before its calls begin, the last after they end.
        own_memory
            The GPU memory of the trial's own processes, one a reading that tells it.
        """
        self._samples += len(readings)
        self._temperatures += _most(one.temperature_c for one in readings)
        self._memory += _most(one.memory_used_bytes for one in readings)
        self._own_memory += _most(own_memory)
        if len(readings) < 2:
            return
        first, *later = readings
        self._turns_s += later[-1].at_s - first.at_s
        self._add_energy([one for one in readings if one.at_s - first.at_s >= self.lag_s])
        for before, one in itertools.pairwise(readings):
            if one.busy_percent is not None:
                self._busy += one.busy_percent * (one.at_s - before.at_s)
                self._busy_s += one.at_s - before.at_s
        self._clocks.update(one.clock_mhz for one in later if one.clock_mhz is not None)
        self._throttled.update(*(one.throttled for one in later), _risen(first.events, later[-1].events))

    def use(self) -> Use:
        """All turns so far."""
        clocks = list(self._clocks.elements())
        return Use(
            turns_s=self._turns_s,
            samples=self._samples,
            energy_j=self._energy(),
            gpu_percent=self._busy / self._busy_s if self._busy_s else None,
            peak_memory_bytes=max(self._memory, default=None),
            process_memory_bytes=max(self._own_memory, default=None),
            clock_mhz=statistics.median(clocks) if clocks else None,
            lowest_clock_mhz=min(clocks, default=None),
            temperature_c=max(self._temperatures, default=None),
            throttled=frozenset(self._throttled),
        )

    def _add_energy(self, settled: Sequence[Reading]) -> None:
        consumed = _counted(settled) or _integrated(settled)
        if consumed is not None:
            seconds, joules = consumed
            self._settled_s += seconds
            self._settled_j += joules
            self._settled_turns += 1

    def _energy(self) -> float | None:
        if not self._settled_s:
            return None
        uncertain = self.lag_s * math.sqrt(self._settled_turns) * _SPREAD / self._settled_s
        return self._settled_j / self._settled_s * self._turns_s if uncertain <= _PRECISION else None


def _counted(readings: Sequence[Reading]) -> tuple[float, float] | None:
    """Seconds and joules between the first and the last count; None without two, or where the counter began anew."""
    counts = [(one.at_s, one.energy_j) for one in readings if one.energy_j is not None]
    if len(counts) < 2 or counts[-1][1] < counts[0][1]:
        return None
    return counts[-1][0] - counts[0][0], counts[-1][1] - counts[0][1]


def _integrated(readings: Sequence[Reading]) -> tuple[float, float] | None:
    """Seconds and joules between the first and the last power; None without two."""
    powers = [(one.at_s, one.power_w) for one in readings if one.power_w is not None]
    if len(powers) < 2:
        return None
    area = sum((t1 - t0) * (p0 + p1) / 2 for (t0, p0), (t1, p1) in itertools.pairwise(powers))
    return powers[-1][0] - powers[0][0], area


def _most(values: Any) -> list[Any]:
    """The highest of those that are known, in a list that is empty where none is."""
    known = [one for one in values if one is not None]
    return [max(known)] if known else []


def _risen(before: Mapping[str, int], after: Mapping[str, int]) -> set[str]:
    return {word for word, count in after.items() if count > before.get(word, count)}
