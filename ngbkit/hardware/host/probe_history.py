"""The history of a machine's probes, and the states of its host that it shows.

A state is a cluster of readings: a range of each probe's times, with a valley on either side, of times that few
readings have. Nothing is said before there are enough readings to tell a valley from chance.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ngbkit.errors import UsageError
from ngbkit.files import write_atomically
from ngbkit.hardware.host.probes import HostReading
from ngbkit.user_text import parse_json

# The ratio of the times of two neighbouring bins.
_STEP = 1.04
# A state ends where three bins in a row have a smaller share than this of those around the peaks on either side.
_VALLEY = 0.25
# Beyond the last bin of a state, where no other one begins, times of this factor more are of it, too.
_MARGIN = 1.125
# Almost nothing: a smaller share than this of all readings, or fewer than so many.
_RARE_SHARE, _RARE = 0.004, 3
# A cluster is a state from this share of all readings on.
_LEAST_SHARE = 0.02
# The usual state is the fastest one that has such a share of all readings: where two are about as frequent, the most
# frequent one is another from run to run.
_USUAL_SHARE = 0.2
# The fewest readings that tell, and the most that count: then old ones fade, since a machine may be moved for good.
LEAST_READINGS, _MOST_READINGS = 300, 20_000
PROBES = ("trip_s", "work_s")
_UNREADABLE = (OSError, UsageError, ValueError, LookupError, TypeError, AttributeError)


@dataclass(frozen=True, slots=True)
class State:
    """A range of a probe's times, in seconds, their geometric mean, and the share of readings in it."""

    low_s: float
    high_s: float
    mean_s: float
    share: float


@dataclass(slots=True)
class ProbeHistory:
    """The number of readings of each probe by its time, in bins."""

    counts: dict[str, Counter[int]] = field(default_factory=lambda: {name: Counter() for name in PROBES})

    def add(self, reading: HostReading) -> None:
        """Count a reading, if no other work disturbed it."""
        for name, counts in self.counts.items():
            if (seconds := getattr(reading, name)) > 0:
                counts[_find_bin(seconds)] += 1
            if counts.total() > _MOST_READINGS:
                self.counts[name] = Counter({place: count // 2 for place, count in counts.items() if count > 1})

    def list_states(self, name: str) -> list[State]:
        """List the states that a probe shows, the usual one first; none without enough readings."""
        counts = self.counts[name]
        total = counts.total()
        if total < LEAST_READINGS:
            return []
        rare = max(_RARE, _RARE_SHARE * total)
        clusters = _split(counts, rare)
        # The bins of each cluster that have more than chance may give them.
        cores = [[place for place in cluster if counts[place] >= rare] for cluster in clusters]
        cores = [core for core in cores if sum(counts[place] for place in core) >= _LEAST_SHARE * total]
        margin = math.log(_MARGIN, _STEP) + 0.5
        ends = [
            -math.inf,
            *((first[-1] + second[0]) / 2 for first, second in pairwise(cores)),
            math.inf,
        ]
        states = [
            State(
                low_s=_STEP ** max(core[0] - margin, below),
                high_s=_STEP ** min(core[-1] + margin, above),
                mean_s=_STEP ** (sum(place * counts[place] for place in core) / sum(counts[place] for place in core)),
                share=sum(counts[place] for place in core) / total,
            )
            for core, (below, above) in zip(cores, pairwise(ends), strict=True)
        ]
        return sorted(states, key=lambda state: (state.share < _USUAL_SHARE, state.mean_s))

    def find_usual(self) -> dict[str, State]:
        """Find the usual state by each probe that shows any."""
        return {name: states[0] for name in PROBES if (states := self.list_states(name))}


def is_usual(reading: HostReading, usual: Mapping[str, State]) -> bool:
    """Return whether nothing is known against a reading being one of the usual state."""
    times = ((getattr(reading, name), state) for name, state in usual.items())
    return not any(seconds < state.low_s or seconds > state.high_s for seconds, state in times)


def load(file: Path, key: str) -> ProbeHistory:
    """Load the history of these cores; an empty one where there is none."""
    history = ProbeHistory()
    with suppress(*_UNREADABLE):
        stored = parse_json(file.read_text())[key]
        history.counts = {
            name: Counter({int(place): int(count) for place, count in stored[name].items()}) for name in PROBES
        }
    return history


def save(file: Path, key: str, history: ProbeHistory) -> None:
    """Save the history of these cores, beside those of others."""
    entries = {}
    with suppress(*_UNREADABLE):
        entries = dict(parse_json(file.read_text()))
    entries[key] = {name: dict(sorted(counts.items())) for name, counts in history.counts.items()}
    with write_atomically(file) as temporary:
        temporary.write_text(json.dumps(entries))


def _find_bin(seconds: float) -> int:
    return round(math.log(seconds) / math.log(_STEP))


def _split(counts: Counter[int], rare: float) -> list[range]:
    """Split the bins at the lowest place of each valley."""
    first, last = min(counts), max(counts)
    clusters, start, peak, valley = [], first, 0, None
    # The readings in three bins, so that a single one makes no valley.
    density = {place: sum(counts[place + step] for step in (-1, 0, 1)) for place in range(first, last + 1)}
    for place, readings in density.items():
        if valley is None:
            valley = place if readings <= _VALLEY * peak else None
        elif readings < density[valley]:
            valley = place
        elif readings >= max(rare, density[valley] / _VALLEY):
            clusters.append(range(start, valley + 1))
            start, peak, valley = valley + 1, 0, None
        peak = max(peak, readings)
    return [*clusters, range(start, last + 1)]
