"""NVIDIA TensorRT, from an ONNX file, through its own Python API and the CUDA driver alone."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers import onnx_graph
from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.errors import UnsupportedError
from ngbkit.records import Contract

if TYPE_CHECKING:
    import numpy as np

_DRIVER = "libcuda.so.1"
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def compile(task: Task) -> Program:
    """Build an engine from the ONNX file of `task` and bind its tensors to memory on the GPU.

    Raises
    ------
    UnsupportedError
        TensorRT's parser refuses the graph, or this TensorRT cannot build at the precision that was asked for.
    """
    import numpy as np
    import tensorrt as trt

    driver = _Driver()
    logger = trt.Logger(trt.Logger.WARNING)
    timings = task.cache / "tensorrt" / f"{task.options['precision']}.timings"
    cached = timings.exists()
    serialized, output_names = _build(trt, logger, str(task.onnx), str(task.options["precision"]), timings)
    # The runtime must outlive its engine, and the engine its context: `run` holds all three.
    runtime = trt.Runtime(logger)
    engine = runtime.deserialize_cuda_engine(serialized)
    context = engine.create_execution_context()
    arrays = {spec.name: array for spec, array in zip(task.inputs, task.arrays, strict=True)}
    outputs = {
        name: np.empty(tuple(engine.get_tensor_shape(name)), trt.nptype(engine.get_tensor_dtype(name)))
        for name in output_names
    }
    addresses = _bind(driver, context, arrays, outputs)
    owners = (runtime, engine, context)

    def run(owners: tuple[Any, ...] = owners) -> None:
        if not owners[-1].execute_async_v3(driver.stream.value):
            raise RuntimeError("TensorRT could not enqueue the network; its own log says why.")
        driver.call("cuStreamSynchronize", driver.stream)

    def fetch(_: None) -> list[np.ndarray]:
        return [driver.download(addresses[name], array).copy() for name, array in outputs.items()]

    return Program(
        run=run,
        fetch=fetch,
        contract=Contract(
            runtime=f"tensorrt {trt.__version__}",
            precision=str(task.options["precision"]),
            threads=task.threads,
            transfers="excluded",
        ),
        facts={"engine_bytes": serialized.nbytes, "cache": "hit" if cached else "miss"},
        explain=lambda: _explain(trt, engine, task),
    )


def _explain(trt: Any, engine: Any, task: Task) -> dict[str, Any]:
    """The layers of the engine, from its own inspector."""
    assert task.onnx is not None
    text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    layers = [layer if isinstance(layer, str) else layer["Name"] for layer in json.loads(text)["Layers"]]
    return {
        "nodes_before": len(onnx_graph.read_operators(task.onnx)),
        "nodes_after": len(layers),
        "nodes_fused": sum(map(_is_fused, layers)),
        "fallbacks": 0,  # an engine runs on the GPU as a whole, or is not built
    }


def _is_fused(layer: str) -> bool:
    """Whether the name of a layer says that it is several: ``conv + relu``, ``{ForeignNode[first...last]}``."""
    return " + " in layer or "..." in layer


def _build(trt: Any, logger: Any, path: str, precision: str, timings: Path) -> tuple[Any, list[str]]:
    """A serialised engine, and the names of its outputs in the order of the graph.

    How long each tactic took is kept in `timings`, so that the next build need not time them again.
    """
    builder = trt.Builder(logger)
    network = builder.create_network(0)  # explicit batch is the only kind since TensorRT 10
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(path):
        errors = [parser.get_error(index).desc() for index in range(parser.num_errors)]
        raise UnsupportedError(f"TensorRT's ONNX parser refuses the graph: {'; '.join(errors)}")
    config = builder.create_builder_config()
    if precision != "tf32":  # on by default
        config.clear_flag(trt.BuilderFlag.TF32)
    if precision == "f16":
        if not hasattr(trt.BuilderFlag, "FP16"):
            raise UnsupportedError(
                f"TensorRT {trt.__version__} takes the precision from the graph; export it in float16."
            )
        config.set_flag(trt.BuilderFlag.FP16)
    config.set_timing_cache(config.create_timing_cache(timings.read_bytes() if timings.exists() else b""), False)
    serialized = builder.build_serialized_network(network, config)
    if serialized is None:
        raise RuntimeError("TensorRT built no engine; its own log says why.")
    timings.parent.mkdir(parents=True, exist_ok=True)
    timings.write_bytes(memoryview(config.get_timing_cache().serialize()))
    return serialized, [network.get_output(index).name for index in range(network.num_outputs)]


def _bind(
    driver: _Driver, context: Any, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
) -> dict[str, int]:
    """Memory on the GPU for every tensor, the inputs' values in it; returns the addresses by name."""
    addresses = {name: driver.allocate(array.nbytes) for name, array in {**inputs, **outputs}.items()}
    for name, array in inputs.items():
        driver.upload(addresses[name], array)
    for name, address in addresses.items():
        context.set_tensor_address(name, address)
    return addresses


