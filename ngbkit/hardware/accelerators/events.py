"""Timing by the GPU's own clock, and an L2 flush before each timed call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal

from ngbkit.errors import DeviceError
from ngbkit.hardware.accelerators.cuda import Driver

Timer = Callable[[int], float]

# A buffer of this many times the cache's size replaces its whole content.
_L2_SIZES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """The way `ngbkit.device.timing.sampling.sample` times a program: two of its arguments, and their effect."""

    # Times that many calls by CUDA events and returns seconds a call; None for the host's clock.
    measure: Timer | None = None
    # Called before each call, untimed.
    prepare: Callable[[], None] | None = None
    # As in a contract.
    clock: Literal["host", "events"] = "host"
    flushed: bool = False


def choose_method(
    enqueue: Callable[[], Any] | None, stream: int, *, gpu_timer: Literal["host", "events"], flush_l2: bool
) -> Method:
    """Choose how to time a program on the GPU: by the host's clock without an `enqueue`, which events could enclose."""
    by_events = gpu_timer == "events" and enqueue is not None
    return Method(
        measure=build_timer(enqueue, stream) if by_events and enqueue is not None else None,
        prepare=Flush(stream, wait=not by_events) if flush_l2 else None,
        clock="events" if by_events else "host",
        flushed=flush_l2,
    )


def build_timer(enqueue: Callable[[], Any], stream: int) -> Timer:
    """Build a function that times calls of `enqueue`, which puts work on `stream`, by an event before and one after.

    That function receives a number of calls and returns seconds a call. The GPU records the first event when all
    earlier work on the stream is complete, and no clock runs until then. Between the two events the GPU waits for the
    CPU only when it is out of work: a network whose launches take longer than its kernels is timed at the speed of its
    launches, except for those that overlap a flush.
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
    """Overwrites the GPU's L2 cache when called, so that the next call reads from the GPU's memory.

    `stream` is the number of the ``CUstream`` that the timed program uses, so that the flush runs in order with it.
    With `wait`, a call returns after the cache is written, which the host's clock needs and events do not.
    """

    def __init__(self, stream: int, *, wait: bool) -> None:
        self._driver, self._wait = Driver(stream), wait
        size = self._driver.l2_bytes
        if not size:
            raise DeviceError(
                f"the driver does not report the L2 cache of {self._driver.name}; measure without flush_l2"
            )
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
