"""What TVM compiles for on this machine, and whether the versions that are installed can tune."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ngbkit.errors import UnsupportedError
from ngbkit.registry import version

if TYPE_CHECKING:
    from collections.abc import Mapping

# What every CUDA GPU lets a block of threads have, without asking for more.
_GPU_LIMITS = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 48 << 10, "thread_warp_size": 32}
# MetaSchedule of TVM 0.27 crashes with a segmentation fault beside this and all later releases.
_CRASHING_FFI = (0, 1, 15)
_INSTALL = "pip install 'ngbkit[tvm]'"


def find_target(accelerator: str, threads: int, capability: tuple[int, int] | None = None) -> Any:
    """The target for this machine's CPU with that many threads, or for a GPU of that compute capability.

    Parameters
    ----------
    accelerator
        ``"cpu"`` or ``"cuda"``.
    threads
        Of the CPU.
    capability
        Of the GPU, such as ``(9, 0)``; default: asked of the first one.
    """
    from ngbkit.compilers.tvm_runtime import tvm

    cpu = {"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": threads}
    if accelerator == "cpu":
        return tvm.target.Target(cpu)
    if capability is None:
        from ngbkit.hardware.accelerators import cuda

        capability = cuda.compute_capability()
    arch = f"sm_{capability[0]}{capability[1]}"
    return tvm.target.Target({"kind": "cuda", "arch": arch, **_GPU_LIMITS, "host": cpu})


def find_device(accelerator: str) -> Any:
    """The device that TVM runs on; a GPU is always the first that this process may see."""
    from ngbkit.compilers.tvm_runtime import tvm

    return tvm.cuda(0) if accelerator == "cuda" else tvm.cpu(0)


def versions() -> dict[str, str]:
    """The versions that decide what code TVM makes."""
    return {name: str(version(name)) for name in ("apache-tvm", "apache-tvm-ffi")}


def check_tuning(installed: Mapping[str, str]) -> None:
    """Refuse to tune with packages that cannot.

    Raises
    ------
    UnsupportedError
        XGBoost or cloudpickle is missing, or TVM and its FFI are a pair that is known to crash.
    """
    missing = [module for module in ("xgboost", "cloudpickle") if find_spec(module) is None]
    if missing:
        raise UnsupportedError(f"tuning needs {' and '.join(missing)}, not installed here; get it by: {_INSTALL}")
    tvm, ffi = installed["apache-tvm"], installed["apache-tvm-ffi"]
    if tvm.startswith("0.27.") and _release(ffi) >= _CRASHING_FFI:
        raise UnsupportedError(
            f"MetaSchedule of apache-tvm {tvm} crashes beside apache-tvm-ffi {ffi}; "
            f"the pair that works is pinned: {_INSTALL}"
        )


def _release(text: str) -> tuple[int, ...]:
    numbers = []
    for part in text.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
