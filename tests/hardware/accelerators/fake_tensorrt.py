"""A fake TensorRT with the functions that ngbkit calls, like versions 10 and 11; ONNX Runtime computes.

A test installs it as ``tensorrt`` beside the fake driver. An engine runs when its stream reaches it, on the memory at
its addresses at that time. From version 11 on there is no flag for f16, and the graph's types apply. ``FAKE_TENSORRT``
names the fault to simulate.
"""

from __future__ import annotations

import ctypes
import enum
import json
import os
from importlib import metadata
from typing import Any

import numpy as np
import onnx

from ngbkit.hardware.accelerators import cuda

__version__ = metadata.version("tensorrt")

_TYPED = int(__version__.split(".")[0]) >= 11
_MAGIC = b"fake-engine\n"
_CALL_NS = 1_000_000
_DRIVER = ctypes.CDLL(cuda.LIBRARY)
_LAUNCHED = ctypes.CFUNCTYPE(None)


def _has_fault(fault: str) -> bool:
    return os.environ.get("FAKE_TENSORRT") == fault


class ILogger:
    Severity = enum.IntEnum("Severity", "INTERNAL_ERROR ERROR WARNING INFO VERBOSE", start=0)

    def __init__(self) -> None:
        self._is_made = True


class IProfiler:
    def __init__(self) -> None:
        self.is_made = True


def _log_error(log: ILogger, text: str) -> None:
    assert log._is_made, "ILogger.__init__ was not called"
    log.log(ILogger.Severity.WARNING, "a warning is no error")
    log.log(ILogger.Severity.ERROR, text)


BuilderFlag = enum.Enum("BuilderFlag", ["TF32", *([] if _TYPED else ["FP16"])])
NetworkDefinitionCreationFlag = enum.IntEnum("NetworkDefinitionCreationFlag", ["STRONGLY_TYPED"], start=1)
LayerInformationFormat = enum.Enum("LayerInformationFormat", "ONELINE JSON")
ProfilingVerbosity = enum.Enum("ProfilingVerbosity", "LAYER_NAMES_ONLY NONE DETAILED")


def nptype(dtype: np.dtype) -> type:
    return dtype.type


class _Memory(bytes):
    """A buffer with `nbytes`, like the library's own memory."""

    @property
    def nbytes(self) -> int:
        return len(self)


class Builder:
    def __init__(self, log: ILogger) -> None:
        self._log = log
        if _has_fault("builder"):
            _log_error(log, "CUDA initialization failure with error: 35")
            raise TypeError("pybind11::init(): factory function returned nullptr")

    def create_network(self, flags: int = 0) -> INetwork:
        return INetwork(flags)

    def create_builder_config(self) -> IConfig:
        return IConfig()

    def build_serialized_network(self, network: INetwork, config: IConfig) -> _Memory | None:
        if _has_fault("build"):
            _log_error(self._log, "Error Code 2: OutOfMemory (Requested size was 1 bytes.)")
            return None
        flags = sorted(flag.name for flag in config.flags)
        config.cache.content += json.dumps(flags).encode()
        head = {
            "version": __version__,
            "flags": flags,
            "level": config.builder_optimization_level,
            "verbosity": config.profiling_verbosity.name,
        }
        return _Memory(_MAGIC + json.dumps(head).encode() + b"\n" + network.model.SerializeToString())


class INetwork:
    model: onnx.ModelProto

    def __init__(self, flags: int) -> None:
        self.is_typed = _TYPED or bool(flags >> NetworkDefinitionCreationFlag.STRONGLY_TYPED & 1)

    @property
    def num_outputs(self) -> int:
        return len(self.model.graph.output)

    def get_output(self, index: int) -> onnx.ValueInfoProto:
        return self.model.graph.output[index]


class _TimingCache:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def serialize(self) -> _Memory:
        return _Memory(self.content)


class IConfig:
    def __init__(self) -> None:
        self.flags = {BuilderFlag.TF32}
        self.builder_optimization_level = 3
        self.profiling_verbosity = ProfilingVerbosity.LAYER_NAMES_ONLY
        self.cache = _TimingCache(b"")

    def set_flag(self, flag: BuilderFlag) -> None:
        self.flags.add(flag)

    def clear_flag(self, flag: BuilderFlag) -> None:
        self.flags.discard(flag)

    def create_timing_cache(self, content: bytes) -> _TimingCache | None:
        return None if content.startswith(b"garbled") else _TimingCache(content or b"timings of this GPU ")

    def set_timing_cache(self, cache: _TimingCache, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        if cache.content.startswith(b"timings of this GPU "):
            self.cache = cache
            return True
        return False

    def get_timing_cache(self) -> _TimingCache:
        return self.cache


class _ParserError:
    def __init__(self, text: str) -> None:
        self._text = text

    def desc(self) -> str:
        return self._text


class OnnxParser:
    def __init__(self, network: INetwork, log: ILogger) -> None:
        self._network = network
        self._errors: list[_ParserError] = []

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, index: int) -> _ParserError:
        return self._errors[index]

    def parse(self, content: bytes) -> bool:
        self._network.model = onnx.load_from_string(content)
        for node in self._network.model.graph.node:
            if node.domain not in ("", "ai.onnx"):
                self._errors.append(_ParserError(f"No importer registered for op: {node.op_type}"))
            if node.op_type == "QuantizeLinear" and not self._network.is_typed:
                self._errors.append(_ParserError("Q/DQ layers need a strongly typed network"))
        if not self._errors:
            onnx.checker.check_model(self._network.model)
        return not self._errors

    def parse_from_file(self, path: str) -> bool:
        with open(path, "rb") as file:
            return self.parse(file.read())


