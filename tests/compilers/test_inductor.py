"""Inductor, held to the protocol."""

import pytest

from ngbkit.compilers import inductor
from ngbkit.testing import CompilerConformance, observe


class TestInductor(CompilerConformance):
    compiler = "inductor"


def test_facts_tell_graphs_breaks_and_cache() -> None:
    """The facts tell that one whole graph was captured, and that a fresh cache folder held nothing of it."""
    facts = observe("inductor")[0].facts

    assert (1, 0, "miss") == (facts["graphs"], facts["graph_breaks"], facts["cache"])


def test_kernels_and_fusions_are_counted() -> None:
    """The operators that Dynamo captured and the calls of the generated code are counted, fused kernels among them."""
    explained = observe("inductor")[0].explained

    assert 9 == explained["nodes_before"]
    assert explained["nodes_after"] == explained["kernel_calls"] + sum(explained["extern_calls"].values())
    assert 2 == explained["extern_calls"]["extern_kernels.convolution"]
    assert 1 <= explained["nodes_fused"] <= explained["kernel_calls"]


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
        buf1 = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(buf0, buf0, buf0)
        return (buf1[0], )

def benchmark():
    cpp_fused_add_relu_0(None)
"""
    attention = "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default"

    assert ["extern_kernels.mm", "cpp_fused_add_relu_0", attention] == list(inductor._calls(source))


@pytest.mark.parametrize(
    ("kernel", "fused"),
    [
        ("cpp_fused_convolution_0", False),
        ("cpp_fused_native_layer_norm_12", False),
        ("cpp_fused__native_batch_norm_legit_no_training_convolution_relu_1", True),
        ("cpp_fused_add_gelu_3", True),
    ],
)
def test_a_kernel_is_fused_where_its_name_joins_operators(kernel: str, fused: bool) -> None:
    """A kernel that bears the name of one operator does the work of one, and any other that of more."""
    assert inductor._is_fused(kernel) is fused


def test_graph_breaks_have_their_reasons_and_no_count_of_nodes() -> None:
    """Where Dynamo broke off, the first line of each reason is kept, and nodes that nobody counted are left out."""
    found = inductor._Found(
        graphs=2,
        breaks={"Call to `print`\n  Explanation: …": 2},
        captured=3,
        before_fusion=3,
        hits=0,
        misses=2,
        sources=(),
    )
    explained = inductor._explain(found)

    assert (2, ["Call to `print`"]) == (explained["graph_breaks"], explained["graph_break_reasons"])
    assert not {"nodes_before", "nodes_after", "nodes_fused"} & set(explained)


@pytest.mark.parametrize(("cxx", "said"), [(None, "no g++ or clang++ is found"), ("nowhere++", "'nowhere++'")])
def test_a_missing_cxx_compiler_is_named(monkeypatch: pytest.MonkeyPatch, cxx: str | None, said: str) -> None:
    """Without a C++ compiler Inductor is unavailable, and says which one it looked for."""
    monkeypatch.setenv("CXX", cxx) if cxx else monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(inductor.shutil, "which", lambda name: None)

    assert said in inductor.COMPILER.unavailable()
