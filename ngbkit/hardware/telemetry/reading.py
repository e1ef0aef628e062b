"""What is read of a chip at one moment, and what every chip can be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A chip at one moment; what it does not tell is None, and one field that is refused costs only itself.

    Parameters
    ----------
    at_s
        On a clock that only goes forward.
    energy_j
        What it has consumed since some moment in the past: a counter of the hardware's own.
    power_w
        What it consumes.
    busy_percent
        The share of a short time before in which anything ran on the GPU: of 1/6 s to 1 s with NVML, of the kernel's
        own average on a Jetson. It tells nothing of how much of the GPU was used.
    memory_used_bytes
        GPU memory that anyone has taken. None where the GPU has none of its own.
    process_memory_bytes
        The same by process, as far as the driver tells; looked up anew a few times a second.
    clock_mhz, memory_clock_mhz
        Of what computes, and of the memory.
    temperature_c
        Of the GPU; of the hottest part of a board.
    throttled
        What slows it down at this moment, in plain words: ``"power cap"``. That it idles is not among them, nor is a
        clock that the user has set.
    events
        How often something has slowed it down since some moment in the past, by the same words.
    """

    at_s: float
    energy_j: float | None = None
    power_w: float | None = None
    busy_percent: float | None = None
    memory_used_bytes: int | None = None
    process_memory_bytes: Mapping[int, int] = field(default_factory=dict)
    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    throttled: frozenset[str] = frozenset()
    events: Mapping[str, int] = field(default_factory=dict)


class Chip(Protocol):
    """What can be read while it is measured."""

    @property
    def lag_s(self) -> float:
        """The longest time that a reading's power or energy may be behind, in seconds."""
        ...

    def read(self) -> Reading:
        """The chip now."""
        ...

    def describe(self) -> dict[str, Any]:
        """What it is and how it is set, as plain JSON."""
        ...


class Seldom(Generic[T]):
    """A value that costs much and changes slowly: read again only after so many seconds.

    Parameters
    ----------
    get
        Reads it.
    every_s
        How long a value holds.
    """

    def __init__(self, get: Callable[[], T], every_s: float = 0.2) -> None:
        self._get, self._every_s = get, every_s
        self._last: tuple[float, T] | None = None

    def at(self, now_s: float) -> T:
        """The value, read now or a moment ago."""
        if self._last is None or now_s - self._last[0] >= self._every_s:
            self._last = (now_s, self._get())
        return self._last[1]
