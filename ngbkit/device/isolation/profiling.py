"""Profiled calls of a program in turns with plain ones, in the child that timed it, and their record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ngbkit.compilers.base import Program
from ngbkit.compilers.profiles.profile import Profile, Profiler
from ngbkit.workloads.base import hash_json

# Digits of seconds after the point.
_DIGITS = 9


@dataclass(slots=True)
class ProfiledTurns:
    """The turns of a program with and without the profiler, which is opened at the first one.

    `plain` and `profiled` have the seconds of whole calls by round, and `rows` the places of the latter in the profile.
    """

    program: Program
    profiler: Profiler
    plain: list[list[float]] = field(default_factory=list)
    profiled: list[list[float]] = field(default_factory=list)
    rows: list[list[int]] = field(default_factory=list)
    _calls: int = 0

    def time_turn(self, calls: int, settle: int) -> None:
        """Time that many calls with and without the profiler; rounds begin with either in turn."""
        parts = [self._time_plain, self._time_profiled]
        for time_part in parts if len(self.plain) % 2 else reversed(parts):
            time_part(calls, settle)

    def _time_plain(self, calls: int, settle: int) -> None:
        self.plain.append(_time(self.program.run, calls, settle))

    def _time_profiled(self, calls: int, settle: int) -> None:
        self.profiled.append(_time(self.profiler.run, calls, settle, self.profiler))
        self._calls += settle + calls
        self.rows.append(list(range(self._calls - calls, self._calls)))

    def to_json(self) -> dict[str, Any]:
        """Read the profile, and return the record of it with the calls: see `build_record`."""
        profile = self.profiler.read()
        if len(profile.seconds) != self._calls:
            raise ValueError(f"the profiler recorded {len(profile.seconds)} of {self._calls} calls")
        return build_record(profile, self.rows, self.plain, self.profiled)


def _time(run: Callable[[], Any], calls: int, settle: int, profiler: Profiler | None = None) -> list[float]:
    seconds = []
    for _ in range(settle + calls):
        if profiler:
            profiler.prepare()
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
        if profiler:
            profiler.finish()
    return seconds[settle:]


def build_record(
    profile: Profile, rows: list[list[int]], plain: list[list[float]], profiled: list[list[float]]
) -> dict[str, Any]:
    """Build the record of a profile as plain JSON: the variable `profile` of the dataset.

    ``nodes`` are ``[name, operator, module]``; ``kernels`` have their ``seconds`` by round and profiled call, None
    where the profiler says nothing, and the indices of their ``nodes``; ``calls`` are the seconds of whole calls by
    round.
    """
    nodes = [[node.name, node.operator, node.module] for node in profile.nodes]
    return {
        "nodes": nodes,
        "kernels": [
            {
                "name": kernel.name,
                "kind": kernel.kind,
                "nodes": list(kernel.nodes),
                "role": kernel.role,
                "seconds": [[_round(profile.seconds[row, index]) for row in turn] for turn in rows],
            }
            for index, kernel in enumerate(profile.kernels)
        ],
        "calls": {"plain": _round_all(plain), "profiled": _round_all(profiled)},
        "source": {"digest": hash_json([nodes, [node.inputs for node in profile.nodes]]), "form": profile.form},
        "notes": list(profile.notes),
    }


def build_refusal(note: str) -> dict[str, Any]:
    """Build the record of a program that cannot be profiled, with the reason."""
    return {
        "nodes": [],
        "kernels": [],
        "calls": {"plain": [], "profiled": []},
        "source": {"digest": "", "form": ""},
        "notes": [note],
    }


def _round(seconds: float) -> float | None:
    return None if math.isnan(seconds) else round(float(seconds), _DIGITS)


def _round_all(turns: list[list[float]]) -> list[list[float]]:
    return [[round(seconds, _DIGITS) for seconds in turn] for turn in turns]
