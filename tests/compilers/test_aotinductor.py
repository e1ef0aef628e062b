"""AOTInductor passes the conformance suite, and caches its packages."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attempts import find_attempt

from ngbkit.compilers import aotinductor, torch_runtime
from ngbkit.compilers.base import Task, Tuning
from ngbkit.testing import CompilerConformance
from ngbkit.workloads.base import BATCH, TensorSpec

REFERENCE = "ngbkit.compilers.aotinductor:COMPILER"


class TestAOTInductor(CompilerConformance):
    compiler = REFERENCE


def make_task(folder: Path, module: torch.nn.Module, **options: Any) -> Task:
    return Task(
        form="module",
        module=module,
        onnx=None,
        inputs=[TensorSpec(name="input", shape=(BATCH, 2))],
        arrays=[np.ones((3, 2), np.float32)],
        batch_size=3,
        options=aotinductor.COMPILER.settle(options),
        threads=torch.get_num_threads(),
        cache=folder,
        tuning=Tuning(folder=folder),
    )


def build_key(task: Task) -> str:
    return aotinductor._build_key(task, torch_runtime.bind(task), aotinductor._build_settings(task))


def test_operators_and_kernels_are_counted() -> None:
    """Exported operators and calls of the generated code are counted; with frozen weights fusions are omitted."""
    frozen, plain = find_attempt(REFERENCE).explained, find_attempt(REFERENCE, freezing=False).explained

    assert find_attempt(REFERENCE).facts["package_bytes"] > 0
    assert 9 == frozen["nodes_before"] == plain["nodes_before"]
    assert 2 == frozen["operators"]["aten.conv2d.default"]
    for counts in (frozen, plain):
        assert counts["nodes_after"] == counts["kernel_calls"] + sum(counts["extern_calls"].values())
    assert 2 == frozen["extern_calls"]["aoti_torch_cpu_mkldnn__convolution_pointwise"]
    assert 2 == plain["extern_calls"]["aoti_torch_cpu_convolution"]
    assert 1 <= plain["nodes_fused"] <= plain["kernel_calls"]
    assert "nodes_fused" not in frozen


def test_a_package_has_a_name_of_all_that_it_depends_on(tmp_path: Path) -> None:
    """The name of a package differs by weight, precision, option, layout and threads."""

    def make(weight: float = 1.0, **options: Any) -> Task:
        module = torch.nn.Linear(2, 2)
        torch.nn.init.constant_(module.weight, weight)
        torch.nn.init.zeros_(module.bias)
        return make_task(tmp_path, module, **options)

    first = make()
    others = [
        make(weight=2.0),
        make(precision="bf16"),
        make(freezing=False),
        make(max_autotune=True),
        dataclasses.replace(make(), threads=first.threads + 1),
        dataclasses.replace(make(), arrays=[np.ones((4, 2), np.float32)]),
    ]
    names = [build_key(task) for task in (first, *others)]

    assert len(set(names)) == len(names)
    assert names[0] == build_key(make())


def test_a_buffer_that_no_state_holds_is_in_the_name(tmp_path: Path) -> None:
    """A buffer that is not saved with the weights is part of the key, because it is compiled in."""
    names = set()
    for value in (1.0, 2.0):
        module = torch.nn.Linear(2, 2)
        for weight in module.parameters():
            torch.nn.init.zeros_(weight)
        module.register_buffer("scale", torch.full((2,), value), persistent=False)
        names.add(build_key(make_task(tmp_path, module)))

    assert 2 == len(names)


def test_outputs_are_flat_and_only_tensors() -> None:
    """A network that returns a dict with a number in it is exported with only its tensors, in order."""

    class Mixed(torch.nn.Module):
        def forward(self, value: torch.Tensor) -> dict[str, Any]:
            return {"b": value + 1, "a": [value * 2, None, 3.0]}

    outputs = aotinductor._flatten_outputs(Mixed())(torch.ones(1))

    assert [2.0, 2.0] == [float(tensor) for tensor in outputs]


def test_calls_are_read_from_the_code_of_a_network() -> None:
    """The calls are the kernels and operators of ``run_impl``, without allocations and views."""
    source = """
void cpp_fused_relu_0(const float* in_ptr0, float* out_ptr0);
void AOTInductorModel::run_impl(AtenTensorHandle* input_handles) {
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(4, int_array_0, int_array_1, &buf0_handle));
    cpp_fused_relu_0((const float*)(arg9_1.data_ptr()), (float*)(buf0.data_ptr()));
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(buf8, reinterpret_tensor_wrapper(weight, 2, a, b, 0L), 1L));
    aoti_torch_proxy_executor_call_function(proxy_executor, 0, 0, {}, 1, {});
} // AOTInductorModel::run_impl
void another() { cpp_fused_relu_0(a, b); }
"""
    expected = ["cpp_fused_relu_0", "aoti_torch_cpu_addmm_out", "aoti_torch_proxy_executor_call_function"]

    assert expected == aotinductor._find_calls(source)


def test_a_gpu_needs_the_headers_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that Inductor supports, the probe checks for the CUDA toolkit."""
    libraries: list[str] = []

    def find_problem(library: str, program: str) -> str:
        libraries.append(library)
        return "set CUDA_HOME"

    monkeypatch.setattr(aotinductor.inductor_runtime, "probe_cuda", lambda: "")
    monkeypatch.setattr(aotinductor.cuda, "find_problem", find_problem)

    assert "set CUDA_HOME" == aotinductor.COMPILER.unavailable("cuda:0")
    assert ["aotinductor"] == libraries


@pytest.mark.parametrize("has_headers", [True, False])
def test_the_headers_are_searched_below_the_toolkit(tmp_path: Path, has_headers: bool) -> None:
    """The probe runs in a process of its own; it prints what is missing, or nothing."""
    headers = tmp_path / "include"
    headers.mkdir()
    if has_headers:
        (headers / "cuda.h").touch()
    process = subprocess.run(
        [sys.executable, "-c", aotinductor._HEADERS],
        env={**os.environ, "CUDA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ("found no cuda.h" in process.stdout) != has_headers
