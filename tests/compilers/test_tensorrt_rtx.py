"""TensorRT-RTX passes the conformance suite if it works here, and with a fake GPU and library everywhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import fake_onnxruntime
import numpy as np
import onnx
import pytest
from hardware.accelerators.faking import FakeGpu

from ngbkit.compilers import tensorrt_rtx as compiler
from ngbkit.compilers.base import Program, Task, Tuning
from ngbkit.errors import UnsupportedError
from ngbkit.testing import CompilerConformance
from ngbkit.testing.networks import NETWORKS, relative_rmse, run_reference

Compile = Callable[..., Program]


class TestTensorRtRtx(CompilerConformance):
    compiler = "ngbkit.compilers.tensorrt_rtx:COMPILER"
    accelerator = "cuda"
    required = False  # 146 MB, useful only with a GPU


def build_device(number: int = 0, name: str = compiler.PROVIDER) -> Any:
    return SimpleNamespace(ep_name=name, ep_options={"device_id": str(number)})


@pytest.fixture
def plugged(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> fake_onnxruntime.FakeRuntime:
    """An ONNX Runtime for the CPU, and a plugin that offers a GPU."""
    plugin = ModuleType(compiler._MODULE)
    plugin.get_library_path = lambda: "/nowhere/plugin.so"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, compiler._MODULE, plugin)
    monkeypatch.setenv(compiler._TF32, "unset by the compiler")  # restored after the test
    compiler._register.cache_clear()
    devices = [build_device(1), build_device(0), build_device(0, "CPUExecutionProvider")]
    return fake_onnxruntime.install(monkeypatch, available=("CPUExecutionProvider",), devices=devices)


@pytest.fixture
def build_task(exported: Path, tmp_path: Path) -> Callable[..., Task]:
    def build(onnx: Path = exported, **options: Any) -> Task:
        return Task(
            form="onnx",
            module=None,
            onnx=onnx,
            inputs=NETWORKS["small_conv"]().inputs,
            arrays=[np.random.default_rng(0).standard_normal((1, 3, 16, 16), np.float32)],
            batch_size=1,
            options=compiler.COMPILER.settle(options),
            threads=2,
            cache=tmp_path / "cache",
            accelerator="cuda",
            tuning=Tuning(folder=tmp_path / "tuning"),
        )

    return build


def compute_error(task: Task, program: Program) -> float:
    expected = run_reference(NETWORKS["small_conv"](), task.arrays)
    outputs = program.fetch(program.run())

    assert len(expected) == len(outputs)
    return max(map(relative_rmse, expected, outputs))


def test_a_plugin_without_a_device_is_refused(
    build_task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime
) -> None:
    """If the provider offers no device, no session is opened, because it would compute on the CPU."""
    plugged.devices = [build_device(0, "CPUExecutionProvider")]

    with pytest.raises(UnsupportedError, match=r"offers no device for this GPU.*see NVIDIA's support matrix"):
        compiler.compile(build_task())
    assert [] == plugged.opened


def test_another_provider_is_refused(build_task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime) -> None:
    """A session on the CPU is refused."""
    plugged.chosen = "CPUExecutionProvider"

    with pytest.raises(UnsupportedError, match=r"requested NvTensorRTRTX.*, but ONNX Runtime chose CPU"):
        compiler.compile(build_task())


def test_a_network_that_it_takes_nothing_of_is_refused(
    build_task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime
) -> None:
    """A session in which the provider runs no node is refused."""
    plugged.owner = "CPUExecutionProvider"

    with pytest.raises(UnsupportedError, match=r"NvTensorRTRTX.* supports no node"):
        compiler.compile(build_task())


def test_the_first_gpu_computes_on_the_programs_stream(
    build_task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime, gpu: FakeGpu
) -> None:
    """The provider gets only the first device, the stream, and tensors in GPU memory; a run waits for the stream."""
    task = build_task()
    program = compiler.compile(task)
    session = plugged.opened[-1]

    assert compute_error(task, program) < 1e-4
    assert [plugged.devices[1]] == session.settings.plugged[0]
    assert ("1", str(program.stream)) == (
        session.options["has_user_compute_stream"],
        session.options["user_compute_stream"],
    )
    assert {"cuda"} == set(session.bindings[-1].devices)
    assert ("onnxruntime NvTensorRTRTXExecutionProvider", "f32", "excluded") == (
        program.contract.runtime,
        program.contract.precision,
        program.contract.transfers,
    )
    gpu.pop_calls()
    assert program.enqueue is not None
    program.enqueue()
    assert [] == gpu.pop_calls()


def test_an_engine_is_loaded_again(build_task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime) -> None:
    """A second compile loads the cached engine and computes the same; no partial files remain."""
    task = build_task()
    first, second = compiler.compile(task), compiler.compile(task)
    [engine] = task.cache.rglob("network.onnx")

    assert ("miss", "hit") == (first.facts["cache"], second.facts["cache"])
    assert [str(task.onnx), str(engine)] == [session.model for session in plugged.opened]
    assert "ep.context_enable" not in plugged.opened[-1].settings.entries
    assert compute_error(task, second) < 1e-4
    assert [] == list(task.cache.rglob("part"))
    assert [compiler.PROVIDER] == plugged.registered


@pytest.mark.parametrize("other", [{"precision": "tf32"}, {"precision": "f16"}, {"cuda_graph": True}])
def test_an_engine_is_of_its_options(
    other: dict[str, Any], build_task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime
) -> None:
    """An engine with other options is not loaded."""
    compiler.compile(build_task())

    assert "miss" == compiler.compile(build_task(**other)).facts["cache"]


def test_an_engine_is_of_its_network_and_gpu(
    build_task: Callable[..., Task],
    exported: Path,
    tmp_path: Path,
    plugged: fake_onnxruntime.FakeRuntime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An engine is rebuilt for another content of the file or another GPU."""
    model = onnx.load(str(exported))
    model.doc_string = "another"
    onnx.save(model, tmp_path / "model.onnx")
    compiler.compile(build_task())

    assert "miss" == compiler.compile(build_task(tmp_path / "model.onnx")).facts["cache"]
    monkeypatch.setenv("FAKE_CUDA_CAPABILITY", "120")
    assert "miss" == compiler.compile(build_task()).facts["cache"]


