"""Tells for each piece of a turn whether the host ran the cores as usual, and what the probes measured."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ngbkit.hardware.host import probe_history
from ngbkit.hardware.host.probe_history import ProbeHistory, State
from ngbkit.hardware.host.probes import UNKNOWN, HostReading, Probes

# After so many more readings the usual state is found again, so that the first minutes on a machine are judged, too.
_LOOK = 50
# A reading at the end of one piece is that at the beginning of the next one, if it follows so soon.
_FRESH_S = 0.02


@dataclass(slots=True)
class HostMonitor:
    """The probes of a device during its turns, and their history."""

    _file: Path
    _key: str
    _probes: Probes
    _history: ProbeHistory
    usual: dict[str, State]
    _last: HostReading = UNKNOWN
    _read_at: float = field(default=-1.0)
    _readings: int = 0

    @classmethod
    def start(cls, file: Path, cores: list[int]) -> HostMonitor:
        """Start the probes on these cores, whose history is in that file."""
        key = ",".join(map(str, cores))
        earlier = probe_history.load(file, key)
        monitor = cls(file, key, Probes(), earlier, earlier.find_usual())
        monitor._probes.start(cores)
        return monitor

    def begin_piece(self) -> None:
        """Read the probes, unless they were read just now."""
        if time.monotonic() - self._read_at > _FRESH_S:
            self._read()

    def end_piece(self, *, contended: bool) -> HostReading:
        """Return the reading of the piece, which has the slower times of both its ends.

        If other work took cores, it tells nothing of the host, and is not learnt from.
        """
        before = self._last
        self._read()
        reading = HostReading(*map(max, zip(_list_times(before), _list_times(self._last), strict=True)))
        if not contended:
            self._history.add(reading)
            self._readings += 1
            if self._readings % _LOOK == 0:
                self._find_usual()
        return reading

    def describe(self) -> dict[str, list[dict[str, float]]]:
        """Describe the states of the history, as plain JSON."""
        return {name: [asdict(state) for state in self._history.list_states(name)] for name in probe_history.PROBES}

    def learn(self) -> None:
        """Save the history, and tell the usual state by it from now on."""
        probe_history.save(self._file, self._key, self._history)
        self._find_usual()

    def _find_usual(self) -> None:
        if (usual := self._history.find_usual()) != self.usual:
            self.usual = usual

    def __enter__(self) -> HostMonitor:
        return self

    def __exit__(self, *error: object) -> None:
        self._probes.end()

    def _read(self) -> None:
        self._last, self._read_at = self._probes.read(), time.monotonic()


def _list_times(reading: HostReading) -> tuple[float, float]:
    return reading.trip_s, reading.work_s
