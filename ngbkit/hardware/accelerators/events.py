"""Timing by the GPU's own clock, and a cold L2 cache before each timed call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal

from ngbkit.errors import DeviceError
from ngbkit.hardware.accelerators.cuda import Driver

Timer = Callable[[int], float]

# Written through a buffer of this many times its size, nothing of what was in the cache before is left in it.
_L2_SIZES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How `ngbkit.device.timing.sampling.sample` times a program: its arguments, by name, and what they make true.

    Parameters
    ----------
    measure
        Times that many calls by CUDA events and gives seconds a call; None for the host's clock.
    before
        What is done before each call, untimed; None for nothing.
    clock, flushed
        What a contract says of it.
    """

    measure: Timer | None = None
    before: Callable[[], None] | None = None
    clock: Literal["host", "events"] = "host"
    flushed: bool = False


def choose(
    enqueue: Callable[[], Any] | None, stream: int, *, gpu_timer: Literal["host", "events"], flush_l2: bool
) -> Method:
    """How to time a program on the GPU as a sweep asks for it.

    A program that gives no `enqueue` cannot be put between events: it is timed by the host's clock, and `Method.clock`
    says so.

    Parameters
    ----------
    enqueue, stream
        Of the `ngbkit.compilers.base.Program`.
    gpu_timer, flush_l2
        Of the sweep.
    """
    by_events = gpu_timer == "events" and enqueue is not None
    return Method(
        measure=timer(enqueue, stream) if by_events and enqueue is not None else None,
        before=Flush(stream, wait=not by_events) if flush_l2 else None,
        clock="events" if by_events else "host",
        flushed=flush_l2,
    )


def timer(enqueue: Callable[[], Any], stream: int) -> Timer:
    """What times `enqueue`, work that it puts on `stream`, by an event before and one after it.

    The function that it returns takes a number of calls and gives seconds a call. The first event is taken when what
    was on the stream before it is done, and no clock runs while that is waited for. Between the two nothing waits for
    the CPU unless the GPU has run out of work: a network whose launches take longer than its kernels is timed at the
    pace of its launches, but for those that happen while a flush is still at work.
    """
    driver = Driver(stream)
    first, last = _create_event(driver), _create_event(driver)

    def measure(calls: int) -> float:
        driver.call("cuEventRecord", first, driver.stream)
        for _ in repeat(None, calls):
            enqueue()
        driver.call("cuEventRecord", last, driver.stream)
        driver.call("cuEventSynchronize", last)
        elapsed_ms = ctypes.c_float()
        driver.call("cuEventElapsedTime", ctypes.byref(elapsed_ms), first, last)
        return elapsed_ms.value * 1e-3 / calls

    return measure


class Flush:
    """Overwrites the GPU's L2 cache when it is called, so that what is read next comes from the GPU's memory.

    Parameters
    ----------
    stream
        The ``CUstream``, as a number, that what is timed works on: the cache is written after what was on it before,
        and before what comes next.
    wait
        Whether a call returns when the cache is written, which the host's clock needs. Events need no such wait.

    Raises
    ------
    DeviceError
        The driver does not tell how large the cache is.
    """

    def __init__(self, stream: int, *, wait: bool) -> None:
        self._driver, self._wait = Driver(stream), wait
        size = self._driver.l2_bytes
        if not size:
            raise DeviceError(f"the driver does not tell the L2 cache of {self._driver.name}; measure without flush_l2")
        self.size = _L2_SIZES * size
        self._address = ctypes.c_uint64(self._driver.allocate(self.size))

    def __call__(self) -> None:
        driver = self._driver
        driver.call("cuMemsetD8Async", self._address, 0, ctypes.c_size_t(self.size), driver.stream)
        if self._wait:
            driver.synchronize()


def _create_event(driver: Driver) -> ctypes.c_void_p:
    event = ctypes.c_void_p()
    driver.call("cuEventCreate", ctypes.byref(event), 0)
    return event
