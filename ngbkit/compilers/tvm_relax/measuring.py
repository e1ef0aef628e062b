"""Builds candidates in parallel and then times them one at a time, each in a process of its own.

A crash or a hang costs only its own process. A candidate runs in the process that built it, so that nothing is written
or linked; it waits there until all are built.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from ngbkit.compilers.tvm_relax.forked import ForkedProcess, ProcessEnded

# A schedule that takes longer to build is unrolled into code that fits no cache.
BUILD_S = 12.0
RUN_S = 10.0
# A candidate's time is the least of this many blocks of this length: a disturbance rarely hits all blocks.
_BLOCKS, _BLOCK_S = 6, 0.01
# One call is enough for a candidate this many times slower than the best.
_HOPELESS = 3.0


@dataclass(frozen=True, slots=True)
class Timing:
    """The result of a candidate: the seconds of one call, or the error."""

    seconds: float | None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateBench:
    """Builds and times candidates."""

    target: Any
    device: Callable[[], Any]  # returns TVM's device, in the child only
    workers: int  # parallel builds
    tick: Callable[[], None]  # called repeatedly meanwhile

    def measure(self, candidates: Sequence[Any], best_s: float | None, deadline: float) -> list[Timing | None]:
        """Build and time TVM's `MeasureCandidate`s, in order; None for those not started by the monotonic deadline."""
        jobs = [self._build_job(candidate, best_s) for candidate in candidates]
        timings: list[Timing | None] = [None] * len(jobs)
        built: list[tuple[int, ForkedProcess]] = []
        try:
            self._build(jobs, deadline, timings, built)
            for index, process in built:
                if time.monotonic() < deadline:
                    process.send("run")
                    timings[index] = _receive_timing(process, time.monotonic() + RUN_S)
                process.close()
                self.tick()
        finally:
            for _, process in built:
                process.close()
        return timings

    def _build(
        self, jobs: Sequence[Any], deadline: float, timings: list[Timing | None], built: list[tuple[int, ForkedProcess]]
    ) -> None:
        """Build all, `workers` at once; successful builds are appended to `built`, errors are put into `timings`."""
        waiting = list(enumerate(jobs))
        building: dict[Any, tuple[int, ForkedProcess, float]] = {}
        try:
            while waiting or building:
                while waiting and len(building) < self.workers and time.monotonic() < deadline:
                    index, job = waiting.pop(0)
                    process = ForkedProcess(job)
                    building[process.channel] = index, process, time.monotonic() + BUILD_S
                if not building:
                    return
                self.tick()
                next_limit = min(limit for _, _, limit in building.values())
                ready = wait(list(building), max(0.0, next_limit - time.monotonic()))
                expired = [key for key, (_, _, limit) in building.items() if limit <= time.monotonic()]
                for key in ready or expired:
                    index, process, limit = building.pop(key)
                    timings[index] = _receive_timing(process, limit)
                    if timings[index] is None:
                        built.append((index, process))
                    else:
                        process.close()
        finally:
            for _, process, _ in building.values():
                process.close()

    def _build_job(self, candidate: Any, best_s: float | None) -> Callable[[Connection], Any]:
        module, arguments = candidate.sch.mod, [info.as_json() for info in candidate.args_info]

        def job(channel: Connection) -> Any:
            call = _build(module, self.target)
            channel.send({"built": True})
            channel.recv()
            return {"seconds": _time_call(call, arguments, self.device(), best_s)}

        return job


def _receive_timing(process: ForkedProcess, deadline: float) -> Timing | None:
    """Receive the result of a process, or None when its candidate is built."""
    try:
        message = process.receive(deadline)
    except ProcessEnded as error:
        return Timing(None, str(error))
    if "built" in message:
        return None
    return Timing(message.get("seconds"), message.get("error", "")[:500])


def _build(module: Any, target: Any) -> Callable[..., Any]:
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    # Weights are laid out before the network is called, so this is no part of a call.
    bare = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
    call: Callable[..., Any] = tvm.driver.build(bare, target=target)["main"]
    return call


def _time_call(call: Callable[..., Any], arguments: Sequence[Any], device: Any, best_s: float | None) -> float:
    """Return the seconds of one call, of the fastest of several blocks."""
    tensors = [_fill(argument, device) for argument in arguments]

    def time_block(calls: int) -> float:
        began = time.perf_counter()
        for _ in range(calls):
            call(*tensors)
        device.sync()
        return (time.perf_counter() - began) / calls

    time_block(1)
    once = time_block(1)
    if best_s is not None and once > _HOPELESS * best_s:
        return min(once, time_block(1))
    calls = max(1, min(1000, int(_BLOCK_S / once)))
    return min(once, *(time_block(calls) for _ in range(_BLOCKS)))


def _fill(argument: Any, device: Any) -> Any:
    """Create the tensor of one argument: noise for floats, zeros for integers, which may be indices."""
    import tvm

    _, dtype, shape = argument
    empty = tvm.runtime.empty([int(size) for size in shape], str(dtype), device)
    if "float" in str(dtype):
        noise = np.random.default_rng(0).uniform(0.1, 1.0, empty.shape)
        return empty.copyfrom(noise.astype(empty.numpy().dtype))
    return empty.copyfrom(np.zeros_like(empty.numpy()))
