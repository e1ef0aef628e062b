"""The CUDA driver, on a fake GPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hardware.accelerators.faking import FakeGpu

from ngbkit.hardware.accelerators import cuda
from ngbkit.limits import OUT_OF_MEMORY


def test_an_upload_can_be_downloaded(gpu: FakeGpu) -> None:
    """An uploaded array is downloaded unchanged, even one without elements."""
    driver = cuda.Driver()
    for array in (np.arange(12, dtype=np.float32).reshape(3, 4), np.empty((0, 4), np.int64)):
        address = driver.allocate(array.nbytes)
        driver.upload(address, array)

        np.testing.assert_array_equal(array, driver.download(address, np.empty_like(array)))


def test_freed_memory_is_not_in_use(gpu: FakeGpu) -> None:
    """The GPU's use falls to its earlier value."""
    driver = cuda.Driver()
    before = gpu.used
    address = driver.allocate(1 << 20)
    during = gpu.used
    driver.free(address)

    assert (before + (1 << 20), before) == (during, gpu.used)


def test_an_error_names_call_and_cause(gpu: FakeGpu) -> None:
    """The error of a CUDA call has the driver's own name, number and text."""
    driver = cuda.Driver()
    with pytest.raises(RuntimeError) as caught:
        driver.allocate(1 << 40)

    assert "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2: out of memory)" == str(caught.value)
    assert OUT_OF_MEMORY.search(str(caught.value))


def test_an_error_without_a_name_has_its_number(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA error that the driver cannot name has its number."""
    monkeypatch.setenv("FAKE_CUDA_FAIL", "cuDeviceGet:9999")

    with pytest.raises(RuntimeError, match=re.escape("cuDeviceGet: CUDA error (9999: unknown to this driver)")):
        cuda.Driver()


def test_its_stream_is_its_own_unless_one_is_given(gpu: FakeGpu) -> None:
    """Two drivers work on two streams; 0 is CUDA's default stream."""
    first, second = cuda.Driver(), cuda.Driver()

    assert first.stream.value
    assert first.stream.value != second.stream.value
    assert cuda.Driver(first.stream.value).stream.value == first.stream.value
    assert not cuda.Driver(0).stream.value


def test_synchronising_waits_for_the_stream_and_not_for_others(gpu: FakeGpu) -> None:
    """Waiting for a stream completes its work; waiting for all completes all."""
    first, second = cuda.Driver(), cuda.Driver()
    start = gpu.clock_ns
    gpu.launch(first.stream.value, 1000)
    gpu.launch(second.stream.value, 10)
    first.synchronize()
    of_first = gpu.clock_ns - start
    first.synchronize_all()

    assert (1000, 1010) == (of_first, gpu.clock_ns - start)


def test_a_download_waits_for_the_stream(gpu: FakeGpu) -> None:
    """A download returns the result of the work that was enqueued before."""
    driver = cuda.Driver()
    array = np.ones(4, np.uint8)
    address = driver.allocate(array.nbytes)
    driver.upload(address, array)
    driver.call("cuMemsetD8Async", cuda.ctypes.c_uint64(address), 7, cuda.ctypes.c_size_t(4), driver.stream)

    assert [7] * 4 == driver.download(address, array).tolist()


def test_the_gpu_has_properties(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU has a name, an address, memory, caches and instructions, as its driver reports them."""
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


def test_a_process_that_has_called_cuda_is_told_from_another(driver_folder: Path) -> None:
    """A process is initialised after its first CUDA call, not after it loads the driver."""
    program = f"""
import ctypes
from ngbkit.hardware.accelerators import cuda
cuda.LIBRARY = {str(driver_folder / "libcuda.so.1")!r}
states = [cuda.is_initialised()]
ctypes.CDLL(cuda.LIBRARY)
states.append(cuda.is_initialised())
cuda.Driver()
print([*states, cuda.is_initialised()])
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "[False, False, True]" == process.stdout.strip()


def test_the_driver_caches_in_the_given_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The driver reads this variable when it starts."""
    monkeypatch.delenv("CUDA_CACHE_PATH", raising=False)
    cuda.set_cache(tmp_path / "cuda")

    assert str(tmp_path / "cuda") == os.environ["CUDA_CACHE_PATH"]
