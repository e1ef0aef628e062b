"""What a network launches, recorded."""

import pytest
from hardware.accelerators.faking import FakeGpu

from ngbkit.errors import UnsupportedError
from ngbkit.hardware.accelerators import cuda, graphs


def test_a_graph_launches_what_was_recorded(gpu: FakeGpu) -> None:
    """All of it, by one call, as often as it is launched; recording it is no call of it but the first."""
    driver = cuda.Driver()

    def enqueue() -> None:
        gpu.launch(driver.stream.value, 100)
        gpu.launch(driver.stream.value, 23)

    began = gpu.clock_ns
    launch = graphs.capture(driver, enqueue)
    driver.synchronize()
    recorded = gpu.clock_ns - began
    gpu.calls()
    launch()
    launch()
    calls = gpu.calls()
    driver.synchronize()

    assert (123, ["cuGraphLaunch"] * 2, 3 * 123) == (recorded, calls, gpu.clock_ns - began)


def test_what_is_done_only_the_first_time_is_not_recorded(gpu: FakeGpu) -> None:
    """A runtime that waits for the GPU in its first call is recorded all the same."""
    driver = cuda.Driver()
    first = [True]

    def enqueue() -> None:
        gpu.launch(driver.stream.value, 1)
        if first.pop() if first else False:
            driver.synchronize()

    graphs.capture(driver, enqueue)()

    assert [] == first
    assert ["cuGraphLaunch"] == [call for call in gpu.calls() if call == "cuGraphLaunch"]


def test_what_waits_cannot_be_recorded(gpu: FakeGpu) -> None:
    """The reason says so, and how to do without; the stream can be used on."""
    driver = cuda.Driver()

    def enqueue() -> None:
        gpu.launch(driver.stream.value, 5)
        driver.synchronize()

    with pytest.raises(UnsupportedError, match=r"CAPTURE_INVALIDATED.*compile it without cuda_graph"):
        graphs.capture(driver, enqueue)

    began = gpu.clock_ns
    enqueue()
    assert 5 == gpu.clock_ns - began


def test_the_default_stream_cannot_be_recorded(gpu: FakeGpu) -> None:
    """A graph needs a stream of its own."""
    with pytest.raises(UnsupportedError, match="CAPTURE_UNSUPPORTED"):
        graphs.capture(cuda.Driver(0), lambda: None)
