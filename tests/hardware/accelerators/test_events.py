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
    """A driver with a stream."""
    return cuda.Driver()


def _network(gpu: FakeGpu, driver: cuda.Driver) -> Callable[[], None]:
    return lambda: gpu.launch(driver.stream.value, CALL_NS)


def test_a_call_has_the_duration_on_the_gpu(gpu: FakeGpu, driver: cuda.Driver) -> None:
    """The timer returns seconds per call for one call and for several."""
    measure = events.build_timer(_network(gpu, driver), driver.stream.value or 0)

    assert pytest.approx([2e-3, 2e-3, 2e-3]) == [measure(1), measure(5), measure(1)]


def test_earlier_work_on_the_stream_is_not_timed(gpu: FakeGpu, driver: cuda.Driver) -> None:
    """The first event is recorded after earlier work."""
    measure = events.build_timer(_network(gpu, driver), driver.stream.value or 0)
    gpu.launch(driver.stream.value, 50 * CALL_NS)

    assert pytest.approx(2e-3) == measure(1)


def test_the_default_stream_can_be_timed(gpu: FakeGpu) -> None:
    """Torch uses it, and its number is 0."""
    assert pytest.approx(2e-3) == events.build_timer(lambda: gpu.launch(None, CALL_NS), 0)(3)


def test_a_flush_overwrites_twice_the_cache(gpu: FakeGpu, driver: cuda.Driver) -> None:
    """The flush overwrites twice the size of the cache."""
    flush = events.Flush(driver.stream.value or 0, wait=True)
    content = np.full(flush.size, 7, np.uint8)
    driver.upload(flush._address.value, content)
    flush()

    assert 2 * driver.l2_bytes == flush.size
    assert not driver.download(flush._address.value, content).any()


def test_events_time_no_flush(gpu: FakeGpu, driver: cuda.Driver) -> None:
    """Each call of a block has its own flush, without a wait, and outside of the sample."""
    method = events.choose_method(_network(gpu, driver), driver.stream.value or 0, gpu_timer="events", flush_l2=True)
    gpu.pop_calls()
    samples = sample(lambda: None, 2, block=3, measure=method.measure, prepare=method.prepare)

    assert pytest.approx([CALL_NS, CALL_NS]) == samples
    assert ["cuMemsetD8Async", *SAMPLE] * 6 == gpu.pop_calls()
    assert ("events", True) == (method.clock, method.flushed)


def test_the_hosts_clock_starts_when_the_cache_is_written(gpu: FakeGpu, driver: cuda.Driver) -> None:
    """The host's clock starts after the flush of the cache has ended."""
    network = _network(gpu, driver)

    def run() -> None:
        network()
        driver.synchronize()

    times: list[int] = []
    method = events.choose_method(network, driver.stream.value or 0, gpu_timer="host", flush_l2=True)
    gpu.pop_calls()
    sample(
        run, 2, clock=lambda: times.append(gpu.clock_ns) or gpu.clock_ns, prepare=method.prepare, measure=method.measure
    )

    assert ["cuMemsetD8Async", "cuStreamSynchronize", "launch", "cuStreamSynchronize"] * 2 == gpu.pop_calls()
    # The clock is read before, to know how long that takes.
    assert [CALL_NS, CALL_NS] == [times[-3] - times[-4], times[-1] - times[-2]]
    assert ("host", True) == (method.clock, method.flushed)


def test_the_hosts_clock_alone_needs_nothing_of_the_gpu(gpu: FakeGpu) -> None:
    """The driver is not called either."""
    method = events.choose_method(None, 0, gpu_timer="host", flush_l2=False)

    assert events.Method() == method
    assert [] == gpu.pop_calls()


def test_a_program_that_cannot_enqueue_is_timed_by_the_host(gpu: FakeGpu) -> None:
    """The method reports that: a flush with a wait, and the host's clock."""
    method = events.choose_method(None, 0, gpu_timer="events", flush_l2=True)
    assert method.prepare is not None
    gpu.pop_calls()
    method.prepare()

    assert (None, "host", True) == (method.measure, method.clock, method.flushed)
    assert ["cuMemsetD8Async", "cuStreamSynchronize"] == gpu.pop_calls()


def test_a_cache_of_unknown_size_cannot_be_flushed(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the option to omit."""
    monkeypatch.setenv("FAKE_CUDA_L2", "0")

    with pytest.raises(DeviceError, match="does not report the L2 cache of Fake GPU; measure without flush_l2"):
        events.choose_method(None, 0, gpu_timer="host", flush_l2=True)
