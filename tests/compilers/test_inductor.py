"""Inductor passes the conformance suite, and reports its kernels."""

import re
from pathlib import Path
from typing import Any

import pytest
from attempts import find_attempt

from ngbkit.compilers import inductor, inductor_runtime
from ngbkit.testing import CompilerConformance
from ngbkit.testing.observation import observe


class TestInductor(CompilerConformance):
    compiler = "inductor"


def test_facts_tell_graphs_breaks_and_cache() -> None:
    """The facts report one captured graph without breaks, and a miss in a new cache folder."""
    facts = observe("inductor", "cpu")[0].facts

    assert (1, 0, "miss") == (facts["graphs"], facts["graph_breaks"], facts["cache"])


def test_kernels_and_fusions_are_counted() -> None:
    """Captured operators and calls of the generated code are counted, fused kernels among them."""
    explained = find_attempt("inductor", freezing=False).explained

    assert 9 == explained["nodes_before"]
    assert explained["nodes_after"] == explained["kernel_calls"] + sum(explained["extern_calls"].values())
    assert 2 == explained["extern_calls"]["extern_kernels.convolution"]
    assert 1 <= explained["nodes_fused"] <= explained["kernel_calls"]


def test_frozen_convolutions_take_their_activation_in() -> None:
    """Frozen, BatchNorm and ReLU leave no kernel of their own, and fusions are not counted."""
    frozen, plain = find_attempt("inductor").explained, find_attempt("inductor", freezing=False).explained

    assert 2 == frozen["extern_calls"]["torch.ops.mkldnn._convolution_pointwise.default"]
    assert frozen["nodes_before"] == plain["nodes_before"]
    assert "nodes_fused" not in frozen


def test_calls_are_read_from_the_code_of_a_graph() -> None:
    """The calls are the generated kernels and library calls of ``call``, without allocations and checks."""
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

    assert ["extern_kernels.mm", *kernels, attention] == list(inductor._find_calls(source))


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
    """A kernel named after one operator is not fused, and any other is."""
    assert inductor_runtime.is_fused(kernel) is fused


def test_graph_breaks_have_their_reasons_and_no_count_of_nodes() -> None:
    """A graph break reports the first line of each reason and omits node counts."""
    counts = count_with(graphs=2, breaks={"Call to `print`\n  Explanation: …": 2})
    explained = inductor._explain(counts)

    assert (2, ["Call to `print`"]) == (explained["graph_breaks"], explained["graph_break_reasons"])
    assert not {"nodes_before", "nodes_after", "nodes_fused"} & set(explained)


@pytest.mark.parametrize(("cxx", "message"), [(None, "found no g++ or clang++"), ("nowhere++", "'nowhere++'")])
def test_a_missing_cxx_compiler_is_named(monkeypatch: pytest.MonkeyPatch, cxx: str | None, message: str) -> None:
    """Inductor is unavailable if the C++ compiler is missing, and the reason names that compiler."""
    monkeypatch.setenv("CXX", cxx) if cxx else monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(inductor_runtime.shutil, "which", lambda name: None)

    assert message in inductor.COMPILER.unavailable()


@pytest.mark.parametrize("accelerator", ["cpu", "cuda:0"])
def test_missing_headers_of_python_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, accelerator: str) -> None:
    """A bare Debian lacks Python's headers, which Inductor's code includes."""
    monkeypatch.setattr(inductor_runtime.torch_runtime, "probe_cuda", lambda: "")
    monkeypatch.setattr(inductor_runtime.sysconfig, "get_path", lambda name: str(tmp_path))

    assert "apt install python3-dev" in inductor.COMPILER.unavailable(accelerator)


def test_a_gpu_needs_triton_and_a_c_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that torch supports, Inductor requires Triton, then the compiler that Triton calls, then its own."""
    installed = {"triton", "gcc", "g++"}
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(inductor_runtime.torch_runtime, "probe_cuda", lambda: "")
    monkeypatch.setattr(inductor_runtime.importlib.util, "find_spec", lambda name: name if name in installed else None)
    monkeypatch.setattr(inductor_runtime.shutil, "which", lambda name: name if name in installed else None)
    reasons = [inductor.COMPILER.unavailable("cuda:0")]
    for tool in ("g++", "gcc", "triton"):
        installed.remove(tool)
        reasons.append(inductor.COMPILER.unavailable("cuda:0"))

    assert "" == reasons[0]
    assert ["g++", "gcc", "triton"] == [re.findall(r"install (\S+)$", reason)[0] for reason in reasons[1:]]


def test_what_torch_lacks_on_a_gpu_is_told_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """If torch cannot use the GPU, nothing else is checked."""
    monkeypatch.setattr(inductor_runtime.torch_runtime, "probe_cuda", lambda: "there is no NVIDIA driver")

    assert "there is no NVIDIA driver" == inductor.COMPILER.unavailable("cuda:0")


@pytest.mark.parametrize(
    ("mode", "recorded"),
    [("default", False), ("reduce-overhead", True), ("max-autotune-no-cudagraphs", False), ("max-autotune", True)],
)
def test_modes_that_record_cuda_graphs_are_known(mode: str, recorded: bool) -> None:
    """Two of the modes record CUDA graphs, as the contract must note."""
    assert recorded == inductor.records_graphs(mode)


@pytest.mark.parametrize(
    ("counted", "built", "hit"),
    [
        ({"hits": 1}, set(), True),
        ({"hits": 1, "misses": 1}, set(), False),
        ({"bypasses": 1}, set(), True),
        ({"bypasses": 1}, {Path("kernel.so")}, False),
        ({"misses": 1}, set(), False),
    ],
)
def test_a_graph_that_cannot_be_kept_hits_by_its_kernels(counted: dict[str, int], built: set[Path], hit: bool) -> None:
    """The cache is hit if it has every graph, or all kernels of a graph that is never cached."""
    assert hit == inductor._is_hit(count_with(**counted), new_binaries=built)


def count_with(**counted: Any) -> inductor._Counts:
    """Build counts from those given, and defaults."""
    defaults: dict[str, Any] = {"graphs": 1, "breaks": {}, "captured": 3, "before_fusion": 3, "hits": 0, "misses": 0}
    return inductor._Counts(**(defaults | {"bypasses": 0, "sources": (), "frozen": True} | counted))
