"""TensorRT-RTX, held to the protocol where it works; and everywhere, the same code on a GPU that is not there."""

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
from ngbkit.testing import NETWORKS, CompilerConformance, relative_rmse, run_reference

Compile = Callable[..., Program]


class TestTensorRtRtx(CompilerConformance):
    compiler = "ngbkit.compilers.tensorrt_rtx:COMPILER"
    accelerator = "cuda"
    required = False  # 146 MB, for a GPU alone


def _device(number: int = 0, name: str = compiler.PROVIDER) -> Any:
    return SimpleNamespace(ep_name=name, ep_options={"device_id": str(number)})


@pytest.fixture
def plugged(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> fake_onnxruntime.FakeRuntime:
    """An ONNX Runtime for the CPU, and a plugin that offers it a GPU."""
    plugin = ModuleType(compiler._MODULE)
    plugin.get_library_path = lambda: "/nowhere/plugin.so"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, compiler._MODULE, plugin)
    monkeypatch.setenv(compiler._TF32, "unset by the compiler")  # and put back after the test
    compiler._register.cache_clear()
    devices = [_device(1), _device(0), _device(0, "CPUExecutionProvider")]
    return fake_onnxruntime.install(monkeypatch, available=("CPUExecutionProvider",), devices=devices)


@pytest.fixture
def task(exported: Path, tmp_path: Path) -> Callable[..., Task]:
    def make(onnx: Path = exported, **options: Any) -> Task:
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

    return make


def _error(task: Task, program: Program) -> float:
    expected = run_reference(NETWORKS["small_conv"](), task.arrays)
    outputs = program.fetch(program.run())

    assert len(expected) == len(outputs)
    return max(map(relative_rmse, expected, outputs))


def test_a_plugin_without_a_device_is_refused(task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime) -> None:
    """Where the provider offers no device no session is opened, for it would compute on the CPU."""
    plugged.devices = [_device(0, "CPUExecutionProvider")]

    with pytest.raises(UnsupportedError, match=r"offers no device for this GPU.* see NVIDIA's support matrix"):
        compiler.compile(task())
    assert [] == plugged.opened


def test_another_provider_is_refused(task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime) -> None:
    """A session that took the CPU is no program."""
    plugged.taken = "CPUExecutionProvider"

    with pytest.raises(UnsupportedError, match=r"NvTensorRTRTX.* was asked for and ONNX Runtime took CPU"):
        compiler.compile(task())


def test_a_network_that_it_takes_nothing_of_is_refused(
    task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime
) -> None:
    """A session of which the provider computes nothing is one of the CPU."""
    plugged.owner = "CPUExecutionProvider"

    with pytest.raises(UnsupportedError, match=r"NvTensorRTRTX.* takes no node"):
        compiler.compile(task())


def test_the_first_gpu_computes_on_the_programs_stream(
    task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime, gpu: FakeGpu
) -> None:
    """The provider gets the first device alone, the stream, and tensors in memory of the GPU; a run waits for it."""
    made = task()
    program = compiler.compile(made)
    session = plugged.opened[-1]

    assert _error(made, program) < 1e-4
    assert [plugged.devices[1]] == session.settings.plugged[0]
    assert ("1", str(program.stream)) == (
        session.options["has_user_compute_stream"],
        session.options["user_compute_stream"],
    )
    assert {"cuda"} == set(session.bindings[-1].places)
    assert ("onnxruntime NvTensorRTRTXExecutionProvider", "f32", "excluded") == (
        program.contract.runtime,
        program.contract.precision,
        program.contract.transfers,
    )
    gpu.calls()
    assert program.enqueue is not None
    program.enqueue()
    assert [] == gpu.calls()