class Runtime:
    def __init__(self, log: ILogger) -> None:
        self._log = log

    def deserialize_cuda_engine(self, plan: bytes) -> ICudaEngine | None:
        if not plan.startswith(_MAGIC):
            _log_error(self._log, "Serialization assertion magicTagRead == kMAGIC_TAG failed")
            return None
        head, _, content = plan[len(_MAGIC) :].partition(b"\n")
        header = json.loads(head)
        if header["version"] != __version__ or _has_fault("load"):
            _log_error(self._log, "The engine plan file is not compatible with this version of TensorRT")
            return None
        return ICudaEngine(onnx.load_from_string(content), header, self._log)


class ICudaEngine:
    def __init__(self, model: onnx.ModelProto, header: dict[str, Any], log: ILogger) -> None:
        self.model, self.flags, self.log = model, set(header["flags"]), log
        self.is_detailed = header["verbosity"] == ProfilingVerbosity.DETAILED.name
        self._values = [*model.graph.input, *model.graph.output]

    @property
    def num_io_tensors(self) -> int:
        return len(self._values)

    def get_tensor_name(self, index: int) -> str:
        # Not in the order of the graph, which TensorRT does not guarantee.
        return sorted(value.name for value in self._values)[index]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(dim.dim_value for dim in self._type(name).shape.dim)

    def get_tensor_dtype(self, name: str) -> np.dtype:
        return onnx.helper.tensor_dtype_to_np_dtype(self._type(name).elem_type)

    def create_execution_context(self) -> IExecutionContext | None:
        if _has_fault("context"):
            _log_error(self.log, "Error Code 1: Cuda Runtime (out of memory)")
            return None
        return IExecutionContext(self)

    def create_engine_inspector(self) -> EngineInspector:
        return EngineInspector(self)

    def _type(self, name: str) -> onnx.TypeProto.Tensor:
        (tensor_type,) = [value.type.tensor_type for value in self._values if value.name == name]
        return tensor_type


class IExecutionContext:
    profiler: Any = None
    enqueue_emits_profile = True

    def __init__(self, engine: ICudaEngine) -> None:
        from ngbkit.compilers.onnxruntime_runtime import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        # A GPU's sums of 8-bit values never saturate, as those of a CPU without VNNI do.
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        self._engine = engine
        self._session = onnxruntime.InferenceSession(
            engine.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._addresses: dict[str, int] = {}
        self._started = False
        self._launched = _LAUNCHED(self._work)  # freed with the context, as a real one's memory is

    def set_tensor_address(self, name: str, address: int) -> bool:
        self._addresses[name] = address
        return not _has_fault("address")

    def execute_async_v3(self, stream: int) -> bool:
        if _has_fault("enqueue"):
            _log_error(self._engine.log, "Error Code 3: API Usage Error (an address is not set)")
            return False
        if not self._started or _has_fault("wait"):
            self._started = True
            _DRIVER.cuStreamSynchronize(ctypes.c_void_p(stream))  # a late setup, which no graph can contain
        return _DRIVER.fake_launch(ctypes.c_void_p(stream), self._launched, ctypes.c_uint64(_CALL_NS)) == 0

    def report_to_profiler(self) -> bool:
        assert self.profiler.is_made, "IProfiler.__init__ was not called"
        assert not self.enqueue_emits_profile
        for layer in EngineInspector(self._engine).list_layers():
            self.profiler.report_layer_time(layer["Name"], 0.25)
        return True

    def _work(self) -> None:
        outputs = [value.name for value in self._engine.model.graph.output]
        feeds = {value.name: self._array(value.name) for value in self._engine.model.graph.input}
        for name, output in zip(outputs, self._session.run(outputs, feeds), strict=True):
            low = "FP16" in self._engine.flags and output.dtype == np.float32
            self._array(name)[...] = output.astype(np.float16) if low else output

    def _array(self, name: str) -> np.ndarray:
        shape, dtype = self._engine.get_tensor_shape(name), self._engine.get_tensor_dtype(name)
        size = int(np.prod(shape)) * dtype.itemsize
        buffer = (ctypes.c_uint8 * size).from_address(self._addresses[name])
        return np.frombuffer(buffer, dtype).reshape(shape)


class EngineInspector:
    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine

    def get_engine_information(self, form: LayerInformationFormat) -> str:
        assert form is LayerInformationFormat.JSON
        layers = self.list_layers()
        return json.dumps(
            {"Layers": layers if self._engine.is_detailed else [layer["Name"] for layer in layers], "Bindings": []}
        )

    def list_layers(self) -> list[dict[str, Any]]:
        """List a layer for each node, except that the first two are one; names that lack the nodes' are in metadata."""
        first, second, *others = self._engine.model.graph.node
        return [self._describe(group) for group in ([first, second], *([node] for node in others))]

    def _describe(self, nodes: list[onnx.NodeProto]) -> dict[str, Any]:
        names = [node.name or node.op_type for node in nodes]
        return {
            "Name": " + ".join(names),
            "LayerType": "CaskConvolution",
            "Inputs": [{"Name": name} for name in nodes[0].input],
            "Outputs": [{"Name": name} for name in nodes[-1].output],
            "Metadata": "\x1e".join(f"[ONNX Layer: {name}]" for name in names),
        }
