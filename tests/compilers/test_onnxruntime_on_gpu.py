"""ONNX Runtime on an NVIDIA GPU, a fake here: no CPU in its place, no wait within a call, no option ignored."""

from pathlib import Path
from typing import Any

import fake_onnxruntime
import numpy as np
import onnx
import pytest
from hardware.accelerators.faking import FakeGpu
from onnx import TensorProto, helper
from test_onnxruntime import build_task, check_outputs

from ngbkit.compilers import onnxruntime as compiler
from ngbkit.compilers.quantisers.onnxruntime import F16, STATIC
from ngbkit.errors import UnsupportedError


def test_the_cpu_is_never_taken_for_a_gpu(
    exported: Path, tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If ONNX Runtime chooses the CPU instead of CUDA, compiling fails with the reason."""
    fake_onnxruntime.install(monkeypatch, chosen="CPUExecutionProvider")

    with pytest.raises(UnsupportedError, match=r"requested CUDA.*, but ONNX Runtime chose CPU.*: it has no libonnx"):
        compiler.compile(build_task(exported, tmp_path, "cuda"))


def test_a_provider_without_any_node_is_refused(
    exported: Path, tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session named after the provider is refused if all its nodes run on the CPU."""
    fake_onnxruntime.install(monkeypatch, owner="CPUExecutionProvider")

    with pytest.raises(UnsupportedError, match=r"CUDA.* supports no node .* run on CPUExecutionProvider"):
        compiler.compile(build_task(exported, tmp_path, "cuda"))


def test_a_session_on_a_gpu_is_asked_for_strictly(
    exported: Path, tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA runs on the program's stream, without tf32, with inputs and outputs bound on the GPU."""
    runtime = fake_onnxruntime.install(monkeypatch)
    task = build_task(exported, tmp_path, "cuda")
    program = compiler.compile(task)
    session = runtime.opened[-1]

    check_outputs(task, program)
    assert "CUDAExecutionProvider" == session.requested
    assert ("0", "0", "EXHAUSTIVE", str(program.stream)) == tuple(
        session.options[name] for name in ("device_id", "use_tf32", "cudnn_conv_algo_search", "user_compute_stream")
    )
    assert {"cuda"} == set(session.bindings[-1].devices)
    assert "onnxruntime CUDAExecutionProvider" == program.contract.runtime
    assert ("f32", "excluded", 2) == (
        program.contract.precision,
        program.contract.transfers,
        program.contract.threads,
    )


def test_only_a_run_waits_for_the_gpu(
    exported: Path, tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enqueueing does not wait; a run enqueues and then waits for the stream."""
    runtime = fake_onnxruntime.install(monkeypatch)
    program = compiler.compile(build_task(exported, tmp_path, "cuda"))
    gpu.pop_calls()
    assert program.enqueue is not None
    program.enqueue()
    enqueued = gpu.pop_calls()
    program.run()

    assert [] == enqueued
    assert ["cuStreamSynchronize"] == gpu.pop_calls()
    assert {False} == set(runtime.opened[-1].waits)


def test_the_first_call_is_part_of_the_compile(
    exported: Path, tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for convolutions and the capture of a graph happen in an untimed first call."""
    runtime = fake_onnxruntime.install(monkeypatch)
    compiler.compile(build_task(exported, tmp_path, "cuda"))

    assert 1 == len(runtime.opened[-1].waits)


def test_a_captured_graph_is_timed_by_the_host(
    exported: Path, tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A captured graph cannot be timed by events, because its replay waits; the contract notes the graph."""
    runtime = fake_onnxruntime.install(monkeypatch)
    task = build_task(exported, tmp_path, "cuda", cuda_graph=True)
    program = compiler.compile(task)

    check_outputs(task, program)
    assert "1" == runtime.opened[-1].options["enable_cuda_graph"]
    assert program.enqueue is None
    assert "CUDA graph" == program.contract.notes


@pytest.mark.parametrize(("capability", "tf32"), [("80", True), ("75", False)])
def test_tf32_is_for_gpus_that_have_it(
    capability: str, tf32: bool, exported: Path, tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The contract reports tf32 on a GPU that supports it; other GPUs refuse the precision."""
    monkeypatch.setenv("FAKE_CUDA_CAPABILITY", capability)
    runtime = fake_onnxruntime.install(monkeypatch)
    task = build_task(exported, tmp_path, "cuda", precision="tf32")
    if not tf32:
        with pytest.raises(UnsupportedError, match=r"tf32 needs .* 8\.0, but .* has 7\.5"):
            compiler.compile(task)
        return
    program = compiler.compile(task)

    assert "tf32" == program.contract.precision
    assert "1" == runtime.opened[-1].options["use_tf32"]


def test_nodes_that_fell_to_the_cpu_are_counted(
    exported: Path, tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes that the profile reports on the CPU are fallbacks of a CUDA session: here all of them."""
    fake_onnxruntime.install(monkeypatch)
    explained = compiler.compile(build_task(exported, tmp_path, "cuda")).explain()

    assert 0 < explained["fallbacks"] == explained["nodes_after"]
    assert 2 == explained["nodes_fused"]


def test_an_output_without_a_shape_is_refused_on_a_gpu(
    tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An output whose size depends on values cannot be bound on the GPU, and the message names it."""
    values = [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, 16, 16])]
    values.append(helper.make_tensor_value_info("indices", TensorProto.INT64, [4, None]))
    graph = helper.make_graph([helper.make_node("NonZero", ["input"], ["indices"])], "counts", values[:1], values[1:])
    path = tmp_path / "counts.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    fake_onnxruntime.install(monkeypatch)

    with pytest.raises(UnsupportedError, match=r"invalid output indices: got tensor\(int64\) of shape \[4, None\]"):
        compiler.compile(build_task(path, tmp_path, "cuda"))


@pytest.mark.parametrize(("accelerator", "option"), [("cpu", {"precision": "tf32"}), ("cpu", {"cuda_graph": True})])
def test_what_is_for_a_gpu_is_refused_on_a_cpu(
    accelerator: str, option: dict[str, Any], exported: Path, tmp_path: Path
) -> None:
    """An option for GPUs is refused on a CPU rather than ignored."""
    with pytest.raises(UnsupportedError, match=rf"{next(iter(option))}=.* is for an NVIDIA GPU"):
        compiler.compile(build_task(exported, tmp_path, accelerator, **option))


def test_what_is_for_a_cpu_is_refused_on_a_gpu(exported: Path, tmp_path: Path) -> None:
    """Parallel branches are for the CPU's threads."""
    with pytest.raises(UnsupportedError, match="option execution: got 'parallel' on cuda; it is for the CPU"):
        compiler.compile(build_task(exported, tmp_path, "cuda", execution="parallel"))


def test_the_probe_names_what_this_build_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the package to install if ONNX Runtime is built for the CPU only."""
    fake_onnxruntime.install(monkeypatch, available=("CPUExecutionProvider",))

    assert "this build of ONNX Runtime has CPUExecutionProvider: it has no libonnx" in compiler.diagnose()
    assert "onnxruntime-gpu" in compiler.diagnose()


def test_the_probe_is_silent_where_cuda_comes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A working session on the GPU yields no reason, whatever the libraries print."""
    fake_onnxruntime.install(monkeypatch)

    assert "" == compiler.diagnose()
    assert "" == capsys.readouterr().out


def test_other_samples_are_fed_to_a_gpu(
    exported: Path, tmp_path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program on a GPU computes the outputs of the samples that it is fed, by which a precision is judged."""
    fake_onnxruntime.install(monkeypatch)
    task = build_task(exported, tmp_path, "cuda")
    program = compiler.compile(task)
    assert program.feed is not None
    before = program.fetch(program.run())
    program.feed([np.zeros_like(array) for array in task.arrays])
    zeros = program.fetch(program.run())
    program.feed(task.arrays)
    after = program.fetch(program.run())

    assert not np.allclose(before[0], zeros[0])
    assert np.array_equal(before[0], after[0])


def test_a_quantiser_says_where_its_result_runs() -> None:
    """ONNX Runtime computes f16 on a GPU; its int8 is for a CPU, and the reason says so."""
    assert "" == F16.unavailable("cuda:0")
    assert "int8 by onnxruntime-static is for cpu; this device has cuda" == STATIC.unavailable("cuda:0")