def test_an_engine_that_does_not_load_is_built_again(
    build_task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime
) -> None:
    """An engine that the library rejects is rebuilt."""
    task = build_task()
    compiler.compile(task)
    plugged.refuses = "network.onnx"
    again = compiler.compile(task)
    plugged.refuses = ""

    assert "miss" == again.facts["cache"]
    assert compute_error(task, again) < 1e-4
    assert "hit" == compiler.compile(task).facts["cache"]


def test_kernels_are_kept_beside_the_engine(
    build_task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime
) -> None:
    """The provider caches the kernels of an engine below the cache of the task."""
    task = build_task()
    compiler.compile(task)
    kernels = Path(plugged.opened[-1].options["nv_runtime_cache_path"])

    assert kernels.is_relative_to(task.cache / "tensorrt-rtx")


@pytest.mark.parametrize(("precision", "value"), [("f32", "0"), ("f16", "0"), ("tf32", None)])
def test_tf32_is_only_taken_where_it_is_asked_for(
    precision: str, value: str | None, build_task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime
) -> None:
    """The library may round f32 to tf32 only in a tf32 column."""
    program = compiler.compile(build_task(precision=precision))

    assert value == os.environ.get(compiler._TF32)
    assert precision == program.contract.precision


def test_half_precision_is_in_the_graph(build_task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime) -> None:
    """The graph is in f16 except its inputs and outputs, and computes nearly the same."""
    task = build_task(precision="f16")
    program = compiler.compile(task)
    graph = onnx.load_from_string(plugged.opened[-1].model).graph

    assert onnx.TensorProto.FLOAT16 in {weight.data_type for weight in graph.initializer}
    assert onnx.TensorProto.FLOAT not in {weight.data_type for weight in graph.initializer}
    assert {onnx.TensorProto.FLOAT} == {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    assert 1e-6 < compute_error(task, program) < 5e-2


def test_what_ran_is_explained(build_task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime) -> None:
    """Executed nodes are counted from a profile of the engine; on a fake GPU all are fallbacks."""
    explained = compiler.compile(build_task()).explain()

    assert "network.onnx" in plugged.opened[-1].model
    assert 0 < explained["fallbacks"] == explained["nodes_after"]
    assert "nodes_fused" not in explained


def test_the_probe_has_the_providers_own_reason(plugged: fake_onnxruntime.FakeRuntime) -> None:
    """The reason is the provider's own, or empty, on a machine with a driver and a GPU."""
    assert "" == compiler.diagnose()
    plugged.devices = []
    assert "offers no device" in compiler.diagnose()
