"""The turns of one trial so far: its samples, which of them other work slowed, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median

import numpy as np

from ngbkit.device.isolation.channel import Message
from ngbkit.hardware.conditions import Interference
from ngbkit.hardware.host import PROBES, HostReading, State, is_usual

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
class TurnPiece:
    """Some samples of a turn, and what slowed them."""

    round: int
    latency_s: Sequence[float]
    disturbed: bool  # by other work
    reading: HostReading | None  # of the probes around it
    unusual: bool = False  # the host ran the cores in another way than usual

    @property
    def contended(self) -> bool:
        return self.disturbed or self.unusual


@dataclass(slots=True, kw_only=True)
class TurnLog:
    """The samples of a trial, piece by piece of its turns."""

    _pieces: list[TurnPiece] = field(default_factory=list)
    # The cores that this worker usually has, as the last pieces of its turns had them.
    _activity: list[float] = field(default_factory=list)
    _foreign_s: float = 0.0
    _steal_s: float = 0.0
    _throttled_s: float = 0.0
    # The usual state of the host by which the pieces were judged.
    _usual: Mapping[str, State] = field(default_factory=dict)
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
        self, round_number: int, reply: Message, interference: Interference, reading: HostReading | None = None
    ) -> None:
        """Record a child's reply about a piece of a turn, and what its surroundings were."""
        disturbed = interference.contended or self._compute_stalled(interference.active) > STALLED
        self._turns_s += reply["spent_s"]
        self._timed_s += reply["timed_s"]
        self._turns_cpu_s += reply["cpu_s"]
        self._activity = [*self._activity[1 - _RECENT_PIECES :], interference.active]
        self._pieces.append(
            TurnPiece(round=round_number, latency_s=reply["latency_s"], disturbed=disturbed, reading=reading)
        )
        if len(self._pieces) == 2 * _FEWEST_PIECES:
            for piece, active in zip(self._pieces, self._activity[:_FEWEST_PIECES], strict=False):
                piece.disturbed |= self._compute_stalled(active) > STALLED
        self._foreign_s += interference.foreign * reply["spent_s"]
        self._steal_s += interference.steal * reply["spent_s"]
        self._throttled_s += interference.throttled * reply["spent_s"]

    def _judge_readings(self, usual: Mapping[str, State]) -> None:
        """Judge the last piece by the usual state of the host; all of them where more is known of it now."""
        for piece in self._pieces if usual is not self._usual else self._pieces[-1:]:
            # Beside other work, the probes tell nothing of the host.
            piece.unusual = piece.reading is not None and not piece.disturbed and not is_usual(piece.reading, usual)
        self._usual = usual

    def _list_contended(self) -> list[bool]:
        """List for each sample whether other work or the host slowed it."""
        return [piece.contended for piece in self._pieces for _ in piece.latency_s]

    def _list_latencies(self) -> list[float]:
        return [latency_s for piece in self._pieces for latency_s in piece.latency_s]

    def _list_rounds(self) -> list[int]:
        return [piece.round for piece in self._pieces for _ in piece.latency_s]

    def compute_unusual_share(self) -> float | None:
        """Compute the share of samples that were taken in an unusual state of the host; None without probes."""
        samples = sum(len(piece.latency_s) for piece in self._pieces)
        if not samples or all(piece.reading is None for piece in self._pieces):
            return None
        return sum(len(piece.latency_s) for piece in self._pieces if piece.unusual) / samples

    def compute_probe_median(self, name: str) -> float | None:
        """Compute the median time of a probe, in seconds; None where there was none."""
        times = [getattr(piece.reading, name) for piece in self._pieces if piece.reading is not None]
        times = [seconds for seconds in times if seconds > 0]
        return median(times) if times else None

    def describe_host(self) -> dict[str, list[float]]:
        """Describe the readings of the probes as plain JSON: by piece its round, samples, and times, none as -1."""
        probed = [(piece, piece.reading) for piece in self._pieces if piece.reading is not None]
        if not probed:
            return {}
        return {
            "rounds": [piece.round for piece, _ in probed],
            "samples": [len(piece.latency_s) for piece, _ in probed],
            "disturbed": [int(piece.disturbed) for piece, _ in probed],
            **{name: [_shorten(getattr(reading, name)) for _, reading in probed] for name in PROBES},
        }

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
        return {piece.round for piece in self._pieces}

    def drop_rounds(self, shared: Container[int]) -> None:
        """Drop the samples of all rounds but these."""
        self._pieces = [piece for piece in self._pieces if piece.round in shared]

    @property
    def contended_share(self) -> float:
        """The share of turns that were contended for the most part."""
        return 1 - self._uncontended_turns / self._turns if self._turns else 0.0

    def count_rounds(self, first_round: int) -> int:
        """Count the rounds from that number on that have an uncontended sample."""
        rounds = {piece.round for piece in self._pieces if not piece.contended}
        return sum(number >= first_round for number in rounds)

    def list_turns(self) -> dict[int, list[float]]:
        """List the latencies of the uncontended samples of each round so far, in seconds."""
        turns: dict[int, list[float]] = {}
        for piece in self._pieces:
            if not piece.contended:
                turns.setdefault(piece.round, []).extend(piece.latency_s)
        return turns

    def compute_round_medians(self) -> dict[int, float]:
        """Compute the median latency of each uncontended round so far, in seconds."""
        return {number: median(latency_s) for number, latency_s in sorted(self.list_turns().items())}


def _shorten(seconds: float) -> float:
    """Shorten a time to three digits; -1 for none."""
    return max(-1.0, float(f"{seconds:.3g}"))