def test_an_engine_is_loaded_again(task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime) -> None:
    """A second compile opens the engine that the first left, and computes the same; nothing half written stays."""
    made = task()
    first, second = compiler.compile(made), compiler.compile(made)
    [engine] = made.cache.rglob("network.onnx")

    assert ("miss", "hit") == (first.facts["cache"], second.facts["cache"])
    assert [str(made.onnx), str(engine)] == [session.model for session in plugged.opened]
    assert "ep.context_enable" not in plugged.opened[-1].settings.entries
    assert _error(made, second) < 1e-4
    assert [] == list(made.cache.rglob("part"))
    assert [compiler.PROVIDER] == plugged.registered


@pytest.mark.parametrize("other", [{"precision": "tf32"}, {"precision": "f16"}, {"cuda_graph": True}])
def test_an_engine_is_of_its_options(
    other: dict[str, Any], task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime
) -> None:
    """What was kept with other options is not loaded."""
    compiler.compile(task())

    assert "miss" == compiler.compile(task(**other)).facts["cache"]


def test_an_engine_is_of_its_network_and_gpu(
    task: Callable[..., Task],
    exported: Path,
    tmp_path: Path,
    plugged: fake_onnxruntime.FakeRuntime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another content in a file, or another GPU in the machine, is another engine."""
    changed = onnx.load(str(exported))
    changed.doc_string = "another"
    onnx.save(changed, tmp_path / "changed.onnx")
    compiler.compile(task())

    assert "miss" == compiler.compile(task(tmp_path / "changed.onnx")).facts["cache"]
    monkeypatch.setenv("FAKE_CUDA_CAPABILITY", "120")
    assert "miss" == compiler.compile(task()).facts["cache"]


def test_an_engine_that_does_not_load_is_built_again(
    task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime
) -> None:
    """An engine that the library no longer takes is replaced, and the network measured."""
    made = task()
    compiler.compile(made)
    plugged.refuses = "network.onnx"
    again = compiler.compile(made)
    plugged.refuses = ""

    assert "miss" == again.facts["cache"]
    assert _error(made, again) < 1e-4
    assert "hit" == compiler.compile(made).facts["cache"]


def test_kernels_are_kept_beside_the_engine(task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime) -> None:
    """What the provider compiles for an engine goes below the cache of the task."""
    made = task()
    compiler.compile(made)
    kernels = Path(plugged.opened[-1].options["nv_runtime_cache_path"])

    assert kernels.is_relative_to(made.cache / "tensorrt-rtx")


@pytest.mark.parametrize(("precision", "told"), [("f32", "0"), ("f16", "0"), ("tf32", None)])
def test_tf32_is_only_taken_where_it_is_asked_for(
    precision: str, told: str | None, task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime
) -> None:
    """The library is told not to round f32 to tf32, except in a column of that name."""
    program = compiler.compile(task(precision=precision))

    assert told == os.environ.get(compiler._TF32)
    assert precision == program.contract.precision


def test_half_precision_is_in_the_graph(task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime) -> None:
    """The graph itself is in f16, its inputs and outputs are as they were, and it computes nearly the same."""
    made = task(precision="f16")
    program = compiler.compile(made)
    graph = onnx.load_from_string(plugged.opened[-1].model).graph

    assert onnx.TensorProto.FLOAT16 in {weight.data_type for weight in graph.initializer}
    assert onnx.TensorProto.FLOAT not in {weight.data_type for weight in graph.initializer}
    assert {onnx.TensorProto.FLOAT} == {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    assert 1e-6 < _error(made, program) < 5e-2


def test_what_ran_is_explained(task: Callable[..., Task], plugged: fake_onnxruntime.FakeRuntime) -> None:
    """What runs in a call is counted from a profile of the engine; on a GPU that is not there, all of it fell back."""
    explained = compiler.compile(task()).explain()

    assert "network.onnx" in plugged.opened[-1].model
    assert 0 < explained["fallbacks"] == explained["nodes_after"]
    assert "nodes_fused" not in explained


def test_the_probe_has_the_providers_own_reason(plugged: fake_onnxruntime.FakeRuntime) -> None:
    """With a driver and a GPU, the reason is what the provider lacks, or nothing."""
    assert "" == compiler.diagnose()
    plugged.devices = []
    assert "offers no device" in compiler.diagnose()
