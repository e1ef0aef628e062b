"""Inductor, held to the protocol."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ngbkit.compilers import inductor, inductor_runtime
from ngbkit.testing import CompilerConformance, observe


class TestInductor(CompilerConformance):
    compiler = "inductor"


def test_facts_tell_graphs_breaks_and_cache() -> None:
    """The facts tell that one whole graph was captured, and that a fresh cache folder held nothing of it."""
    facts = observe("inductor", "cpu")[0].facts

    assert (1, 0, "miss") == (facts["graphs"], facts["graph_breaks"], facts["cache"])


def test_kernels_and_fusions_are_counted() -> None:
    """The operators that Dynamo captured and the calls of the generated code are counted, fused kernels among them."""
    explained = explained_with({"freezing": False})

    assert 9 == explained["nodes_before"]
    assert explained["nodes_after"] == explained["kernel_calls"] + sum(explained["extern_calls"].values())
    assert 2 == explained["extern_calls"]["extern_kernels.convolution"]
    assert 1 <= explained["nodes_fused"] <= explained["kernel_calls"]


def test_frozen_convolutions_take_their_activation_in() -> None:
    """Frozen, no kernel is left for BatchNorm and ReLU; how many operators a convolution stands for is left open."""
    frozen, plain = explained_with({}), explained_with({"freezing": False})

    assert 2 == frozen["extern_calls"]["torch.ops.mkldnn._convolution_pointwise.default"]
    assert frozen["nodes_before"] == plain["nodes_before"]
    assert "nodes_fused" not in frozen


def explained_with(options: dict[str, bool]) -> Mapping[str, Any]:
    """What the first attempt with those options told of itself."""
    return next(attempt.explained for attempt in observe("inductor", "cpu") if dict(attempt.options) == options)


def test_calls_are_read_from_the_code_of_a_graph() -> None:
    """What a graph calls is read from its ``call``: generated kernels and library calls, but no allocation or check."""
    source = """
cpp_fused_add_relu_0 = async_compile.cpp_pybinding([], r'cpp_not_a_call()')

class Runner:
    def call(self, args):
        assert_size_stride(arg0_1, (1, 8), (8, 1), 'input')
        buf0 = empty_strided_cpu((1, 8), (8, 1), torch.float32)
        extern_kernels.mm(arg0_1, arg1_1, out=buf0)
        cpp_fused_add_relu_0(buf0)
        triton_poi_fused_add_relu_0.run(buf0, 8, stream=stream0)
        buf1 = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(buf0, buf0, buf0)
        return (buf1[0], )

def benchmark():
    cpp_fused_add_relu_0(None)
