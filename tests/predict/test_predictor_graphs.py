"""A graph has the operators, edges and digest of its network, also of one whose values are no usual tensors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import odd_networks
import pytest
from learned import graph
from onnx import helper, numpy_helper
from onnxgraphs import Builder, residual, write

from ngbkit import predict, set_options
from ngbkit.errors import MissingDependencyError, UnsupportedError, WorkloadError
from ngbkit.predict import Graph, read
from ngbkit.predict.features import encode_graph
from ngbkit.predict.graphs import Tensor
from ngbkit.workloads import cell, timm


def test_every_operator_has_its_shapes_and_its_work(tmp_path: Path) -> None:
    """A convolution of 8 to 16 channels at stride 2 has its shapes and its MACs at this batch size."""
    build = Builder(channels=8, size=16)
    result = graph(build.model(build.add("Relu", build.conv("x", 16, stride=2))), tmp_path, batch_size=4)

    conv, relu = result.operators
    assert ("Conv", (4, 8, 16, 16), (4, 16, 8, 8)) == (conv.kind, conv.inputs[0].shape, conv.outputs[0].shape)
    assert [(16, 8, 3, 3)] == [tensor.shape for tensor in conv.weights]
    assert 4 * 16 * 8 * 8 * 8 * 9 == conv.macs
    assert 4 * (4 * 8 * 16 * 16 + 16 * 8 * 9 + 4 * 16 * 8 * 8) == conv.bytes
    assert ((3, 3), (2, 2), 1) == tuple(conv.attributes[name] for name in ("kernel_shape", "strides", "group"))
    assert ("Relu", 0) == (relu.kind, relu.macs)
    assert conv.macs == result.macs
    assert 4 * 16 * 8 * 9 == result.weight_bytes


def test_edges_follow_values_and_siblings_share_one(tmp_path: Path) -> None:
    """Two convolutions of one value are siblings; a sum consumes both."""
    build = Builder()
    first = build.add("Relu", "x")
    left, right = build.conv(first, 8), build.conv(first, 8, kernel=1)
    result = graph(build.model(build.add("Add", left, right)), tmp_path)

    names = [operator.name for operator in result.operators]
    edges = {(names[start], names[end]) for start, end in result.edges}
    assert {("Relu0", "Conv1"), ("Relu0", "Conv2"), ("Conv1", "Add3"), ("Conv2", "Add3")} == edges
    assert {("Conv1", "Conv2")} == {(names[first], names[second]) for first, second in result.siblings}
    assert (1, 2, 2, 3) == result.depths


def test_what_follows_from_constants_is_a_constant(tmp_path: Path) -> None:
    """A value computed from constants is a constant, and an unused operator is dropped."""
    build = Builder()
    build.weights.append(numpy_helper.from_array(np.array([2.0], np.float32), "two"))
    build.channels["two"] = 1
    four = build.add("Mul", "two", "two")
    product = build.add("Mul", "x", four)
    build.add("Relu", product)

    result = graph(build.model(product), tmp_path)

    assert ["Mul"] == [operator.kind for operator in result.operators]
    assert [(1,)] == [tensor.shape for tensor in result.operators[0].weights]


def test_a_branch_takes_values_from_outside(tmp_path: Path) -> None:
    """A value that an inner graph consumes from the outer one is an input of its operator."""
    build = Builder()
    relu = build.add("Relu", "x")
    build.weights.append(numpy_helper.from_array(np.array(True), "yes"))
    build.channels["yes"] = 1
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(kind, [relu], [name])], name, [], [helper.make_tensor_value_info(name, 1, None)]
        )
        for name, kind in (("then", "Neg"), ("else", "Abs"))
    }
    result = graph(build.model(build.add("If", "yes", **branches)), tmp_path)

    assert ["Relu", "If"] == [operator.kind for operator in result.operators]
    assert ((0, 1),) == result.edges


def test_an_operator_of_unknown_work_has_no_macs(tmp_path: Path) -> None:
    """The MACs of an unknown operator, and of its graph, are None."""
    build = Builder()
    build.nodes.append(helper.make_node("Mystery", ["x"], ["y"], domain="com.example"))
    model = build.model("y")
    model.opset_import.append(helper.make_opsetid("com.example", 1))

    result = graph(model, tmp_path)

    assert [("com.example.Mystery", None, None)] == [
        (operator.kind, operator.macs, operator.outputs[0].shape) for operator in result.operators
    ]
    assert result.macs is None


def build_branches(order: str = "ab", *, kernel: int = 3, draw: int = 0) -> Builder:
    """Build two branches in any order, with other names and weights."""
    build = Builder()
    build.generator = np.random.default_rng(draw)
    branches = {}
    for branch in order:
        branches[branch] = build.conv("x", 8, 3 if branch == "a" else kernel)
    build.add("Add", branches["a"], branches["b"])
    return build


def test_names_order_and_weights_do_not_change_the_digest(tmp_path: Path) -> None:
    """The same computation has the same digest."""
    first, second = build_branches("ab", kernel=1), build_branches("ba", kernel=1, draw=1)
    digests = [graph(build.model(f"v{len(build.nodes) - 1}"), tmp_path).digest for build in (first, second)]

    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    "other",
    [
        lambda folder: graph(build_branches("ab", kernel=5).model("v2"), folder),
        lambda folder: graph(build_branches("ab").model("v2"), folder, batch_size=2),
        lambda folder: graph(build_branches("ab").model("v1"), folder),
    ],
    ids=["kernel", "batch", "output"],
)
def test_what_is_computed_changes_the_digest(other, tmp_path: Path) -> None:
    """The digest changes with a kernel, a batch or an output."""
    assert graph(build_branches("ab").model("v2"), tmp_path).digest != other(tmp_path).digest


def test_one_value_twice_is_not_two_values(tmp_path: Path) -> None:
    """x + x of one convolution is less work than a sum of two."""
    once, twice = Builder(), Builder()
    value = once.conv("x", 8)
    single = graph(once.model(once.add("Add", value, value)), tmp_path)
    double = graph(twice.model(twice.add("Add", twice.conv("x", 8), twice.conv("x", 8))), tmp_path)

    assert single.digest != double.digest


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


def test_a_workload_is_exported_once(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of timm has the MACs of its module, and its graph is cached."""
    network = timm.model("mobilenetv3_small_050")
    with set_options(state_dir=state):
        result = predict.graph(network, 2)
        monkeypatch.setattr("ngbkit.predict.network_graphs.export_for", lambda *_: pytest.fail("exported again"))
        again = predict.graph(network, 2)

    assert result == again
    assert 2 == result.inputs[0].shape[0]
    assert 20e6 < result.macs / 2 < 30e6  # timm's page says 23.6 M of it


