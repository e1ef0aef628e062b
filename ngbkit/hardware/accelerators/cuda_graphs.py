"""CUDA graphs: the launches of a network, recorded once and launched as one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ngbkit.errors import UnsupportedError
from ngbkit.hardware.accelerators.cuda import Driver

# CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: calls by other threads of a runtime during the capture are no error.
_THREAD_LOCAL = 1


def capture(driver: Driver, enqueue: Callable[[], Any]) -> Callable[[], None]:
    """Capture the work that `enqueue` puts on the stream of `driver`, and return a function that launches it.

    The driver needs a stream of its own: CUDA's default stream cannot be captured. `enqueue` runs twice: first plainly,
    for the one-time work of a runtime, and then to be recorded. Raises UnsupportedError if no graph can contain its
    work, such as waiting for the GPU.
    """
    enqueue()
    driver.synchronize()
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    try:
        driver.call("cuStreamBeginCapture_v2", driver.stream, _THREAD_LOCAL)
        try:
            enqueue()
        finally:
            # A stream with an unfinished capture can do nothing else.
            driver.call("cuStreamEndCapture", driver.stream, ctypes.byref(graph))
        driver.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
    except RuntimeError as error:
        raise UnsupportedError(
            f"the network cannot be recorded as a CUDA graph ({error}); compile it without cuda_graph"
        ) from error

    # The graph uses the memory of the recorded work, so that `enqueue` must live as long as the graph.
    def launch(_: Callable[[], Any] = enqueue) -> None:
        driver.call("cuGraphLaunch", executable, driver.stream)

    return launch
