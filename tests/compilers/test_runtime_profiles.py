"""Runtimes report their kernels, the seconds of each, and the modules of the network that these compute."""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from ngbkit import registry
from ngbkit.compilers.base import Compiler, Task, Tuning
from ngbkit.compilers.profiles import onnxruntime as events
from ngbkit.compilers.profiles import openvino, source_graph
from ngbkit.compilers.profiles.profile import PROFILED, Profile
from ngbkit.compilers.profiles.source_graph import SourceGraph
from ngbkit.compilers.quantiser import Quantisation, Quantiser
from ngbkit.device.isolation.profiling import ProfiledTurns
from ngbkit.errors import UnsupportedError
from ngbkit.workloads.base import BATCH, Network, TensorSpec
from ngbkit.workloads.export import export_for

INPUT = TensorSpec(name="input", shape=(BATCH, 3, 16, 16), dtype="float32")


class Block(torch.nn.Module):
    """Two convolutions with a skip connection, a normalisation, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.body = torch.nn.Sequential(torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.BatchNorm2d(16))
        self.norm = torch.nn.LayerNorm(16)
        self.head = torch.nn.Linear(16, 8)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values = torch.relu(self.stem(values))
        values = torch.relu(values + self.body(values)).permute(0, 2, 3, 1)
        head: torch.Tensor = self.head(torch.nn.functional.gelu(self.norm(values)))
        return head


@pytest.fixture(scope="module")
def network_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("block")
    return export_for(Network(module=Block().eval(), inputs=(INPUT,)), folder, [1], seed=0)[1]


@pytest.fixture
def build_task(tmp_path: Path) -> Callable[..., Task]:
    def build(compiler: Compiler, onnx: Path, **options: Any) -> Task:
        return Task(
            form="onnx",
            module=None,
            onnx=onnx,
            inputs=(INPUT,),
            arrays=[np.random.default_rng(0).standard_normal((1, 3, 16, 16), np.float32)],
            batch_size=1,
            options=compiler.settle(options),
            threads=1,
            cache=tmp_path,
            tuning=Tuning(folder=tmp_path / "tuning"),
        )

    return build


def run_profiler(task: Task, compiler: Compiler, calls: int = 3) -> Profile:
    open_profiler = compiler.compile(task).profile
    assert open_profiler is not None
    profiler = open_profiler()
    for _ in range(calls):
        profiler.prepare()
        profiler.run()
        profiler.finish()
    return profiler.read()


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_every_node_has_a_kernel_and_every_kernel_a_node(
    name: str, network_file: Path, build_task: Callable[..., Task]
) -> None:
    """All nodes are in a kernel that has seconds in each call, and no kernel is unmapped."""
    compiler: Compiler = registry.load(registry.COMPILERS, name)
    profile = run_profiler(build_task(compiler, network_file), compiler)
    mapped = {node for kernel in profile.kernels for node in kernel.nodes}

    assert mapped == {*range(len(profile.nodes))}
    assert {kernel.role for kernel in profile.kernels} <= {"compute", "copy"}
    assert (3, len(profile.kernels)) == profile.seconds.shape
    assert 1.0 == pytest.approx(sum(profile.compute_shares().values()))


def test_a_convolution_has_its_sum_and_its_activation(network_file: Path, build_task: Callable[..., Task]) -> None:
    """The kernel of the second convolution computes the sum and the activation after it."""
    compiler: Compiler = registry.load(registry.COMPILERS, "onnxruntime")
    profile = run_profiler(build_task(compiler, network_file), compiler)
    operators = [{profile.nodes[node].operator for node in kernel.nodes} for kernel in profile.kernels]

    assert [{"Conv", "Relu"}, {"Add", "Conv", "Relu"}] == [each for each in operators if "Conv" in each]


def test_modules_are_those_of_the_weights(network_file: Path) -> None:
    """A convolution that has a normalisation folded in is of the module of its own weights."""
    nodes = source_graph.read(network_file).nodes

    assert ["stem", "body.0"] == [node.module for node in nodes if node.operator == "Conv"]
    assert ["norm"] == [node.module for node in nodes if node.operator == "LayerNormalization"]


@pytest.mark.parametrize(
    ("groups", "operator"), [(1, "Conv"), (2, "Conv grouped"), (4, "Conv depthwise")], ids=["plain", "grouped", "depth"]
)
def test_groups_of_a_convolution_are_said(groups: int, operator: str, tmp_path: Path) -> None:
    """A convolution with a group for each of its channels is depthwise, and one with fewer groups is grouped."""
    weights = helper.make_tensor("w", TensorProto.FLOAT, [4, 4 // groups, 1, 1], [1.0] * (16 // groups))
    node = helper.make_node("Conv", ["input", "w"], ["y"], "conv", group=groups)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 8, 8]) for name in ("input", "y")]
    graph = helper.make_graph([node], "grouped", values[:1], values[1:], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), tmp_path / "g.onnx")

    assert [operator] == [node.operator for node in source_graph.read(tmp_path / "g.onnx").nodes]


def test_the_older_exporter_names_modules_in_its_nodes() -> None:
    """The path of a module is in the name of a node, where those in containers repeat it."""
    node = helper.make_node("Relu", ["x"], ["y"], "/layer1/layer1.0/act/Relu")

    assert "layer1.0.act" == source_graph.find_module(node, set())
    assert "" == source_graph.find_module(helper.make_node("Relu", ["x"], ["y"], "Relu_3"), set())


def test_nodes_without_names_have_those_of_their_values(tmp_path: Path) -> None:
    """Names that are missing or repeated are those of values; a runtime reports them from a copy of the file."""
    nodes = [
        helper.make_node("Relu", ["x"], ["y"], name="same"),
        helper.make_node("Abs", ["y"], ["z"], name="same"),
        helper.make_node("Neg", ["z"], ["w"], name="z"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xw"]
    onnx.save(helper.make_model(helper.make_graph(nodes, "graph", values[:1], values[1:])), tmp_path / "model.onnx")
    names = ["y", "node_1", "z"]

    copy = source_graph.write_named(tmp_path / "model.onnx", tmp_path)
    read = [[node.name for node in source_graph.read(path).nodes] for path in (tmp_path / "model.onnx", copy)]

    assert [names, names] == read


@pytest.mark.parametrize(
    ("name", "suffix", "read"),
    [("onnxruntime-static", ".onnx", source_graph.read), ("nncf", ".xml", openvino.read_source)],
)
def test_a_quantised_file_shares_the_names_of_its_network(
    name: str, suffix: str, read: Callable[[Path], SourceGraph | None], network_file: Path, tmp_path: Path
) -> None:
    """Its profile is laid beside that of the network in f32, operator by operator."""
    quantiser: Quantiser = registry.load(registry.QUANTISERS, name)
    target = tmp_path / f"int8{suffix}"
    batch = {INPUT.name: np.random.default_rng(0).standard_normal((1, 3, 16, 16), np.float32)}
    quantiser.quantise(Quantisation(source=network_file, module=None, target=target, batches=[batch], threads=1))

    graphs = source_graph.read(network_file), read(target)
    heavy = {"Conv", "MatMul", "Gemm"}
    plain, quantised = ({node.name for node in graph.nodes if node.operator in heavy} for graph in graphs if graph)
    assert plain == quantised != set()


def test_events_belong_to_the_call_that_they_are_in() -> None:
    """A kernel without an event in a call has no seconds in it; several events of one add up."""
    call = {"cat": "Session", "name": "model_run"}
    kernel = {"cat": "Node", "name": "conv_kernel_time"}
    listed = [
        {**call, "ts": 0, "dur": 9},
        {**kernel, "ts": 1, "dur": 2},
        {**kernel, "ts": 4, "dur": 3},
        {**call, "ts": 10, "dur": 9},
    ]
    table = events.build_table(["conv"], listed)

    assert 5e-6 == pytest.approx(table[0, 0])
    assert math.isnan(table[1, 0])


def test_eager_torch_reports_operators_by_module(tmp_path: Path) -> None:
    """Each operator that a module calls is a kernel and a node of that module; plain calls have no hooks."""
    compiler: Compiler = registry.load(registry.COMPILERS, "identity")
    module = Block().eval()
    task = Task(
        form="module",
        module=module,
        onnx=None,
        inputs=(INPUT,),
        arrays=[np.zeros((1, 3, 16, 16), np.float32)],
        batch_size=1,
        options=compiler.settle({}),
        threads=1,
        cache=tmp_path,
        tuning=Tuning(folder=tmp_path / "tuning"),
    )
    profile = run_profiler(task, compiler)
    operators = {(node.module, node.operator) for node in profile.nodes}

    assert {("stem", "aten::conv2d"), ("body.1", "aten::batch_norm"), ("", "aten::relu")} <= operators
    assert [(index,) for index in range(len(profile.nodes))] == [kernel.nodes for kernel in profile.kernels]
    assert np.isfinite(profile.seconds).all()
    assert "module" == profile.form
    assert not module.stem._forward_hooks


def test_overlapped_requests_have_no_profile(network_file: Path, build_task: Callable[..., Task]) -> None:
    """The counters of requests that share threads are no seconds of one call."""
    compiler: Compiler = registry.load(registry.COMPILERS, "openvino")
    program = compiler.compile(build_task(compiler, network_file, hint="throughput"))
    assert program.profile is not None

    with pytest.raises(UnsupportedError, match="hint=latency"):
        program.profile()


def test_the_sentence_on_profiles_names_every_compiler_with_one() -> None:
    """A column without a profile says which compilers have one."""
    compilers: dict[str, Compiler] = registry.load_all(registry.COMPILERS)
    expected = {name: inspect.getsource(sys.modules[each.compile.__module__]) for name, each in compilers.items()}

    words = re.findall(r"[\w-]+", PROFILED)
    assert [] == [name for name, source in expected.items() if (" profile=" in source) is not (name in words)]


def test_turns_are_recorded_as_plain_json(network_file: Path, build_task: Callable[..., Task]) -> None:
    """A record has the seconds of each kernel by round and call, and those of whole calls beside them."""
    compiler: Compiler = registry.load(registry.COMPILERS, "onnxruntime")
    program = compiler.compile(build_task(compiler, network_file))
    assert program.profile is not None
    turns = ProfiledTurns(program, program.profile())
    for _ in range(3):
        turns.time_turn(2, 1)
    record = json.loads(json.dumps(turns.to_json(), allow_nan=False))

    assert {"calls", "kernels", "nodes", "notes", "source"} == {*record}
    assert [2, 2, 2] == [*map(len, record["calls"]["plain"])] == [*map(len, record["calls"]["profiled"])]
    assert all([2, 2, 2] == [*map(len, kernel["seconds"])] for kernel in record["kernels"])
    assert "onnx" == record["source"]["form"]