class _Driver:
    """The few calls of the CUDA driver that an inference needs; the driver is there wherever a GPU works.

    What it allocates lives as long as the child process that measures.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL(_DRIVER)
        device, primary = ctypes.c_int(), ctypes.c_void_p()
        # Not of the non-blocking kind, for it must wait for uploads: their calls may return before the copy is done.
        self.stream = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        # The primary context is the one that TensorRT, through the CUDA runtime, uses as well.
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(primary), device)
        self.call("cuCtxSetCurrent", primary)
        self.call("cuStreamCreate", ctypes.byref(self.stream), 0)

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {(text.value or b'').decode() or 'CUDA error'} ({code})")

    def allocate(self, size: int) -> int:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def upload(self, address: int, array: np.ndarray) -> None:
        self.call(
            "cuMemcpyHtoD_v2",
            ctypes.c_uint64(address),
            ctypes.c_void_p(array.ctypes.data),
            ctypes.c_size_t(array.nbytes),
        )

    def download(self, address: int, array: np.ndarray) -> np.ndarray:
        """Fill `array` from the GPU and return it."""
        self.call(
            "cuMemcpyDtoH_v2",
            ctypes.c_void_p(array.ctypes.data),
            ctypes.c_uint64(address),
            ctypes.c_size_t(array.nbytes),
        )
        return array


@lru_cache(maxsize=1)
def probe() -> str:
    """Why TensorRT cannot work here: no driver, no GPU that this process may see, or libraries that do not load.

    Looked at in a process of its own: one that has once asked CUDA anything cannot fork children that use it.
    """
    program = f"from {__name__} import diagnose; print(diagnose(), end='')"
    try:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "the CUDA driver or TensorRT did not answer within 60 s; look at `nvidia-smi`"
    if done.returncode:
        return f"looking for a GPU ended with exit code {done.returncode}: {done.stderr.strip()[-300:]}"
    return done.stdout


def diagnose() -> str:
    """The reason that `probe` gives, found in this very process."""
    try:
        count = _count_gpus()
    except OSError as error:
        return f"there is no NVIDIA driver on this machine ({error}); TensorRT needs one, and a GPU"
    except RuntimeError as error:
        return f"the NVIDIA driver does not start ({error}); look at `nvidia-smi`"
    if not count:
        return "there is no NVIDIA GPU that this process may see; TensorRT needs one (look at CUDA_VISIBLE_DEVICES)"
    try:
        import tensorrt  # noqa: F401  whether it loads is the question
    except Exception as error:  # noqa: BLE001  its own loader raises all sorts
        return f"tensorrt is installed and does not load: {type(error).__name__}: {error}"
    return ""


def _count_gpus() -> int:
    library = ctypes.CDLL(_DRIVER)
    code = library.cuInit(0)
    count = ctypes.c_int()
    if not code:
        code = library.cuDeviceGetCount(ctypes.byref(count))
    if code not in (0, _NO_DEVICE):
        raise RuntimeError(f"CUDA error {code}")
    return count.value


COMPILER = Compiler(
    name="tensorrt",
    summary="NVIDIA TensorRT, on an NVIDIA GPU",
    forms={"onnx": ()},
    packages=("tensorrt",),
    install="pip install 'ngbkit[tensorrt]' with NVIDIA's own package index; a Jetson has it in its JetPack",
    compile=compile,
    caches=True,
    accelerators={"cuda": probe},
    options={
        "precision": Option(
            default="f32",
            help="the precision to compute in; left to itself TensorRT picks tf32 for matrix products",
            choices=("f32", "tf32", "f16"),
        ),
    },
    refusals=(
        r"UNSUPPORTED_(NODE|GRAPH)",
        r"No importer registered for op",
        r"[Pp]lugin not found",
    ),
)