"""
    attention = "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default"
    kernels = ["cpp_fused_add_relu_0", "triton_poi_fused_add_relu_0"]

    assert ["extern_kernels.mm", *kernels, attention] == list(inductor._calls(source))


@pytest.mark.parametrize(
    ("kernel", "fused"),
    [
        ("cpp_fused_convolution_0", False),
        ("cpp_fused_native_layer_norm_12", False),
        ("cpp_fused__native_batch_norm_legit_no_training_convolution_relu_1", True),
        ("cpp_fused_add_gelu_3", True),
        ("triton_poi_fused_relu_0", False),
        ("triton_red_fused_native_layer_norm_4", False),
        ("triton_per_fused_add_native_layer_norm_12", True),
    ],
)
def test_a_kernel_is_fused_where_its_name_joins_operators(kernel: str, fused: bool) -> None:
    """A kernel that bears the name of one operator does the work of one, and any other that of more."""
    assert inductor_runtime.is_fused(kernel) is fused


def test_graph_breaks_have_their_reasons_and_no_count_of_nodes() -> None:
    """Where Dynamo broke off, the first line of each reason is kept, and nodes that nobody counted are left out."""
    found = found_with(graphs=2, breaks={"Call to `print`\n  Explanation: …": 2})
    explained = inductor._explain(found)

    assert (2, ["Call to `print`"]) == (explained["graph_breaks"], explained["graph_break_reasons"])
    assert not {"nodes_before", "nodes_after", "nodes_fused"} & set(explained)


@pytest.mark.parametrize(("cxx", "said"), [(None, "no g++ or clang++ is found"), ("nowhere++", "'nowhere++'")])
def test_a_missing_cxx_compiler_is_named(monkeypatch: pytest.MonkeyPatch, cxx: str | None, said: str) -> None:
    """Without a C++ compiler Inductor is unavailable, and says which one it looked for."""
    monkeypatch.setenv("CXX", cxx) if cxx else monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(inductor_runtime.shutil, "which", lambda name: None)

    assert said in inductor.COMPILER.unavailable()


@pytest.mark.parametrize("accelerator", ["cpu", "cuda:0"])
def test_missing_headers_of_python_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, accelerator: str) -> None:
    """A bare Debian has a Python without them, and what Inductor generates includes them."""
    monkeypatch.setattr(inductor_runtime.torch_runtime, "probe_cuda", lambda: "")
    monkeypatch.setattr(inductor_runtime.sysconfig, "get_path", lambda name: str(tmp_path))

    assert "apt install python3-dev" in inductor.COMPILER.unavailable(accelerator)


def test_a_gpu_needs_triton_and_a_c_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that torch can use, Triton is asked for first, then the compiler that it calls, then Inductor's own."""
    found = {"triton", "gcc", "g++"}
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(inductor_runtime.torch_runtime, "probe_cuda", lambda: "")
    monkeypatch.setattr(inductor_runtime.importlib.util, "find_spec", lambda name: name if name in found else None)
    monkeypatch.setattr(inductor_runtime.shutil, "which", lambda name: name if name in found else None)
    said = [inductor.COMPILER.unavailable("cuda:0")]
    for gone in ("g++", "gcc", "triton"):
        found.remove(gone)
        said.append(inductor.COMPILER.unavailable("cuda:0"))

    assert "" == said[0]
    assert ["g++", "gcc", "triton"] == [re.findall(r"install (\S+)$", reason)[0] for reason in said[1:]]


def test_what_torch_lacks_on_a_gpu_is_told_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch cannot use the GPU, nothing else is looked for."""
    monkeypatch.setattr(inductor_runtime.torch_runtime, "probe_cuda", lambda: "there is no NVIDIA driver")

    assert "there is no NVIDIA driver" == inductor.COMPILER.unavailable("cuda:0")


@pytest.mark.parametrize(
    ("mode", "recorded"),
    [("default", False), ("reduce-overhead", True), ("max-autotune-no-cudagraphs", False), ("max-autotune", True)],
)
def test_modes_that_record_cuda_graphs_are_known(mode: str, recorded: bool) -> None:
    """Two of the modes record CUDA graphs, which the contract must tell."""
    assert recorded == inductor.records_graphs(mode)


@pytest.mark.parametrize(
    ("counted", "built", "kept"),
    [
        ({"hits": 1}, set(), True),
        ({"hits": 1, "misses": 1}, set(), False),
        ({"bypasses": 1}, set(), True),
        ({"bypasses": 1}, {Path("kernel.so")}, False),
        ({"misses": 1}, set(), False),
    ],
)
def test_a_graph_that_cannot_be_kept_hits_by_its_kernels(counted: dict[str, int], built: set[Path], kept: bool) -> None:
    """A cache was hit where every graph came from it, or where a graph that is never kept found all its kernels."""
    assert kept == inductor._was_kept(found_with(**counted), built_now=built)


def found_with(**counted: Any) -> inductor._Found:
    """What was counted, and nothing else."""
    nothing: dict[str, Any] = {"graphs": 1, "breaks": {}, "captured": 3, "before_fusion": 3, "hits": 0, "misses": 0}
    return inductor._Found(**(nothing | {"bypasses": 0, "sources": (), "frozen": True} | counted))
