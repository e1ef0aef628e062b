"""CUDA graphs: what a network launches, recorded once and launched as one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ngbkit.errors import UnsupportedError
from ngbkit.hardware.accelerators.cuda import Driver

# CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: what other threads of a runtime do meanwhile is no error.
_THREAD_LOCAL = 1


def capture(driver: Driver, enqueue: Callable[[], Any]) -> Callable[[], None]:
    """What launches, on the stream of `driver`, everything that `enqueue` puts there, and keeps `enqueue` alive.

    Parameters
    ----------
    driver
        With a stream of its own: CUDA's default stream cannot be captured.
    enqueue
        Called twice: once as it is, for what a runtime does only the first time, and once to be recorded.

    Raises
    ------
    UnsupportedError
        `enqueue` does what no graph can hold, such as to wait for the GPU.
    """
    enqueue()
    driver.synchronize()
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    try:
        driver.call("cuStreamBeginCapture_v2", driver.stream, _THREAD_LOCAL)
        try:
            enqueue()
        finally:
            # A stream on which a capture has not ended can do nothing else.
            driver.call("cuStreamEndCapture", driver.stream, ctypes.byref(graph))
        driver.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
    except RuntimeError as error:
        raise UnsupportedError(
            f"the network cannot be recorded as a CUDA graph ({error}); compile it without cuda_graph"
        ) from error

    # The graph works with the memory of what was recorded, which must not go before it.
    def launch(_: Callable[[], Any] = enqueue) -> None:
        driver.call("cuGraphLaunch", executable, driver.stream)

    return launch
