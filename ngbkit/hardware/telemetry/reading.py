"""Reading of a chip at one moment, and the protocol of every chip."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """State of a chip at one moment; a value that the chip does not report is None, and the others remain valid."""

    # On a monotonic clock.
    time_s: float
    # A hardware counter of the energy consumed since some moment in the past.
    energy_j: float | None = None
    power_w: float | None = None
    # The share of a short preceding time in which anything ran on the GPU: of 1/6 s to 1 s with NVML, of the kernel's
    # own average on a Jetson. It does not say how much of the GPU was used.
    busy_percent: float | None = None
    # GPU memory in use by any process; None if the GPU has none of its own.
    memory_used_bytes: int | None = None
    # The same by process, as far as the driver reports it; updated a few times a second.
    process_memory_bytes: Mapping[int, int] = field(default_factory=dict)
    # Of the compute units.
    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    # Of the GPU; of the hottest part of a board.
    temperature_c: float | None = None
    # Causes that slow it down now, in plain words: ``"power cap"``. Idling and a clock that the user has set are not
    # among them.
    throttled: frozenset[str] = frozenset()
    # How often each cause has slowed it down since some moment in the past.
    events: Mapping[str, int] = field(default_factory=dict)


class Chip(Protocol):
    """A chip that can be read during a measurement."""

    @property
    def lag_s(self) -> float:
        """The maximum delay of a reading's power or energy, in seconds."""
        ...

    @property
    def period_s(self) -> float:
        """The time from one reading of a turn to the next, in seconds."""
        ...

    def read(self) -> Reading:
        """Read the chip now."""
        ...

    def describe(self) -> dict[str, Any]:
        """Describe the chip and its settings, as plain JSON."""
        ...


PERIOD_S = 0.02
"""The period of chips whose power or load varies during a turn."""


class CachedValue(Generic[T]):
    """A value that is expensive to read and changes slowly: `read` is called at most once in `period_s` seconds."""

    def __init__(self, read: Callable[[], T], period_s: float = 0.2) -> None:
        self._read, self._period_s = read, period_s
        self._last: tuple[float, T] | None = None

    def get(self, now_s: float) -> T:
        """Return the value, read now or recently."""
        if self._last is None or now_s - self._last[0] >= self._period_s:
            self._last = (now_s, self._read())
        return self._last[1]
