"""A fake CUDA driver and TensorRT for tests without a GPU; they are no part of ngbkit."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ngbkit.compilers import tensorrt
from ngbkit.hardware.accelerators import cuda, probing

HERE = Path(__file__).parent
VISIBLE = "CUDA_VISIBLE_DEVICES"
# The compiler under a name for each version: the conformance suite caches its observations by name.
TENSORRT_10 = TENSORRT_11 = tensorrt.COMPILER


def build_driver(folder: Path) -> Path:
    """Compile the driver as ``libcuda.so.1`` in `folder`, and return the folder."""
    library = folder / "libcuda.so.1"
    command = ["g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([*command, str(HERE / "libcuda.cpp")], check=True)
    return folder


def install_tensorrt(folder: Path, version: str) -> None:
    """Install ``tensorrt`` of that version in `folder`, for use on the path."""
    shutil.copy(HERE / "fake_tensorrt.py", folder / "tensorrt.py")
    metadata = folder / f"tensorrt-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tensorrt\nVersion: {version}\n")


def show_driver(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let later processes find the driver in `folder`, and clear the cache of probes."""
    patch.setenv("LD_LIBRARY_PATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")])))
    patch.delenv(VISIBLE, raising=False)
    probing.clear_cache()


class FakeGpu:
    """The driver in this process, with the counters of a fake one."""

    def __init__(self, folder: Path) -> None:
        self.library = ctypes.CDLL(str(folder / "libcuda.so.1"))
        self.library.fake_calls.restype = ctypes.c_char_p
        self.library.fake_clock.restype = ctypes.c_uint64
        self.library.fake_used.restype = ctypes.c_size_t

    def pop_calls(self) -> list[str]:
        """Return the calls since the last time, and forget them."""
        calls: bytes = self.library.fake_calls()
        self.library.fake_forget()
        return calls.decode().split()

    def launch(self, stream: int | None, ns: int) -> None:
        """Put work on a stream that takes that long by the GPU's clock."""
        code = self.library.fake_launch(ctypes.c_void_p(stream), None, ctypes.c_uint64(ns))

        assert code == 0

    @property
    def clock_ns(self) -> int:
        return int(self.library.fake_clock())

    @property
    def used(self) -> int:
        return int(self.library.fake_used())


def adopt(folder: Path, patch: pytest.MonkeyPatch) -> FakeGpu:
    """Load the fake driver into this process, without the work that an earlier test has left in it."""
    patch.setattr(cuda, "LIBRARY", str(folder / "libcuda.so.1"))
    patch.delenv(VISIBLE, raising=False)
    gpu = FakeGpu(folder)
    gpu.library.fake_drop()
    gpu.pop_calls()
    return gpu
