"""The CUDA driver by ctypes: one context, one stream, memory; available wherever an NVIDIA GPU works.

A process that has once called CUDA cannot fork children that use it. So `Driver` is for the child that compiles and
runs; `find_problem`, `describe` and `read_compute_capability` are safe anywhere.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.hardware.accelerators.probing import describe, find_problem, read_compute_capability

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Driver", "describe", "find_problem", "is_initialised", "read_compute_capability", "set_cache"]

LIBRARY = "libcuda.so.1"

# From CUdevice_attribute in cuda.h.
_MULTIPROCESSORS = 16
_INTEGRATED = 18
_L2_CACHE_SIZE = 38
_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76

_BUS_ID_LENGTH = 32
_NAME_LENGTH = 256


def set_cache(folder: Path) -> None:
    """Let the driver cache below `folder` what it compiles for this GPU; call it before this process first calls CUDA.

    A library without code for a GPU brings an intermediate form, PTX, which the driver compiles at the first call. Its
    own cache, in the user's home, would make every compile but the first one a warm one.
    """
    os.environ["CUDA_CACHE_PATH"] = str(folder)


def is_initialised() -> bool:
    """Return whether this process has called CUDA: children that it forks from then on cannot use a GPU."""
    try:
        library = ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    # Every function but one is an error before the driver is initialised, and where no GPU is visible.
    return not library.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))


class Driver:
    """The primary context of the first GPU visible to this process, current in this thread, and a stream on it.

    Its allocations last until `free`, or as long as the process. TensorRT, torch and ONNX Runtime use the same context
    through the CUDA runtime. `stream` is the number of an existing ``CUstream``, 0 for CUDA's default stream; without
    it the driver creates one. Raises OSError without a driver, and RuntimeError, here and in each call, with the
    driver's error.
    """

    def __init__(self, stream: int | None = None) -> None:
        self._library = ctypes.CDLL(LIBRARY)
        self._device = ctypes.c_int()
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(self._device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self.call("cuCtxSetCurrent", context)
        # Its `value` is None for CUDA's default stream.
        self.stream = ctypes.c_void_p(stream)
        if stream is None:
            # Not a non-blocking stream, since it must wait for uploads: a call may return before its copy is complete.
            self.call("cuStreamCreate", ctypes.byref(self.stream), 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver; an argument that is no C ``int`` must be a ctypes value."""
        code = getattr(self._library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: {name_error(self._library, code)}")

    def allocate(self, size: int) -> int:
        """Allocate `size` bytes on the GPU and return their address."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, address: int) -> None:
        """Free an allocation of `allocate`."""
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def upload(self, address: int, array: np.ndarray) -> None:
        """Copy a C-contiguous array to the GPU."""
        self.call(
            "cuMemcpyHtoD_v2",
            ctypes.c_uint64(address),
            ctypes.c_void_p(array.ctypes.data),
            ctypes.c_size_t(array.nbytes),
        )

    def download(self, address: int, array: np.ndarray) -> np.ndarray:
        """Fill a C-contiguous array from the GPU, and return it."""
        self.call(
            "cuMemcpyDtoH_v2",
            ctypes.c_void_p(array.ctypes.data),
            ctypes.c_uint64(address),
            ctypes.c_size_t(array.nbytes),
        )
        return array

    def synchronize(self) -> None:
        """Wait until all work on the stream is complete."""
        self.call("cuStreamSynchronize", self.stream)

    def synchronize_all(self) -> None:
        """Wait until all work of this process is complete, on any stream."""
        self.call("cuCtxSynchronize")

    @property
    def name(self) -> str:
        """The GPU's name."""
        text = ctypes.create_string_buffer(_NAME_LENGTH)
        self.call("cuDeviceGetName", text, _NAME_LENGTH, self._device)
        return text.value.decode()

    @property
    def bus_id(self) -> str:
        """The GPU's address on the PCI bus, by which NVML identifies it: ``"0000:01:00.0"``."""
        text = ctypes.create_string_buffer(_BUS_ID_LENGTH)
        self.call("cuDeviceGetPCIBusId", text, _BUS_ID_LENGTH, self._device)
        return text.value.decode()

    @property
    def total_memory(self) -> int:
        """Bytes of the GPU's memory; of the CPU's if the GPU shares it."""
        size = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(size), self._device)
        return size.value

    @property
    def l2_bytes(self) -> int:
        """Bytes of the GPU's L2 cache; 0 if the driver does not report it."""
        return self._query_attribute(_L2_CACHE_SIZE)

    @property
    def multiprocessors(self) -> int:
        """The number of the GPU's streaming multiprocessors."""
        return self._query_attribute(_MULTIPROCESSORS)

    @property
    def integrated(self) -> bool:
        """True if the GPU shares its memory with the CPU, as on a Jetson."""
        return bool(self._query_attribute(_INTEGRATED))

    @property
    def compute_capability(self) -> tuple[int, int]:
        """The version of the GPU's instruction set: ``(8, 7)``."""
        return self._query_attribute(_CAPABILITY_MAJOR), self._query_attribute(_CAPABILITY_MINOR)

    @property
    def cuda_version(self) -> str:
        """The newest CUDA that the driver supports: ``"13.0"``."""
        number = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def _query_attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value


def name_error(library: ctypes.CDLL, code: int) -> str:
    """Name an error of the driver, with its text: ``"CUDA_ERROR_OUT_OF_MEMORY (2: out of memory)"``."""
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    library.cuGetErrorName(code, ctypes.byref(name))
    library.cuGetErrorString(code, ctypes.byref(text))
    return f"{(name.value or b'CUDA error').decode()} ({code}: {(text.value or b'unknown to this driver').decode()})"
