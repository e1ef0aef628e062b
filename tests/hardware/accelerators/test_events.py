"""Timing by events, on a GPU whose clock is virtual and therefore exact."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hardware.accelerators.faking import FakeGpu

from ngbkit.device.timing.sampling import sample
from ngbkit.errors import DeviceError
from ngbkit.hardware.accelerators import cuda, events

CALL_NS = 2_000_000
SAMPLE = ["cuEventRecord", "launch", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime"]


@pytest.fixture
def driver(gpu: FakeGpu) -> cuda.Driver:
    """A stream to work on."""
    return cuda.Driver()


def _network(gpu: FakeGpu, driver: cuda.Driver) -> Callable[[], None]:
    return lambda: gpu.launch(driver.stream.value, CALL_NS)


def test_a_call_takes_what_the_gpu_takes(gpu: FakeGpu, driver: cuda.Driver) -> None:
    """In seconds a call, whether one is timed or several."""
    measure = events.timer(_network(gpu, driver), driver.stream.value or 0)

    assert pytest.approx([2e-3, 2e-3, 2e-3]) == [measure(1), measure(5), measure(1)]


def test_what_was_on_the_stream_before_is_not_timed(gpu: FakeGpu, driver: cuda.Driver) -> None:
    """The first event is taken when earlier work is done."""
    measure = events.timer(_network(gpu, driver), driver.stream.value or 0)
    gpu.launch(driver.stream.value, 50 * CALL_NS)

    assert pytest.approx(2e-3) == measure(1)


def test_the_default_stream_can_be_timed(gpu: FakeGpu) -> None:
    """It is where torch works, and its number is 0."""
    assert pytest.approx(2e-3) == events.timer(lambda: gpu.launch(None, CALL_NS), 0)(3)


def test_a_flush_overwrites_twice_the_cache(gpu: FakeGpu, driver: cuda.Driver) -> None:
    """What was in its buffer is not there any more when it has waited."""
    flush = events.Flush(driver.stream.value or 0, wait=True)
    written = np.full(flush.size, 7, np.uint8)
    driver.upload(flush._address.value, written)
    flush()

    assert 2 * driver.l2_bytes == flush.size
    assert not driver.download(flush._address.value, written).any()


def test_events_time_no_flush(gpu: FakeGpu, driver: cuda.Driver) -> None:
    """Each call of a block has its own, which nothing waits for, and none of it is in the sample."""
    method = events.choose(_network(gpu, driver), driver.stream.value or 0, gpu_timer="events", flush_l2=True)
    gpu.calls()
    samples = sample(lambda: None, 2, block=3, measure=method.measure, before=method.before)

    assert pytest.approx([CALL_NS, CALL_NS]) == samples
    assert ["cuMemsetD8Async", *SAMPLE] * 6 == gpu.calls()
    assert ("events", True) == (method.clock, method.flushed)


def test_the_hosts_clock_starts_when_the_cache_is_written(gpu: FakeGpu, driver: cuda.Driver) -> None:
    """By the host's clock a flush is waited for before the call."""
    network = _network(gpu, driver)

    def run() -> None:
        network()
        driver.synchronize()

    seen: list[int] = []
    method = events.choose(network, driver.stream.value or 0, gpu_timer="host", flush_l2=True)
    gpu.calls()
    sample(
        run, 2, clock=lambda: seen.append(gpu.clock_ns) or gpu.clock_ns, before=method.before, measure=method.measure
    )

    assert ["cuMemsetD8Async", "cuStreamSynchronize", "launch", "cuStreamSynchronize"] * 2 == gpu.calls()
    assert [CALL_NS, CALL_NS] == [seen[1] - seen[0], seen[3] - seen[2]]
    assert ("host", True) == (method.clock, method.flushed)


def test_the_hosts_clock_alone_needs_nothing_of_the_gpu(gpu: FakeGpu) -> None:
    """Nor is the driver asked anything."""
    method = events.choose(None, 0, gpu_timer="host", flush_l2=False)

    assert events.Method() == method
    assert [] == gpu.calls()


def test_a_program_that_cannot_enqueue_is_timed_by_the_host(gpu: FakeGpu) -> None:
    """And what is said of it is the truth: a flush that is waited for, and the host's clock."""
    method = events.choose(None, 0, gpu_timer="events", flush_l2=True)
    assert method.before is not None
    gpu.calls()
    method.before()

    assert (None, "host", True) == (method.measure, method.clock, method.flushed)
    assert ["cuMemsetD8Async", "cuStreamSynchronize"] == gpu.calls()


def test_a_cache_of_unknown_size_cannot_be_flushed(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to leave out."""
    monkeypatch.setenv("FAKE_CUDA_L2", "0")

    with pytest.raises(DeviceError, match="does not tell the L2 cache of Fake GPU; measure without flush_l2"):
        events.choose(None, 0, gpu_timer="host", flush_l2=True)
