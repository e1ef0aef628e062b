"""The driver, on a GPU that is not there."""

import re

import numpy as np
import pytest
from hardware.accelerators.faking import FakeGpu

from ngbkit.device.child import _OUT_OF_MEMORY
from ngbkit.hardware.accelerators import cuda


def test_what_is_uploaded_comes_back(gpu: FakeGpu) -> None:
    """Also an array without elements."""
    driver = cuda.Driver()
    for array in (np.arange(12, dtype=np.float32).reshape(3, 4), np.empty((0, 4), np.int64)):
        address = driver.allocate(array.nbytes)
        driver.upload(address, array)

        np.testing.assert_array_equal(array, driver.download(address, np.empty_like(array)))


def test_what_is_freed_is_the_gpus_again(gpu: FakeGpu) -> None:
    """Memory that was given back is not in use."""
    driver = cuda.Driver()
    before = gpu.used
    address = driver.allocate(1 << 20)
    during = gpu.used
    driver.free(address)

    assert (before + (1 << 20), before) == (during, gpu.used)


def test_an_error_says_which_call_and_what(gpu: FakeGpu) -> None:
    """The driver's own name for it, its number and its text, by which a trial is told to be out of memory."""
    driver = cuda.Driver()
    with pytest.raises(RuntimeError) as caught:
        driver.allocate(1 << 40)

    assert "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2: out of memory)" == str(caught.value)
    assert _OUT_OF_MEMORY.search(str(caught.value))


def test_an_error_without_a_name_is_told_by_its_number(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer than the driver's own list of them."""
    monkeypatch.setenv("FAKE_CUDA_FAIL", "cuDeviceGet:9999")

    with pytest.raises(RuntimeError, match=re.escape("cuDeviceGet: CUDA error (9999: unknown to this driver)")):
        cuda.Driver()


def test_its_stream_is_its_own_unless_one_is_given(gpu: FakeGpu) -> None:
    """Two drivers work on two streams; 0 is CUDA's default stream."""
    one, other = cuda.Driver(), cuda.Driver()

    assert one.stream.value
    assert one.stream.value != other.stream.value
    assert cuda.Driver(one.stream.value).stream.value == one.stream.value
    assert not cuda.Driver(0).stream.value


def test_synchronising_waits_for_the_stream_and_not_for_others(gpu: FakeGpu) -> None:
    """Waiting for a stream makes its work done; waiting for all makes all done."""
    one, other = cuda.Driver(), cuda.Driver()
    began = gpu.clock_ns
    gpu.launch(one.stream.value, 1000)
    gpu.launch(other.stream.value, 10)
    one.synchronize()
    of_one = gpu.clock_ns - began
    one.synchronize_all()

    assert (1000, 1010) == (of_one, gpu.clock_ns - began)


def test_a_download_waits_for_the_stream(gpu: FakeGpu) -> None:
    """What is fetched is what the work that was enqueued before made."""
    driver = cuda.Driver()
    array = np.ones(4, np.uint8)
    address = driver.allocate(array.nbytes)
    driver.upload(address, array)
    driver.call("cuMemsetD8Async", cuda.ctypes.c_uint64(address), 7, cuda.ctypes.c_size_t(4), driver.stream)

    assert [7] * 4 == driver.download(address, array).tolist()


def test_the_gpu_is_known_by_what_it_has(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name, place, memory, caches, instructions: as the driver tells them."""
    monkeypatch.setenv("FAKE_CUDA_CAPABILITY", "120")
    monkeypatch.setenv("FAKE_CUDA_L2", "52428800")
    driver = cuda.Driver()

    assert "Fake GPU" == driver.name
    assert "0000:01:00.0" == driver.bus_id
    assert 1 << 30 == driver.total_memory
    assert 52428800 == driver.l2_bytes
    assert 8 == driver.multiprocessors
    assert driver.integrated
    assert (12, 0) == driver.compute_capability
    assert "13.1" == driver.cuda_version
