"""The CUDA driver, by ctypes: one context, one stream, memory; it is there wherever an NVIDIA GPU works.

A process that has once asked CUDA anything cannot fork children that use it. So `Driver` is for the child that
compiles and runs; `lacks`, `describe` and `compute_capability` may be asked anywhere.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from ngbkit.hardware.accelerators.probing import compute_capability, describe, lacks

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Driver", "compute_capability", "describe", "lacks"]

LIBRARY = "libcuda.so.1"

# Of CUdevice_attribute in cuda.h.
_MULTIPROCESSORS = 16
_INTEGRATED = 18
_L2_CACHE_SIZE = 38
_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76

_BUS_ID_LENGTH = 32
_NAME_LENGTH = 256


class Driver:
    """The primary context of the first GPU that this process may see, current in this thread, and a stream on it.

    What it allocates lives until `free`, or as long as the process. The context is the one that TensorRT, torch and
    ONNX Runtime use as well, through the CUDA runtime.

    Parameters
    ----------
    stream
        A ``CUstream`` of somebody else's, as a number, to work on; 0 is CUDA's default stream. Without one it makes a
        stream of its own.

    Attributes
    ----------
    stream : ctypes.c_void_p
        The stream; ``stream.value`` is its number, and None for CUDA's default stream.

    Raises
    ------
    OSError
        There is no driver.
    RuntimeError
        The driver gives an error, which the message names: here, and in each call.
    """

    def __init__(self, stream: int | None = None) -> None:
        self._library = ctypes.CDLL(LIBRARY)
        self._device = ctypes.c_int()
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(self._device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self.call("cuCtxSetCurrent", context)
        self.stream = ctypes.c_void_p(stream)
        if stream is None:
            # Not of the non-blocking kind, for it must wait for uploads: a call may return before its copy is done.
            self.call("cuStreamCreate", ctypes.byref(self.stream), 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver; what is no C ``int`` comes as a ctypes value."""
        code = getattr(self._library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: {name_error(self._library, code)}")

    def allocate(self, size: int) -> int:
        """The address of `size` new bytes on the GPU."""
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, address: int) -> None:
        """Give back what `allocate` gave."""
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
        """Wait until all work on the stream is done."""
        self.call("cuStreamSynchronize", self.stream)

    def synchronize_all(self) -> None:
        """Wait until all work of this process is done, whatever the stream."""
        self.call("cuCtxSynchronize")

    @property
    def name(self) -> str:
        """What the GPU is called."""
        text = ctypes.create_string_buffer(_NAME_LENGTH)
        self.call("cuDeviceGetName", text, _NAME_LENGTH, self._device)
        return text.value.decode()

    @property
    def bus_id(self) -> str:
        """Where on the PCI bus the GPU sits, which is what NVML knows it by: ``"0000:01:00.0"``."""
        text = ctypes.create_string_buffer(_BUS_ID_LENGTH)
        self.call("cuDeviceGetPCIBusId", text, _BUS_ID_LENGTH, self._device)
        return text.value.decode()

    @property
    def total_memory(self) -> int:
        """Bytes of memory that the GPU has; one that shares the CPU's tells that."""
        size = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(size), self._device)
        return size.value

    @property
    def l2_bytes(self) -> int:
        """The size of the GPU's L2 cache; 0 where the driver does not tell."""
        return self._attribute(_L2_CACHE_SIZE)

    @property
    def multiprocessors(self) -> int:
        """How many streaming multiprocessors the GPU has."""
        return self._attribute(_MULTIPROCESSORS)

    @property
    def integrated(self) -> bool:
        """Whether the GPU shares its memory with the CPU, as on a Jetson."""
        return bool(self._attribute(_INTEGRATED))

    @property
    def compute_capability(self) -> tuple[int, int]:
        """What the GPU's instructions are known by: ``(8, 7)``."""
        return self._attribute(_CAPABILITY_MAJOR), self._attribute(_CAPABILITY_MINOR)

    @property
    def cuda_version(self) -> str:
        """The newest CUDA that the driver can serve: ``"13.0"``."""
        number = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def _attribute(self, number: int) -> int:
        found = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(found), number, self._device)
        return found.value


def name_error(library: ctypes.CDLL, code: int) -> str:
    """What the driver calls one of its errors, and says of it: ``"CUDA_ERROR_OUT_OF_MEMORY (2: out of memory)"``."""
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    library.cuGetErrorName(code, ctypes.byref(name))
    library.cuGetErrorString(code, ctypes.byref(text))
    return f"{(name.value or b'CUDA error').decode()} ({code}: {(text.value or b'unknown to this driver').decode()})"
