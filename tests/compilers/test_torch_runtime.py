"""What the compilers of torch's family share: place, precision, layout, waiting, outputs, contract."""

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
from ngbkit.compilers.torch_runtime import Bound
from ngbkit.errors import UnsupportedError
from ngbkit.hardware import subprocesses
from ngbkit.workloads.base import TensorSpec


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What is settled for a whole process is given back."""
    products, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn
    tf32, benchmark = cudnn.allow_tf32, cudnn.benchmark
    yield
    torch.set_float32_matmul_precision(products)
    cudnn.allow_tf32, cudnn.benchmark = tf32, benchmark


def make_task(folder: Path, **options: Any) -> Task:
    """A convolution on two images."""
    return Task(
        form="module",
        module=torch.nn.Conv2d(3, 4, 3).eval(),
        onnx=None,
        inputs=[TensorSpec(name="input", shape=(3, 8, 8))],
        arrays=[np.ones((2, 3, 8, 8), np.float32)],
        batch_size=2,
        options=options,
        threads=torch.get_num_threads(),
        cache=folder,
        tuning=Tuning(folder=folder),
    )


def bound_of(module: torch.nn.Module, **parts: Any) -> Bound:
    return Bound(module=module, inputs=(), **parts)


def test_nested_outputs_are_flattened_in_order() -> None:
    """Outputs in tuples, lists and dicts come out as one list, in float32, without what is not a tensor."""
    half = torch.full((1,), 3.0, dtype=torch.float16)
    outputs = (torch.zeros(1), {"b": [torch.ones(2)], "a": None}, torch.full((3,), 2.0, dtype=torch.bfloat16), half)
    expected = [np.zeros(1), np.ones(2), np.full(3, 2.0), np.full(1, 3.0)]

    actual = torch_runtime.fetch(outputs)

    assert len(actual) == len(expected)
    for one, other in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(one, other)
        assert other.dtype == np.float32


def test_run_records_nothing_for_a_backward_pass_wherever_it_is_called() -> None:
    """Inside the context that saves time and outside it no gradient is kept, and the caller's mode is left alone."""
    run = torch_runtime.without_gradients(torch.nn.Linear(2, 2), (torch.ones(2),))
    with torch_runtime.torch_mode()():
        inside = run()
    outside = run()

    assert (True, True) == (inside.is_inference(), outside.is_inference())
    assert not torch.is_inference_mode_enabled()


def test_lowered_matrix_products_are_in_the_contract() -> None:
    """Where a network's code has let torch multiply in lower precision, the notes of the contract say so."""
    bound = bound_of(torch.nn.Linear(2, 2))
    before = torch_runtime.contract(bound, "torch eager").notes
    torch.set_float32_matmul_precision("medium")

    assert "" == before
    assert "float32 matmul precision medium" == torch_runtime.contract(bound, "torch eager").notes


def test_precision_is_that_of_the_weights() -> None:
    """The contract names both precisions of a module that has two; one without weights goes by its inputs."""
    mixed = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).to(torch.bfloat16))
    bare = Bound(module=torch.nn.ReLU(), inputs=(torch.ones(1, dtype=torch.float16),))

    assert "bf16+f32" == torch_runtime.contract(bound_of(mixed), "torch eager").precision
    assert "f16" == torch_runtime.contract(bare, "torch eager").precision


def test_a_call_on_a_gpu_says_so_in_its_contract() -> None:
    """On a GPU transfers are not timed, and float32 whose factors are rounded goes by the name of tf32."""
    bound = bound_of(torch.nn.Linear(2, 2), accelerator="cuda", tf32=True, channels_last=True)
    torch.set_float32_matmul_precision("high")

    contract = torch_runtime.contract(bound, "torch eager", "CUDA graphs")

    assert ("tf32", "excluded", "CUDA graphs; channels last") == (
        contract.precision,
        contract.transfers,
        contract.notes,
    )


