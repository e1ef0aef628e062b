"""NVIDIA TensorRT-RTX, from an ONNX file, through its execution provider for ONNX Runtime.

Importing its package changes the process: it writes links beside its libraries and loads them all, and they require the
driver. So only the compiling child and the probing child import it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import nvidia
from ngbkit.compilers import onnxruntime as runtime
from ngbkit.compilers import onnxruntime_session as strict
from ngbkit.compilers.base import Compiler, Program, Task
from ngbkit.compilers.onnxruntime_session import Provider
from ngbkit.errors import UnsupportedError
from ngbkit.files import read_chunks
from ngbkit.registry import find_version
from ngbkit.sweep.records import Contract

if TYPE_CHECKING:
    from ngbkit.hardware.accelerators.cuda import Driver

PROVIDER = "NvTensorRTRTXExecutionProvider"
#: The installed distribution of the provider: there is one per version of CUDA.
PACKAGE = next(
    (name for name in (f"onnxruntime-ep-nv-tensorrt-rtx-cu{cuda}" for cuda in (13, 12)) if find_version(name)),
    "onnxruntime-ep-nv-tensorrt-rtx-cu13",
)

_MODULE = "onnxruntime_ep_nv_tensorrt_rtx"
_LEVEL = "all"
# The provider has no option for tf32, which is TensorRT's own default; all of NVIDIA's libraries read this variable.
_TF32 = "NVIDIA_TF32_OVERRIDE"


def compile(task: Task) -> Program:
    """Build an engine from the ONNX file of `task`, unless the cache has one, and bind its tensors on the GPU."""
    from ngbkit.hardware.accelerators.cuda import Driver

    driver = Driver()
    _set_tf32(str(task.options["precision"]))
    devices = find_devices()
    cache = _CacheFolders.of(task, driver)
    provider = _build_provider(task, driver, devices, cache)
    session, outcome = _load_or_build(task, provider, cache)
    return strict.build_gpu_program(
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
        {"provider": PROVIDER, "cache": outcome},
        lambda: strict.explain(
            task,
            runtime.make_settings(task.threads, _LEVEL, spinning=False),
            provider,
            lambda session: partial(session.run_with_iobinding, strict.bind_on_gpu(session, task, driver).binding),
            onnx=cache.engine if cache.engine.exists() else _load_source(task),
        ),
    )


def _set_tf32(precision: str) -> None:
    """Allow or forbid tf32 products of f32, in this child only, before the library loads."""
    if precision == "tf32":
        os.environ.pop(_TF32, None)
    else:
        os.environ[_TF32] = "0"


def find_devices() -> list[Any]:
    """Return the provider's device for the first GPU, in a list; without one ONNX Runtime would use the CPU."""
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    _register()
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER]
    if not devices:
        raise UnsupportedError(
            f"{PROVIDER} offers no device for this GPU: {PACKAGE} {find_version(PACKAGE)} supports only RTX GPUs (see "
            "NVIDIA's support matrix of TensorRT-RTX); on others use tensorrt or onnxruntime"
        )
    return sorted(devices, key=lambda device: int(dict(device.ep_options).get("device_id", "0")))[:1]


@functools.cache
def _register() -> None:
    """Load the provider into this process, once, because a second time is an error."""
    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    plugin = importlib.import_module(_MODULE)
    onnxruntime.register_execution_provider_library(PROVIDER, plugin.get_library_path())


def _build_provider(task: Task, driver: Driver, devices: list[Any], cache: _CacheFolders) -> Provider:
    return Provider(
        name=PROVIDER,
        options={
            "has_user_compute_stream": "1",
            "user_compute_stream": str(driver.stream.value or 0),
            "enable_cuda_graph": str(int(bool(task.options["cuda_graph"]))),
            "nv_runtime_cache_path": str(cache.kernels),
        },
        devices=devices,
    )


@dataclass(frozen=True, slots=True)
class _CacheFolders:
    """The cache folders of an engine and of the kernels compiled for it, which the provider writes when it closes."""

    folder: Path

    @classmethod
    def of(cls, task: Task, driver: Driver) -> _CacheFolders:
        assert task.onnx is not None
        machine = (driver.name, str(driver.compute_capability), driver.cuda_version)
        versions = (PACKAGE, str(find_version(PACKAGE)), str(find_version(runtime.PACKAGE)))
        options = (str(task.options["precision"]), str(task.options["cuda_graph"]))
        name = hashlib.sha256("\0".join((*options, *versions, *machine)).encode())
        with task.onnx.open("rb") as file:
            for chunk in read_chunks(file):
                name.update(chunk)
        return cls(task.cache / "tensorrt-rtx" / name.hexdigest()[:16])

    @property
    def engine(self) -> Path:
        return self.folder / "engine" / "network.onnx"

    @property
    def kernels(self) -> Path:
        return self.folder / "kernels"


def _load_or_build(task: Task, provider: Provider, cache: _CacheFolders) -> tuple[Any, str]:
    """Open a session, and return it with ``"hit"`` if the cache had its engine, else ``"miss"``."""
    if cache.engine.exists():
        try:
            session = strict.open_session(
                cache.engine, runtime.make_settings(task.threads, _LEVEL, spinning=False), provider
            )
        except Exception:  # noqa: BLE001  whatever is wrong with the cached engine, it can be built again
            shutil.rmtree(cache.engine.parent)
        else:
            return session, "hit"
    return _build(task, provider, cache), "miss"


def _build(task: Task, provider: Provider, cache: _CacheFolders) -> Any:
    """Open a session on the network itself, which writes its engine as an ONNX file with a file beside it."""
    # A child killed while it writes must leave no partial engine.
    draft = cache.folder / "part"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    settings = runtime.make_settings(task.threads, _LEVEL, spinning=False)
    settings.add_session_config_entry("ep.context_enable", "1")
    settings.add_session_config_entry("ep.context_file_path", str(draft / cache.engine.name))
    # Store the engine in a file of its own: an embedded one is limited to 2 GB.
    settings.add_session_config_entry("ep.context_embed_mode", "0")
    session = strict.open_session(_load_source(task), settings, provider)
    if (draft / cache.engine.name).exists():
        draft.replace(cache.engine.parent)
    return session


def _load_source(task: Task) -> Path | bytes:
    """Return the ONNX file or model to build from: the provider computes each node in the precision of the graph."""
    assert task.onnx is not None
    return nvidia.convert_to_f16(task.onnx) if task.options["precision"] == "f16" else task.onnx


def probe_gpu() -> str:
    """Return the reason why TensorRT-RTX cannot work here: no driver, no visible GPU, or the provider's own reason."""
    return nvidia.find_problem("tensorrt-rtx", __name__)


def diagnose() -> str:
    """Return the reason why the provider offers no device in this process, or ``""``."""
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
    accelerators={"cuda": probe_gpu},
    options={
        "precision": nvidia.PRECISION,
        "cuda_graph": nvidia.CUDA_GRAPH,
    },
    refusals=(
        *runtime.REFUSALS,
        r"only supports RTX devices",
        r"does not support GPU with Compute Capability",
    ),
)
