"""Inductor reports its kernels, and the modules that these compute, as eager torch does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ngbkit import registry
from ngbkit.compilers.base import Compiler, Task, Tuning
from ngbkit.compilers.profiles import inductor, torch_graph
from ngbkit.compilers.profiles.inductor import KernelCall
from ngbkit.compilers.profiles.profile import Profile
from ngbkit.compilers.profiles.torch_graph import Operation
from ngbkit.device.isolation.profiling import ProfiledTurns
from ngbkit.workloads.base import BATCH, TensorSpec

IMAGE = (3, 16, 16)


class Residual(torch.nn.Module):
    """Two convolutions with a skip connection and normalisations, a depthwise one, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.body = torch.nn.Sequential(torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.BatchNorm2d(16))
        self.depth = torch.nn.Conv2d(16, 16, 3, groups=16)
        self.head = torch.nn.Linear(16, 8)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values = torch.relu(self.stem(values))
        values = self.depth(torch.relu(values + self.body(values)))
        head: torch.Tensor = self.head(values.mean((2, 3)))
        return head


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    """The profile of a residual network in Inductor."""
    return profile_network("inductor", tmp_path_factory.mktemp("profile"))


def profile_network(name: str, folder: Path) -> Profile:
    """Profile a residual network, whose outputs profiling leaves as they are."""
    compiler: Compiler = registry.load(registry.COMPILERS, name)
    torch.manual_seed(0)
    program = compiler.compile(
        Task(
            form="module",
            module=Residual().eval(),
            onnx=None,
            inputs=(TensorSpec(name="input", shape=(BATCH, *IMAGE), dtype="float32"),),
            arrays=[np.zeros((1, *IMAGE), np.float32)],
            batch_size=1,
            options=compiler.settle({}),
            threads=1,
            cache=folder,
            tuning=Tuning(folder=folder / "tuning"),
        )
    )
    assert program.profile is not None
    before = [array.copy() for array in program.fetch(program.run())]
    turns = ProfiledTurns(program, program.profile())
    for _ in range(2):
        turns.time_turn(2, 1)
    assert all(map(np.array_equal, before, program.fetch(program.run())))
    profile = turns.profiler.read()
    assert (6, len(profile.kernels)) == profile.seconds.shape
    assert np.isfinite(profile.seconds).all()
    return profile


def list_kernels(profile: Profile) -> list[set[str]]:
    return [{profile.nodes[node].name for node in kernel.nodes} for kernel in profile.kernels if kernel.nodes]


def test_every_node_of_a_residual_block_is_in_a_kernel(profile: Profile) -> None:
    """All operators are in a kernel, and no kernel is unmapped."""
    assert {node.name for node in profile.nodes} == set().union(*list_kernels(profile))
    assert {kernel.role for kernel in profile.kernels} <= {"compute", "copy"}
    assert "module" == profile.form
    assert {"stem", "body.0", "body.1", "depth", "head"} <= {node.module for node in profile.nodes}
    assert ["Conv depthwise"] == [node.operator for node in profile.nodes if node.module == "depth"]


def test_eager_torch_names_the_same_nodes(profile: Profile, tmp_path: Path) -> None:
    """Two columns of torch are cut at the same operators."""
    eager = profile_network("identity", tmp_path)

    assert {node.name for node in eager.nodes} == {node.name for node in profile.nodes}


def test_inductor_has_sums_and_activations_in_convolutions(profile: Profile) -> None:
    """A kernel of oneDNN computes the normalisation that was folded into its weights, the sum and the activation."""
    kernels = list_kernels(profile)

    assert {"stem:convolution", "network:relu"} in kernels
    assert {"body.0:convolution", "body.1:batch_norm", "network:add", "network:relu_2"} in kernels


def test_a_kernel_of_unknown_origin_is_unmapped() -> None:
    """A kernel whose nodes Inductor does not list, and that data flow does not place, counts as unmapped."""
    source = torch_graph.build([Operation(key="relu", operator="aten::relu")], {})
    calls = [KernelCall(name="cpp_fused_relu_0", nodes=("relu",)), KernelCall(name="cpp_fused_1", nodes=("gone",))]
    profile = inductor.build_profile(calls, source, [[1.0, 3.0]], [])

    assert ["compute", "unmapped"] == [kernel.role for kernel in profile.kernels]
    assert 0.75 == profile.compute_shares()["unmapped"]


