"""The runtime shared by compilers based on torch: device, precision, layout, waiting, outputs, contract."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ngbkit.compilers import torch_runtime
from ngbkit.compilers.base import Task, Tuning
from ngbkit.compilers.torch_runtime import BoundNetwork
from ngbkit.errors import UnsupportedError
from ngbkit.hardware import subprocesses
from ngbkit.sweep.records import Contract
from ngbkit.workloads.base import BATCH, TensorSpec


@pytest.fixture(autouse=True)
def restore_settings() -> Iterator[None]:
    """Restore the settings of the whole process."""
    products, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn
    tf32, benchmark = cudnn.allow_tf32, cudnn.benchmark
    yield
    torch.set_float32_matmul_precision(products)
    cudnn.allow_tf32, cudnn.benchmark = tf32, benchmark


def make_task(folder: Path, **options: Any) -> Task:
    """Build a task of a convolution on two images."""
    return Task(
        form="module",
        module=torch.nn.Conv2d(3, 4, 3).eval(),
        onnx=None,
        inputs=[TensorSpec(name="input", shape=(BATCH, 3, 8, 8))],
        arrays=[np.ones((2, 3, 8, 8), np.float32)],
        batch_size=2,
        options=options,
        threads=torch.get_num_threads(),
        cache=folder,
        tuning=Tuning(folder=folder),
    )


def bind_module(module: torch.nn.Module, **fields: Any) -> BoundNetwork:
    return BoundNetwork(module=module, inputs=(), **fields)


def test_nested_outputs_are_flattened_in_order() -> None:
    """Outputs in tuples, lists and dicts become one list in float32, without anything that is not a tensor."""
    half = torch.full((1,), 3.0, dtype=torch.float16)
    outputs = (torch.zeros(1), {"b": [torch.ones(2)], "a": None}, torch.full((3,), 2.0, dtype=torch.bfloat16), half)
    expected = [np.zeros(1), np.ones(2), np.full(3, 2.0), np.full(1, 3.0)]

    actual = torch_runtime.fetch(outputs)

    assert len(actual) == len(expected)
    for reference, output in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(reference, output)
        assert output.dtype == np.float32


def test_run_records_nothing_for_a_backward_pass_wherever_it_is_called() -> None:
    """Inside and outside the context no gradient is recorded, and the caller's mode is unchanged."""
    run = torch_runtime.disable_gradients(torch.nn.Linear(2, 2), (torch.ones(2),))
    with torch.inference_mode():
        inside = run()
    outside = run()

    assert (True, True) == (inside.is_inference(), outside.is_inference())
    assert not torch.is_inference_mode_enabled()


def test_lowered_matrix_products_are_in_the_contract() -> None:
    """If a network's code lowers the precision of matrix products, the notes of the contract report it."""
    bound = bind_module(torch.nn.Linear(2, 2))
    notes = torch_runtime.build_contract(bound, "torch eager").notes
    torch.set_float32_matmul_precision("medium")

    assert "" == notes
    assert "float32 matmul precision medium" == torch_runtime.build_contract(bound, "torch eager").notes


def test_precision_is_that_of_the_weights() -> None:
    """The contract names both precisions of a mixed module, and the inputs' for a module without weights."""
    mixed = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).to(torch.bfloat16))
    bare = BoundNetwork(module=torch.nn.ReLU(), inputs=(torch.ones(1, dtype=torch.float16),))

    assert "bf16+f32" == torch_runtime.build_contract(bind_module(mixed), "torch eager").precision
    assert "f16" == torch_runtime.build_contract(bare, "torch eager").precision


def test_a_call_on_a_gpu_says_so_in_its_contract() -> None:
    """On a GPU transfers are not timed, and float32 with rounded factors is called tf32."""
    bound = bind_module(torch.nn.Linear(2, 2), accelerator="cuda", tf32=True, channels_last=True)
    torch.set_float32_matmul_precision("high")

    contract = torch_runtime.build_contract(bound, "torch eager", "CUDA graphs")

    assert ("tf32", "excluded", "CUDA graphs; channels last") == (
        contract.precision,
        contract.transfers,
        contract.notes,
    )


