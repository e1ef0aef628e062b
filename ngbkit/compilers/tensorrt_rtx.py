"""NVIDIA TensorRT-RTX from an ONNX file, as the execution provider that plugs into ONNX Runtime.

Its package changes the process that imports it: it writes links beside its libraries and loads them all, and they want
the driver. So it is imported in the child that compiles and in the one that probes, and nowhere else.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import onnxruntime as runtime
from ngbkit.compilers import onnxruntime_session as strict
from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.compilers.onnxruntime_session import Provider
from ngbkit.errors import UnsupportedError
from ngbkit.registry import version
from ngbkit.sweep.records import Contract

if TYPE_CHECKING:
    from ngbkit.hardware.accelerators.cuda import Driver

PROVIDER = "NvTensorRTRTXExecutionProvider"
#: The distribution that brings it here: there is one for each CUDA.
PACKAGE = next(
    (name for name in (f"onnxruntime-ep-nv-tensorrt-rtx-cu{cuda}" for cuda in (13, 12)) if version(name)),
    "onnxruntime-ep-nv-tensorrt-rtx-cu13",
)

_MODULE = "onnxruntime_ep_nv_tensorrt_rtx"
_LEVEL = "all"
# The provider has no option for it, and TensorRT's own default is tf32. All of NVIDIA's libraries read this one.
_TF32 = "NVIDIA_TF32_OVERRIDE"


def compile(task: Task) -> Program:
    """Build an engine from the ONNX file of `task`, or load what is kept of it, and bind its tensors on the GPU.

    Raises
    ------
    UnsupportedError
        The provider offers no device, does not come, or takes no node of the network.
    """
    from ngbkit.hardware.accelerators.cuda import Driver

    driver = Driver()
    _choose_tf32(str(task.options["precision"]))
    devices = find_devices()
    kept = _Kept.of(task, driver)
    provider = _provider(task, driver, devices, kept)
    session, cache = _load_or_build(task, provider, kept)
    return strict.gpu_program(
        task,
        session,
        driver,
        Contract(
            runtime=f"onnxruntime {PROVIDER}",
            precision=str(task.options["precision"]),
            threads=task.threads,
            transfers="excluded",
            notes="CUDA graph" if task.options["cuda_graph"] else "",
        ),
        {"provider": PROVIDER, "cache": cache},
        lambda: strict.explain(
            task,
            runtime.make_settings(task, _LEVEL, spinning=False),
            provider,
            lambda session: strict.bind_on_gpu(session, task, driver)[0],
            onnx=kept.engine if kept.engine.exists() else _source(task),
        ),
    )


def _choose_tf32(precision: str) -> None:
    """Say whether f32 may be multiplied as tf32, before the library is loaded, in this child alone."""
    if precision == "tf32":
        os.environ.pop(_TF32, None)
    else:
        os.environ[_TF32] = "0"


def find_devices() -> list[Any]:
    """The first GPU as the provider's device, in a list of its own.

    Raises
    ------
    UnsupportedError
        The provider offers none. ONNX Runtime would compute on the CPU then, and only warn.
    """
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    _register()
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER]
    if not devices:
        raise UnsupportedError(
            f"{PROVIDER} offers no device for this GPU: {PACKAGE} {version(PACKAGE)} serves RTX GPUs alone, see "
            "NVIDIA's support matrix of TensorRT-RTX, and use the compiler tensorrt or onnxruntime on others"
        )
    return sorted(devices, key=lambda device: int(dict(device.ep_options).get("device_id", "0")))[:1]


@functools.cache
def _register() -> None:
    """Load the provider into this process, once: a second time is an error."""
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    plugin = importlib.import_module(_MODULE)
    onnxruntime.register_execution_provider_library(PROVIDER, plugin.get_library_path())


def _provider(task: Task, driver: Driver, devices: list[Any], kept: _Kept) -> Provider:
    return Provider(
        name=PROVIDER,
        options={
            "has_user_compute_stream": "1",
            "user_compute_stream": str(driver.stream.value or 0),
            "enable_cuda_graph": str(int(bool(task.options["cuda_graph"]))),
            "nv_runtime_cache_path": str(kept.kernels),
        },
        devices=devices,
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """Where an engine is kept, and the kernels that were compiled for it; the provider writes those as it closes."""

    folder: Path

    @classmethod
    def of(cls, task: Task, driver: Driver) -> _Kept:
        assert task.onnx is not None
        machine = (driver.name, str(driver.compute_capability), driver.cuda_version)
        versions = (PACKAGE, str(version(PACKAGE)), str(version(runtime.PACKAGE)))
        options = (str(task.options["precision"]), str(task.options["cuda_graph"]))
        name = hashlib.sha256("\0".join((*options, *versions, *machine)).encode())
        with task.onnx.open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                name.update(block)
        return cls(task.cache / "tensorrt-rtx" / name.hexdigest()[:16])

    @property
    def engine(self) -> Path:
        return self.folder / "engine" / "network.onnx"

    @property
    def kernels(self) -> Path:
        return self.folder / "kernels"


def _load_or_build(task: Task, provider: Provider, kept: _Kept) -> tuple[Any, str]:
    """A session, and whether its engine was kept."""
    if kept.engine.exists():
        try:
            session = strict.open_session(kept.engine, runtime.make_settings(task, _LEVEL, spinning=False), provider)
        except Exception:  # noqa: BLE001  whatever is wrong with what was kept, it can be made again
            shutil.rmtree(kept.engine.parent)
        else:
            return session, "hit"
    return _build(task, provider, kept), "miss"


def _build(task: Task, provider: Provider, kept: _Kept) -> Any:
    """A session on the network itself, which leaves its engine as an ONNX file with a file beside it."""
    # A child that is killed while it writes leaves nothing that the next one would take for an engine.
    part = kept.folder / "part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    settings = runtime.make_settings(task, _LEVEL, spinning=False)
    settings.add_session_config_entry("ep.context_enable", "1")
    settings.add_session_config_entry("ep.context_file_path", str(part / kept.engine.name))
    # The engine apart: embedded, it may not be larger than 2 GB.
    settings.add_session_config_entry("ep.context_embed_mode", "0")
    session = strict.open_session(_source(task), settings, provider)
    if (part / kept.engine.name).exists():
        part.replace(kept.engine.parent)
    return session


def _source(task: Task) -> Path | bytes:
    """What to build from: the provider computes each node in the precision that the graph gives it."""
    assert task.onnx is not None
    if task.options["precision"] != "f16":
        return task.onnx
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    converted: bytes = convert_float_to_float16(onnx.load(str(task.onnx)), keep_io_types=True).SerializeToString()
    return converted


def lacks_gpu() -> str:
    """Why TensorRT-RTX cannot work here: no driver, no GPU that this process may see, or what the provider says."""
    from ngbkit.hardware.accelerators import cuda

    return cuda.lacks("tensorrt-rtx", f"from {__name__} import diagnose; print(diagnose(), end='')")


def diagnose() -> str:
    """Why the provider offers no device, found in this very process by loading it; ``""`` where it does."""
    try:
        find_devices()
    except UnsupportedError as error:
        return str(error)
    return ""


COMPILER = Compiler(
    name="tensorrt-rtx",
    summary="NVIDIA TensorRT-RTX through ONNX Runtime, on an NVIDIA RTX GPU",
    forms={"onnx": ("ngbkit.compilers.onnxruntime_runtime",)},
    packages=(PACKAGE, runtime.PACKAGE),
    install="pip install 'ngbkit[tensorrt-rtx]'",
    compile=compile,
    caches=True,
    accelerators={"cuda": lacks_gpu},
    options={
        "precision": Option(
            default="f32",
            help="the precision to compute in; left to itself TensorRT picks tf32 for matrix products",
            choices=("f32", "tf32", "f16"),
        ),
        "cuda_graph": Option(
            default=False,
            help="record the kernels' launches once and replay them; it helps where the network is small",
            choices=(False, True),
        ),
    },
    refusals=(
        *runtime.REFUSALS,
        r"only supports RTX devices",
        r"does not support GPU with Compute Capability",
    ),
)
