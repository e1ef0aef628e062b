"""Builds candidates, several at once, and then times them, one alone at a time: each in a process of its own.

What crashes or hangs costs its own process. A candidate runs where it was built, so that nothing is written or linked;
it waits between the two until all are built.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngbkit.compilers.tvm_relax.forked import Ended, Forked, Line

# A schedule that takes longer to build has been unrolled into something that no cache holds.
BUILD_S = 12.0
RUN_S = 10.0
# The least of so many pieces of so long each is what a candidate takes: what disturbs one hardly disturbs all.
_PIECES, _PIECE_S = 6, 0.01
# One call tells enough of a candidate that is so many times slower than the best.
_HOPELESS = 3.0


@dataclass(frozen=True, slots=True)
class Timing:
    """What became of a candidate: the seconds that a call of it takes, or why there are none."""

    seconds: float | None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """How candidates are built and timed.

    Parameters
    ----------
    target, device
        What to build for, and TVM's device to run on; it is not touched in this process.
    workers
        How many to build at once.
    tick
        Called now and then while they are built and timed.
    """

    target: Any
    device: Callable[[], Any]
    workers: int
    tick: Callable[[], None]

    def measure(self, candidates: Sequence[Any], best: float | None, until: float) -> list[Timing | None]:
        """Build and time candidates.

        Parameters
        ----------
        candidates
            TVM's `MeasureCandidate`.
        best
            The seconds of the best that is known.
        until
            When to start no more of them, on the monotonic clock.

        Returns
        -------
        list of Timing or None
            In the order of the candidates; None for one that was not tried for want of time.
        """
        works = [self._work(candidate, best) for candidate in candidates]
        found: list[Timing | None] = [None] * len(works)
        built: list[tuple[int, Forked]] = []
        try:
            self._build(works, until, found, built)
            for index, process in built:
                if time.monotonic() < until:
                    process.tell("run")
                    found[index] = _hear(process, time.monotonic() + RUN_S)
                process.close()
                self.tick()
        finally:
            for _, process in built:
                process.close()
        return found

    def _build(
        self, works: Sequence[Any], until: float, found: list[Timing | None], built: list[tuple[int, Forked]]
    ) -> None:
        """Start them all, `workers` at once; those that are built wait in `built`, what failed is in `found`."""
        waiting = list(enumerate(works))
        building: dict[Any, tuple[int, Forked, float]] = {}
        try:
            while waiting or building:
                while waiting and len(building) < self.workers and time.monotonic() < until:
                    index, work = waiting.pop(0)
                    process = Forked(work)
                    building[process.line.socket] = index, process, time.monotonic() + BUILD_S
                if not building:
                    return
                self.tick()
                soonest = min(limit for _, _, limit in building.values())
                ready = select.select(list(building), [], [], max(0.0, soonest - time.monotonic()))[0]
                for line in ready or [line for line, (_, _, limit) in building.items() if limit <= time.monotonic()]:
                    index, process, limit = building.pop(line)
                    found[index] = _hear(process, limit)
                    if found[index] is None:
                        built.append((index, process))
                    else:
                        process.close()
        finally:
            for _, process, _ in building.values():
                process.close()

    def _work(self, candidate: Any, best: float | None) -> Callable[[Line], Any]:
        module, arguments = candidate.sch.mod, [info.as_json() for info in candidate.args_info]

        def work(line: Line) -> Any:
            call = _build(module, self.target)
            line.tell({"built": True})
            line.hear()
            return {"seconds": _time(call, arguments, self.device(), best)}

        return work


def _hear(process: Forked, until: float) -> Timing | None:
    """What a process says of its candidate; None where it says that it is built."""
    try:
        said = process.hear(until)
    except Ended as ended:
        return Timing(None, str(ended))
    if "built" in said:
        return None
    return Timing(said.get("seconds"), said.get("error", "")[:500])


def _build(module: Any, target: Any) -> Callable[..., Any]:
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    # Weights are laid out before the network is called: that is no part of what a call takes.
    bare = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
    call: Callable[..., Any] = tvm.driver.build(bare, target=target)["main"]
    return call


def _time(call: Callable[..., Any], arguments: Sequence[Any], device: Any, best: float | None) -> float:
    """The seconds that one call takes, of the quickest of several pieces."""
    tensors = [_fill(argument, device) for argument in arguments]

    def piece(calls: int) -> float:
        began = time.perf_counter()
        for _ in range(calls):
            call(*tensors)
        device.sync()
        return (time.perf_counter() - began) / calls

    piece(1)
    once = piece(1)
    if best is not None and once > _HOPELESS * best:
        return min(once, piece(1))
    calls = max(1, min(1000, int(_PIECE_S / once)))
    return min(once, *(piece(calls) for _ in range(_PIECES)))


def _fill(argument: Any, device: Any) -> Any:
    """A tensor for one argument: noise where it is of floats, zeros where it may be an index."""
    import tvm

    _, dtype, shape = argument
    empty = tvm.runtime.empty([int(size) for size in shape], str(dtype), device)
    if "float" in str(dtype):
        noise = np.random.default_rng(0).uniform(0.1, 1.0, empty.shape)
        return empty.copyfrom(noise.astype(empty.numpy().dtype))
    return empty.copyfrom(np.zeros_like(empty.numpy()))