@pytest.mark.parametrize(
    ("precision", "dtype"), [("f32", torch.float32), ("f16", torch.float16), ("bf16", torch.bfloat16)]
)
def test_a_network_is_cast_as_a_whole(tmp_path: Path, precision: str, dtype: torch.dtype) -> None:
    """Weights and inputs have the requested precision."""
    bound = torch_runtime.bind(make_task(tmp_path, precision=precision))

    assert {dtype} == {tensor.dtype for tensor in (*bound.module.parameters(), *bound.inputs)}
    assert precision == torch_runtime.build_contract(bound, "torch eager").precision


def test_only_images_are_laid_out_channels_last() -> None:
    """Images and convolution weights have their channels innermost; integers keep type and layout."""
    image, tokens = torch.ones(2, 3, 8, 8), torch.ones(2, 5, dtype=torch.int64)
    module, inputs = torch_runtime.place(
        torch.nn.Conv2d(3, 4, 3), [image, tokens], device="cpu", dtype=torch.bfloat16, channels_last=True
    )

    for tensor in (inputs[0], *(weight for weight in module.parameters() if weight.dim() == 4)):
        assert tensor.is_contiguous(memory_format=torch.channels_last)
        assert torch.bfloat16 == tensor.dtype
    assert torch.int64 == inputs[1].dtype
    assert inputs[1].is_contiguous()


def test_tf32_is_refused_on_a_cpu(tmp_path: Path) -> None:
    """The error for TF32 on a CPU names the alternatives."""
    with pytest.raises(UnsupportedError, match="on a CPU, use f32 or bf16"):
        torch_runtime.bind(make_task(tmp_path, precision="tf32"))


@pytest.mark.parametrize(("precision", "products"), [("f32", "highest"), ("tf32", "high")])
def test_products_on_a_gpu_are_conclusive(monkeypatch: pytest.MonkeyPatch, precision: str, products: str) -> None:
    """Products of float32 are exact unless TF32 is requested, also in convolutions, whatever was set before."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = precision == "f32"

    torch_runtime._set_product_precision(precision, "cuda")

    assert products == torch.get_float32_matmul_precision()
    assert (precision == "tf32") == torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.benchmark


def test_a_torch_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build of torch without a GPU is refused with the reason."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch_runtime, "probe_cuda", lambda: "it is built without CUDA")

    with pytest.raises(UnsupportedError, match="no GPU here: it is built without CUDA"):
        torch_runtime._set_product_precision("f32", "cuda")


def test_run_on_a_gpu_waits_and_enqueue_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU `run` returns once the stream is idle, and the peak memory excludes compiling."""
    events: list[str] = []
    stream = SimpleNamespace(synchronize=lambda: events.append("waited"), cuda_stream=7)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: events.append("reset"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5)

    def enqueue() -> str:
        events.append("called")
        return "outputs"

    program = torch_runtime.make_program(
        bind_module(torch.nn.Linear(2, 2), accelerator="cuda"),
        enqueue,
        "torch eager",
        explain=lambda: {"nodes_after": 1},
    )

    assert program.enqueue is not None
    assert ("outputs", "outputs") == (program.run(), program.enqueue())
    assert ["reset", "called", "waited", "called"] == events
    assert 7 == program.stream
    assert {"nodes_after": 1, "gpu_peak_allocated_bytes": 5} == program.explain()


def test_the_probe_says_what_torch_lacks() -> None:
    """The probe program raises nothing, and prints a reason unless torch has a GPU."""
    reason = subprocesses.run([sys.executable, "-c", torch_runtime._PROBE], environment=os.environ, timeout_s=120)

    assert torch.cuda.is_available() == (not reason)
    assert not reason or re.match(r"torch .* (is built without CUDA|does not compute on this GPU)", reason)


def test_a_network_that_cannot_be_cast_is_a_refusal(tmp_path: Path) -> None:
    """A network whose own code creates float32 tensors is unsupported in a lower precision, not failed."""

    class Stubborn(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.linear(value + torch.zeros(2, dtype=torch.float32))
            return result

    with pytest.raises(RuntimeError) as raised:
        Stubborn().to(torch.bfloat16)(torch.ones(1, 2, dtype=torch.bfloat16))

    assert any(re.search(pattern, f"RuntimeError: {raised.value}") for pattern in torch_runtime.REFUSALS)


def test_the_contract_has_what_a_network_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads and switches that the network's own code sets are in the contract."""
    threads = torch.get_num_threads()
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    try:
        contract = torch_runtime.observe_state(Contract(runtime="torch eager", threads=2, notes="x"))
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)

    assert 1 == contract.threads
    assert "x; default dtype float64; deterministic algorithms; oneDNN off" == contract.notes
