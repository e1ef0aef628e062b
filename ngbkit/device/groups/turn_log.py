"""The turns of one trial so far: its samples, which of them other work slowed, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from itertools import compress, pairwise
from statistics import fmean, median

import numpy as np

from ngbkit.device.isolation.channel import Message
from ngbkit.hardware.conditions import Interference
from ngbkit.hardware.host import PROBES, HostReading

# A piece of a turn with less of its usual core time by more than this share was stopped, or the hypervisor ran
# something else without telling. Some runtimes differ by a tenth from piece to piece on a quiet machine.
STALLED = 0.12
# Usual is this quantile of so many of the last pieces, and at least of so many. The first ones are judged by as many
# more: a computer that sleeps, or a virtual machine that is paused, leaves no other trace.
_USUAL_QUANTILE, _RECENT_PIECES, _FEWEST_PIECES = 0.75, 40, 3

# Memory grows if it does in so many pieces or more, by more than the noise of an allocator, in this share of them, and
# by this share of all in their last half.
_FEWEST_GROWING, _NOISE_BYTES, _MOST_GROW, _STILL = 5, 4_000_000, 0.75, 0.25


@dataclass(slots=True, kw_only=True)
class TurnLog:
    """The samples of a trial, piece by piece of its turns."""

    _latency_s: list[float] = field(default_factory=list)
    _rounds: list[int] = field(default_factory=list)
    _contended: list[bool] = field(default_factory=list)
    # The cores that this worker usually has, as the last pieces of its turns had them.
    _activity: list[float] = field(default_factory=list)
    # The samples of each piece.
    _samples: list[int] = field(default_factory=list)
    _foreign_s: float = 0.0
    _steal_s: float = 0.0
    _throttled_s: float = 0.0
    # The samples that were taken while the host ran the cores in another way than usual.
    _unusual: int = 0
    # What the probes measured around each piece, with its round.
    _readings: list[tuple[int, HostReading]] = field(default_factory=list)
    _turns: int = 0
    _uncontended_turns: int = 0
    _turns_s: float = 0.0
    _timed_s: float = 0.0
    _turns_cpu_s: float = 0.0
    # What the kernel did to the process in timed calls, by variable, and their number; the faults a call by piece.
    _events: Counter[str] = field(default_factory=Counter)
    _timed_calls: int = 0
    _faults: list[float] = field(default_factory=list)
    _calls: int = 0
    # The calls so far and the resident memory, after each piece.
    _memory: list[tuple[int, int]] = field(default_factory=list)

    def _record_piece(
        self, round_number: int, reply: Message, interference: Interference, *, unusual: bool = False
    ) -> bool:
        """Record a child's reply about a piece of a turn; return whether other work, or the host, slowed it."""
        contended = unusual or interference.contended or self._compute_stalled(interference.active) > STALLED
        samples = len(reply["latency_s"])
        self._unusual += samples * unusual
        self._turns_s += reply["spent_s"]
        self._timed_s += reply["timed_s"]
        self._turns_cpu_s += reply["cpu_s"]
        self._latency_s += reply["latency_s"]
        self._rounds += [round_number] * samples
        self._contended += [contended] * samples
        self._activity = [*self._activity[1 - _RECENT_PIECES :], interference.active]
        self._samples.append(samples)
        if len(self._samples) == 2 * _FEWEST_PIECES:
            self._judge_first_pieces()
        self._foreign_s += interference.foreign * reply["spent_s"]
        self._steal_s += interference.steal * reply["spent_s"]
        self._throttled_s += interference.throttled * reply["spent_s"]
        return contended

    def _record_reading(self, round_number: int, reading: HostReading) -> None:
        self._readings.append((round_number, reading))

    def compute_probe_median(self, name: str) -> float | None:
        """Compute the median time of a probe, in seconds; None where there was none."""
        times = [seconds for _, reading in self._readings if (seconds := getattr(reading, name)) > 0]
        return median(times) if times else None

    def describe_host(self) -> dict[str, list[float]]:
        """Describe the readings of the probes, piece by piece, with their rounds: as plain JSON, none as -1."""
        return {
            "rounds": [number for number, _ in self._readings],
            **{
                name: [max(-1.0, float(f"{getattr(reading, name):.3g}")) for _, reading in self._readings]
                for name in PROBES
            },
        }

    def _judge_first_pieces(self) -> None:
        start = 0
        for active, samples in zip(self._activity[:_FEWEST_PIECES], self._samples, strict=False):
            if self._compute_stalled(active) > STALLED:
                self._contended[start : start + samples] = [True] * samples
            start += samples

    def _compute_stalled(self, active: float) -> float:
        """Compute which share of the core time that this worker usually has is missing in a piece."""
        if len(self._activity) < _FEWEST_PIECES:
            return 0.0
        usual = float(np.quantile(self._activity, _USUAL_QUANTILE))
        return max(0.0, 1 - active / usual) if usual > 0 else 0.0

    def _record_memory(self, resident_bytes: int, calls: int) -> None:
        self._calls += calls
        self._memory.append((self._calls, resident_bytes))

    def _record_events(self, events: Mapping[str, int], calls: int) -> None:
        self._events.update(events)
        self._timed_calls += calls
        self._faults.append(events["minor_faults"] / calls)

    def compute_events_a_call(self, name: str) -> float | None:
        """Compute how often the kernel did that to the process in a call, on average."""
        return self._events[name] / self._timed_calls if self._timed_calls else None

    def compute_faults_a_call(self) -> float | None:
        """Compute the page faults of a usual call: a median, as its latency is, since a heap still grows in some."""
        return median(self._faults) if self._faults else None

    @property
    def memory_growth_bytes(self) -> int:
        """The growth of the resident memory since the first piece."""
        return max(0, self._memory[-1][1] - self._memory[0][1]) if self._memory else 0

    def estimate_growth_a_call(self) -> float:
        """Estimate by how many bytes the memory grows a call; 0 unless it goes on growing, beyond noise.

        That is growth in most pieces, and in the last half of them as much as in the first; a pool that fills up, or a
        heap that is trimmed now and then, grows no more after some calls.
        """
        if len(self._memory) < _FEWEST_GROWING:
            return 0.0
        (first_calls, first), (_, middle), (calls, last) = (
            self._memory[place] for place in (0, len(self._memory) // 2, -1)
        )
        grown = [later > earlier for (_, earlier), (_, later) in pairwise(self._memory)]
        if last - first < _NOISE_BYTES or fmean(grown) < _MOST_GROW or last - middle < _STILL * (last - first):
            return 0.0
        return (last - first) / (calls - first_calls)

    def list_rounds(self) -> set[int]:
        """List the rounds so far, contended ones too."""
        return set(self._rounds)

    def drop_rounds(self, shared: Container[int]) -> None:
        """Drop the samples of all rounds but these."""
        is_shared = [number in shared for number in self._rounds]
        self._latency_s = list(compress(self._latency_s, is_shared))
        self._contended = list(compress(self._contended, is_shared))
        self._rounds = list(compress(self._rounds, is_shared))

    @property
    def contended_share(self) -> float:
        """The share of turns that were contended for the most part."""
        return 1 - self._uncontended_turns / self._turns if self._turns else 0.0

    def count_rounds(self, first_round: int) -> int:
        """Count the rounds from that number on that have an uncontended sample."""
        numbers = zip(self._rounds, self._contended, strict=True)
        return len({number for number, contended in numbers if not contended and number >= first_round})

    def list_turns(self) -> dict[int, list[float]]:
        """List the latencies of the uncontended samples of each round so far, in seconds."""
        turns: dict[int, list[float]] = {}
        for number, latency_s, contended in zip(self._rounds, self._latency_s, self._contended, strict=True):
            if not contended:
                turns.setdefault(number, []).append(latency_s)
        return turns

    def compute_round_medians(self) -> dict[int, float]:
        """Compute the median latency of each uncontended round so far, in seconds."""
        return {number: median(latency_s) for number, latency_s in sorted(self.list_turns().items())}