def test_a_network_without_onnx_form_is_an_error(state: Path) -> None:
    """The error of the export is raised."""
    lines = ["import torch", "class Model(torch.nn.Module):", "    def forward(self, x):"]
    lines += ["        return torch.linalg.eig(x)[0].real", "model = Model()", "input_shape = (3, 3)"]
    (workload,) = cell.from_source("\n".join(lines), name="eigen")
    with set_options(state_dir=state), pytest.raises(UnsupportedError, match="cannot export"):
        predict.graph(workload)


def test_a_library_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the command that installs it."""
    path = residual(tmp_path)
    monkeypatch.setitem(sys.modules, "onnx_ir", None)

    with pytest.raises(MissingDependencyError, match=r"pip install 'ngbkit\[predict\]'"):
        predict.read(path)


def test_operators_without_effect_are_kept_on_demand(tmp_path: Path) -> None:
    """Operators without effect are counted, and kept on request."""
    alive, dead = Builder(8), Builder(8)
    for build in (alive, dead):
        build.add("Relu", build.conv("x", 8))
    dead.channels["w0"] = 8
    dead.conv("x", 8)
    dead.add("Relu", "w0")
    paths = [write(build.model("v1"), tmp_path / name) for build, name in ((alive, "a.onnx"), (dead, "d.onnx"))]
    first, second = map(read, paths)
    complete = read(str(paths[1]), keep_dead=True)

    assert (0, 2, 0) == (first.dropped, second.dropped, complete.dropped)
    assert first.digest == second.digest
    assert ["Conv", "Conv", "Relu", "Relu"] == sorted(node.kind for node in complete.operators)
    assert complete.digest != second.digest
    assert complete == Graph.from_json(json.loads(json.dumps(complete.to_json())))


@pytest.mark.parametrize("name", odd_networks.NETWORKS)
def test_every_network_has_a_graph(name: str, tmp_path: Path) -> None:
    """The graph of every odd network has finite features and survives JSON."""
    network = read(odd_networks.write(name, tmp_path), 2)
    features = encode_graph(network)

    assert network == Graph.from_json(json.loads(json.dumps(network.to_json())))
    assert len(network.operators) > 0
    assert np.isfinite(features).all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("text-labels", Tensor(shape=(2,), dtype="string", bytes=0)),
        ("map-output", Tensor(shape=None, dtype="", bytes=0)),
        ("sequence-output", Tensor(shape=None, dtype="float", bytes=0)),
        ("optional-output", Tensor(shape=(2, 4), dtype="float", bytes=32)),
        ("bfloat16", Tensor(shape=(2, 4), dtype="bfloat16", bytes=16)),
    ],
)
def test_what_has_no_size_has_no_bytes(name: str, expected: Tensor, tmp_path: Path) -> None:
    """Texts, maps and sequences have a kind where ONNX tells it, and count as nothing."""
    (output,) = read(odd_networks.write(name, tmp_path), 2).outputs

    assert expected == output


def test_the_first_cause_is_told(tmp_path: Path) -> None:
    """A library that reads graphs wraps it in errors that name only its own functions."""
    values = numpy_helper.from_array(np.ones(2, np.float32), "values")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([0, 5]), "places"), [4, 4])
    builder = Builder(4, 4)
    builder.nodes.append(helper.make_node("Constant", [], ["w"], sparse_value=sparse))
    model = builder.model(builder.add("MatMul", "x", "w"))

    with pytest.raises(WorkloadError, match=r"no readable graph: NotImplementedError: Sparse tensors"):
        graph(model, tmp_path)