def test_a_library_computes_nothing_that_is_computed_already() -> None:
    """Inductor's origins of a value include those before it, which an earlier kernel has computed."""
    operations = [
        Operation(key="gelu", operator="gelu"),
        Operation(key="linear", operator="linear", module="head", inputs=("gelu",)),
    ]
    calls = [
        KernelCall(name="cpp_fused_gelu_0", nodes=("gelu",)),
        KernelCall(name="extern_kernels.mm", nodes=("gelu", "linear")),
        KernelCall(name="cpp_fused_1", nodes=("gelu", "linear")),
    ]
    executed = inductor.list_executed(calls, torch_graph.build(operations, {"head": torch.nn.Linear(1, 1)}))

    assert [(0,), (1,), (1,)] == [kernel.claims for kernel in executed]
    assert [(), (0,), (1,)] == [kernel.inputs for kernel in executed]


def test_a_merged_convolution_is_beside_its_activation() -> None:
    """The sources of a kernel lack a convolution that was merged with its activation, and have what it reads."""
    operations = [
        Operation(key="mean", operator="mean"),
        Operation(key="conv", operator="conv2d", module="conv", inputs=("mean",)),
        Operation(key="act", operator="silu", module="act", inputs=("conv",)),
    ]
    calls = [
        KernelCall(name="cpp_fused_mean_0", nodes=("mean",)),
        KernelCall(name="torch.ops.mkldnn.b", nodes=("act",), sources=("mean",)),
    ]
    profile = inductor.build_profile(calls, torch_graph.build(operations, {}), [[1.0, 1.0]], [])

    assert [(0,), (1, 2)] == [kernel.nodes for kernel in profile.kernels]


def test_a_folded_normalisation_is_in_its_convolution() -> None:
    """A normalisation that no kernel computes is in the weights of the convolution before it, not in a sum after it."""
    operations = [
        Operation(key="conv", operator="conv2d", module="conv"),
        Operation(key="norm", operator="batch_norm", module="norm", inputs=("conv",)),
        Operation(key="add", operator="add", inputs=("norm",)),
    ]
    calls = [KernelCall(name="torch.ops.mkldnn.a", nodes=("conv",)), KernelCall(name="cpp_fused_add_0", nodes=("add",))]
    executed = inductor.list_executed(calls, torch_graph.build(operations, {}))

    assert [(0, 1), (2,)] == [kernel.claims for kernel in executed]
    assert [(), (0,)] == [kernel.inputs for kernel in executed]


def test_a_value_that_is_written_over_has_its_own_origin() -> None:
    """Inductor lists the last node of a value that a later kernel writes over; without its sources it is unknown."""
    operations = [
        Operation(key="conv", operator="conv2d", module="conv"),
        Operation(key="act", operator="relu", module="act", inputs=("conv",)),
    ]
    calls = [
        KernelCall(name="torch.ops.mkldnn.a", nodes=("act",), sources=("conv",)),
        KernelCall(name="torch.ops.mkldnn.b", nodes=("act",)),
        KernelCall(name="torch.ops.mkldnn.c", nodes=("act",)),
    ]
    executed = inductor.list_executed(calls, torch_graph.build(operations, {}))

    assert [(0,), (), (1,)] == [kernel.claims for kernel in executed]


@pytest.mark.parametrize(
    ("body", "is_copy"),
    [
        ("auto tmp0 = in_ptr0[x0]; out_ptr0[x0] = tmp0;", True),
        ("auto tmp0 = in_ptr0[x0];\nauto tmp1 = tmp0 * tmp0;\nout_ptr0[x0] = tmp1;", False),
        ("auto tmp0 = in_ptr0[x0];\ntmp_acc0 = tmp_acc0 + tmp0;\nout_ptr0[0] = tmp_acc0;", False),
    ],
    ids=["copy", "product", "sum"],
)
def test_kernels_that_load_and_store_are_copies(body: str, is_copy: bool) -> None:
    """A kernel that changes a layout is told by its code."""
    assert is_copy == inductor.is_copy(body)


def test_names_of_operators_are_plain() -> None:
    """Ranks, variants in place and Python's own operators have one name; a second one of a module has a number."""
    names = [torch_graph.simplify(name) for name in ("aten::_convolution", "aten::relu_", "iadd", "conv2d", "__and__")]
    counts: Counter[str] = Counter()

    assert ["convolution", "relu", "add", "convolution", "__and__"] == names
    assert ["a:add", "a:add_2", "network:add"] == [
        torch_graph.name_node(path, "add", counts) for path in ("a", "a", "")
    ]


def test_dynamo_names_modules_as_the_network_does() -> None:
    """Dynamo writes paths as Python's, and a wrapper puts its own name before them."""
    modules: dict[str, Any] = {"": None, "layers.0": None, "layers.0.head": None}
    paths = ["L['self'].layers[0].head", "L['self']._modules['layers'].0.head", "module.layers.0.head", "L['self']"]
    graphs = [torch_graph.build([Operation(key="x", operator="add", module=path)], modules) for path in paths]

    assert ["layers.0.head"] * 3 + [""] == [graph.nodes[0].module for graph in graphs]
