"""CUDA graphs: recorded launches of a network."""

import pytest
from hardware.accelerators.faking import FakeGpu

from ngbkit.errors import UnsupportedError
from ngbkit.hardware.accelerators import cuda, cuda_graphs


def test_a_graph_launches_the_recorded_work(gpu: FakeGpu) -> None:
    """One call launches all the recorded work of a graph, and the capture runs it once."""
    driver = cuda.Driver()

    def enqueue() -> None:
        gpu.launch(driver.stream.value, 100)
        gpu.launch(driver.stream.value, 23)

    start = gpu.clock_ns
    launch = cuda_graphs.capture(driver, enqueue)
    driver.synchronize()
    recorded = gpu.clock_ns - start
    gpu.pop_calls()
    launch()
    launch()
    calls = gpu.pop_calls()
    driver.synchronize()

    assert (123, ["cuGraphLaunch"] * 2, 3 * 123) == (recorded, calls, gpu.clock_ns - start)


def test_one_time_work_is_not_recorded(gpu: FakeGpu) -> None:
    """A runtime that waits for the GPU in its first call can be recorded."""
    driver = cuda.Driver()
    first = [True]

    def enqueue() -> None:
        gpu.launch(driver.stream.value, 1)
        if first.pop() if first else False:
            driver.synchronize()

    cuda_graphs.capture(driver, enqueue)()

    assert [] == first
    assert ["cuGraphLaunch"] == [call for call in gpu.pop_calls() if call == "cuGraphLaunch"]


def test_a_wait_cannot_be_recorded(gpu: FakeGpu) -> None:
    """The error says so, and what to omit; the stream remains usable."""
    driver = cuda.Driver()

    def enqueue() -> None:
        gpu.launch(driver.stream.value, 5)
        driver.synchronize()

    with pytest.raises(UnsupportedError, match=r"CAPTURE_INVALIDATED.*compile it without cuda_graph"):
        cuda_graphs.capture(driver, enqueue)

    start = gpu.clock_ns
    enqueue()
    assert 5 == gpu.clock_ns - start


def test_the_default_stream_cannot_be_recorded(gpu: FakeGpu) -> None:
    """A graph needs a stream of its own."""
    with pytest.raises(UnsupportedError, match="CAPTURE_UNSUPPORTED"):
        cuda_graphs.capture(cuda.Driver(0), lambda: None)
