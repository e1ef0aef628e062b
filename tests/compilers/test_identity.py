"""The baseline, held to the protocol, and what the torch compilers share with it."""

import numpy as np
import pytest
import torch

from ngbkit.compilers import identity
from ngbkit.compilers.base import Task, Tuning
from ngbkit.errors import MissingDependencyError
from ngbkit.testing import CompilerConformance, observe


class TestIdentity(CompilerConformance):
    compiler = "identity"


def test_onnx_baseline_is_unoptimised_onnxruntime() -> None:
    """For an ONNX file the baseline is ONNX Runtime with its optimisations off, and the contract says so."""
    runtimes = {attempt.form: attempt.contract.runtime for attempt in observe("identity") if attempt.contract}

    assert runtimes == {"module": "torch eager", "onnx": "onnxruntime CPUExecutionProvider, graph optimisations off"}


def test_facts_name_the_blas() -> None:
    """The facts name the library behind torch's matrix products."""
    facts = next(attempt.facts for attempt in observe("identity") if attempt.form == "module")

    assert facts["blas"] not in {"", "unknown"}


def test_onnx_without_onnxruntime_names_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Where ONNX Runtime is missing, an ONNX file is answered with the command that brings it."""
    monkeypatch.setattr(identity, "version", lambda package: None)
    task = Task(
        form="onnx",
        module=None,
        onnx=tmp_path / "net.onnx",
        inputs=[],
        arrays=[],
        batch_size=1,
        options={},
        threads=1,
        cache=tmp_path,
        tuning=Tuning(folder=tmp_path),
    )

    with pytest.raises(MissingDependencyError, match=r"pip install 'ngbkit\[onnxruntime\]'"):
        identity.compile(task)


def test_nested_outputs_are_flattened_in_order() -> None:
    """Outputs in tuples, lists and dicts come out as one list, without what is not a tensor."""
    outputs = (torch.zeros(1), {"b": [torch.ones(2)], "a": None}, torch.full((3,), 2.0, dtype=torch.bfloat16))
    expected = [np.zeros(1), np.ones(2), np.full(3, 2.0)]

    actual = identity.fetch(outputs)

    assert len(actual) == len(expected)
    for one, other in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(one, other)
        assert other.dtype == np.float32


def test_the_baseline_fuses_nothing() -> None:
    """The graph of an ONNX file is executed as it came."""
    explained = [attempt.explained for attempt in observe("identity") if attempt.form == "onnx" and attempt.contract]

    assert explained
    assert all(0 == one["nodes_fused"] and one["nodes_before"] == one["nodes_after"] for one in explained)


def test_run_records_nothing_for_a_backward_pass_wherever_it_is_called() -> None:
    """Inside the context that saves time and outside it no gradient is kept, and the caller's mode is left alone."""
    inputs = (torch.ones(2),)
    run = identity.without_gradients(torch.nn.Linear(2, 2), inputs)
    with identity.torch_mode()():
        inside = run()
    outside = run()

    assert (True, True) == (inside.is_inference(), outside.is_inference())
    assert not torch.is_inference_mode_enabled()


def test_lowered_matrix_products_are_in_the_contract() -> None:
    """Where a network's code has let torch multiply in lower precision, the notes of the contract say so."""
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        notes = identity.contract(torch.nn.Linear(2, 2), "torch eager").notes
    finally:
        torch.set_float32_matmul_precision(before)

    assert "float32 matmul precision medium" == notes
    assert "" == identity.contract(torch.nn.Linear(2, 2), "torch eager").notes


def test_precision_is_that_of_the_weights() -> None:
    """The contract of a module with weights of two precisions names both."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).to(torch.bfloat16))

    assert identity.contract(module, "torch eager").precision == "bf16+f32"
