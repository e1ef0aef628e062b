"""The targets that TVM compiles for on this machine, and a check that the installed list_versions can tune."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ngbkit.errors import UnsupportedError
from ngbkit.registry import find_version

if TYPE_CHECKING:
    from collections.abc import Mapping

# The resources of a block of threads that every CUDA GPU grants by default.
_GPU_LIMITS = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 48 << 10, "thread_warp_size": 32}
# MetaSchedule of TVM 0.27 segfaults with this release of its FFI and all later ones.
_CRASHING_FFI = (0, 1, 15)
_INSTALL = "pip install 'ngbkit[tvm]'"


def find_target(accelerator: str, threads: int, capability: tuple[int, int] | None = None) -> Any:
    """The target for this machine's CPU, or for a GPU of that `capability`, by default that of the first one."""
    from ngbkit.compilers.tvm_runtime import tvm

    cpu = {"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": threads}
    if accelerator == "cpu":
        return tvm.target.Target(cpu)
    if capability is None:
        from ngbkit.hardware.accelerators import cuda

        capability = cuda.read_compute_capability()
    arch = f"sm_{capability[0]}{capability[1]}"
    return tvm.target.Target({"kind": "cuda", "arch": arch, **_GPU_LIMITS, "host": cpu})


def find_device(accelerator: str) -> Any:
    """Return the device that TVM runs on; a GPU is always the first visible to this process."""
    from ngbkit.compilers.tvm_runtime import tvm

    return tvm.cuda(0) if accelerator == "cuda" else tvm.cpu(0)


def list_versions() -> dict[str, str]:
    """Return the versions of the packages that determine TVM's code."""
    return {name: str(find_version(name)) for name in ("apache-tvm", "apache-tvm-ffi")}


def check_tuning(installed: Mapping[str, str]) -> None:
    """Raise `UnsupportedError` if XGBoost or cloudpickle is missing, or TVM and its FFI are known to crash together."""
    missing = [module for module in ("xgboost", "cloudpickle") if find_spec(module) is None]
    if missing:
        raise UnsupportedError(f"tuning needs {' and '.join(missing)}, not installed here; install with: {_INSTALL}")
    tvm, ffi = installed["apache-tvm"], installed["apache-tvm-ffi"]
    if tvm.startswith("0.27.") and _parse_release(ffi) >= _CRASHING_FFI:
        raise UnsupportedError(
            f"MetaSchedule of apache-tvm {tvm} crashes with apache-tvm-ffi {ffi}; install a working pair with: "
            f"{_INSTALL}"
        )


def _parse_release(text: str) -> tuple[int, ...]:
    numbers = []
    for part in text.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