@pytest.mark.parametrize(
    ("precision", "dtype"), [("f32", torch.float32), ("f16", torch.float16), ("bf16", torch.bfloat16)]
)
def test_a_network_is_cast_as_a_whole(tmp_path: Path, precision: str, dtype: torch.dtype) -> None:
    """Weights and inputs are of the precision that was asked for."""
    bound = torch_runtime.bind(make_task(tmp_path, precision=precision))

    assert {dtype} == {tensor.dtype for tensor in (*bound.module.parameters(), *bound.inputs)}
    assert precision == torch_runtime.contract(bound, "torch eager").precision


def test_only_images_are_laid_out_channels_last() -> None:
    """Images and the weights of convolutions have their channels innermost; whole numbers keep type and layout."""
    image, tokens = torch.ones(2, 3, 8, 8), torch.ones(2, 5, dtype=torch.int64)
    module, inputs = torch_runtime.place(
        torch.nn.Conv2d(3, 4, 3), [image, tokens], device="cpu", dtype=torch.bfloat16, channels_last=True
    )

    for tensor in (inputs[0], *(one for one in module.parameters() if one.dim() == 4)):
        assert tensor.is_contiguous(memory_format=torch.channels_last)
        assert torch.bfloat16 == tensor.dtype
    assert torch.int64 == inputs[1].dtype
    assert inputs[1].is_contiguous()


def test_tf32_is_refused_on_a_cpu(tmp_path: Path) -> None:
    """TF32 on a CPU is answered with what there is instead."""
    with pytest.raises(UnsupportedError, match="on a CPU, ask for f32 or bf16"):
        torch_runtime.bind(make_task(tmp_path, precision="tf32"))


@pytest.mark.parametrize(("precision", "products"), [("f32", "highest"), ("tf32", "high")])
def test_products_on_a_gpu_are_settled(monkeypatch: pytest.MonkeyPatch, precision: str, products: str) -> None:
    """Whatever was set before, products of float32 are exact unless TF32 is asked for, in convolutions as well."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = precision == "f32"

    torch_runtime._choose_products(precision, "cuda")

    assert products == torch.get_float32_matmul_precision()
    assert (precision == "tf32") == torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.benchmark


def test_a_torch_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build of torch that has no GPU is not asked for one, and says why."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch_runtime, "probe_cuda", lambda: "it is built without CUDA")

    with pytest.raises(UnsupportedError, match="no GPU here: it is built without CUDA"):
        torch_runtime._choose_products("f32", "cuda")


def test_run_on_a_gpu_waits_and_enqueue_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU `run` gives the outputs once the stream is done, and what compiling took is no peak of the calls."""
    done: list[str] = []
    stream = SimpleNamespace(synchronize=lambda: done.append("waited"), cuda_stream=7)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: done.append("reset"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5)

    def enqueue() -> str:
        done.append("called")
        return "outputs"

    program = torch_runtime.make_program(
        bound_of(torch.nn.Linear(2, 2), accelerator="cuda"), enqueue, "torch eager", explain=lambda: {"nodes_after": 1}
    )

    assert program.enqueue is not None
    assert ("outputs", "outputs") == (program.run(), program.enqueue())
    assert ["reset", "called", "waited", "called"] == done
    assert 7 == program.stream
    assert {"nodes_after": 1, "gpu_peak_allocated_bytes": 5} == program.explain()


def test_the_probe_says_what_torch_lacks() -> None:
    """The program that asks torch for a GPU raises nothing itself, and prints a reason where there is none."""
    said = subprocesses.run([sys.executable, "-c", torch_runtime._PROBE], environment=os.environ, timeout_s=120)

    assert torch.cuda.is_available() == (not said)
    assert not said or re.match(r"torch .* (is built without CUDA|does not compute on this GPU)", said)


def test_a_network_that_cannot_be_cast_is_a_refusal(tmp_path: Path) -> None:
    """A network whose own code makes tensors of float32 is unsupported in a lower precision, not failed."""

    class Stubborn(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, one: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.linear(one + torch.zeros(2, dtype=torch.float32))
            return result

    with pytest.raises(RuntimeError) as raised:
        Stubborn().to(torch.bfloat16)(torch.ones(1, 2, dtype=torch.bfloat16))

    assert any(re.search(pattern, f"RuntimeError: {raised.value}") for pattern in torch_runtime.REFUSALS)
