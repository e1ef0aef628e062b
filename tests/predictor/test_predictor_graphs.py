"""A network as a graph: what each operator is, how values flow, and when two graphs are the same."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnxgraphs import Builder, graph, residual

from ngbkit import predictor, set_options
from ngbkit.errors import MissingDependencyError, UnsupportedError
from ngbkit.predictor.graphs import Graph
from ngbkit.workloads import cell, timm


def test_every_operator_has_its_shapes_and_its_work(tmp_path: Path) -> None:
    """A convolution of 8 to 16 channels at stride 2: what goes in, what comes out, and its MACs at this batch."""
    build = Builder(channels=8, size=16)
    found = graph(build.model(build.add("Relu", build.conv("x", 16, stride=2))), tmp_path, batch_size=4)

    conv, relu = found.operators
    assert ("Conv", (4, 8, 16, 16), (4, 16, 8, 8)) == (conv.kind, conv.inputs[0].shape, conv.outputs[0].shape)
    assert [(16, 8, 3, 3)] == [one.shape for one in conv.weights]
    assert 4 * 16 * 8 * 8 * 8 * 9 == conv.macs
    assert 4 * (4 * 8 * 16 * 16 + 16 * 8 * 9 + 4 * 16 * 8 * 8) == conv.bytes
    assert ((3, 3), (2, 2), 1) == tuple(conv.attributes[name] for name in ("kernel_shape", "strides", "group"))
    assert ("Relu", 0) == (relu.kind, relu.macs)
    assert conv.macs == found.macs
    assert 4 * 16 * 8 * 9 == found.weight_bytes


def test_edges_follow_values_and_siblings_share_one(tmp_path: Path) -> None:
    """Two convolutions of one value are siblings; a sum takes both."""
    build = Builder()
    first = build.add("Relu", "x")
    left, right = build.conv(first, 8), build.conv(first, 8, kernel=1)
    found = graph(build.model(build.add("Add", left, right)), tmp_path)

    names = [one.name for one in found.operators]
    edges = {(names[start], names[end]) for start, end in found.edges}
    assert {("Relu0", "Conv1"), ("Relu0", "Conv2"), ("Conv1", "Add3"), ("Conv2", "Add3")} == edges
    assert {("Conv1", "Conv2")} == {(names[one], names[other]) for one, other in found.siblings}
    assert (1, 2, 2, 3) == found.depths


def test_what_follows_from_constants_is_a_constant(tmp_path: Path) -> None:
    """A shape that is computed from constants alone is no operator, nor is what leads nowhere."""
    build = Builder()
    build.weights.append(numpy_helper.from_array(np.array([2.0], np.float32), "two"))
    build.channels["two"] = 1
    four = build.add("Mul", "two", "two")
    kept = build.add("Mul", "x", four)
    build.add("Relu", kept)

    found = graph(build.model(kept), tmp_path)

    assert ["Mul"] == [one.kind for one in found.operators]
    assert [(1,)] == [one.shape for one in found.operators[0].weights]


def test_a_branch_takes_values_from_outside(tmp_path: Path) -> None:
    """What an inner graph takes from the outer one is an input of its operator."""
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
    found = graph(build.model(build.add("If", "yes", **branches)), tmp_path)

    assert ["Relu", "If"] == [one.kind for one in found.operators]
    assert ((0, 1),) == found.edges


def test_an_operator_of_unknown_work_says_so(tmp_path: Path) -> None:
    """Its MACs are None, and so are those of the whole."""
    build = Builder()
    build.nodes.append(helper.make_node("Mystery", ["x"], ["y"], domain="com.example"))
    model = build.model("y")
    model.opset_import.append(helper.make_opsetid("com.example", 1))

    found = graph(model, tmp_path)

    assert [("com.example.Mystery", None, None)] == [
        (one.kind, one.macs, one.outputs[0].shape) for one in found.operators
    ]
    assert found.macs is None


def branched(order: str = "ab", *, kernel: int = 3, draw: int = 0) -> Builder:
    """Two branches, written in any order, with other names and weights."""
    build = Builder()
    build.drawn = np.random.default_rng(draw)
    made = {}
    for one in order:
        made[one] = build.conv("x", 8, 3 if one == "a" else kernel)
    build.add("Add", made["a"], made["b"])
    return build


def test_names_order_and_weights_do_not_change_the_digest(tmp_path: Path) -> None:
    """The same computation is the same graph."""
    one, other = branched("ab", kernel=1), branched("ba", kernel=1, draw=1)
    found = [graph(build.model(f"v{len(build.nodes) - 1}"), tmp_path).digest for build in (one, other)]

    assert found[0] == found[1]


@pytest.mark.parametrize(
    "other",
    [
        lambda folder: graph(branched("ab", kernel=5).model("v2"), folder),
        lambda folder: graph(branched("ab").model("v2"), folder, batch_size=2),
        lambda folder: graph(branched("ab").model("v1"), folder),
    ],
    ids=["kernel", "batch", "output"],
)
def test_what_is_computed_changes_the_digest(other, tmp_path: Path) -> None:
    """Another kernel, another batch, another output."""
    assert graph(branched("ab").model("v2"), tmp_path).digest != other(tmp_path).digest


def test_one_value_twice_is_not_two_values(tmp_path: Path) -> None:
    """x + x of one convolution is less work than that of two."""
    once, twice = Builder(), Builder()
    own = once.conv("x", 8)
    one = graph(once.model(once.add("Add", own, own)), tmp_path)
    other = graph(twice.model(twice.add("Add", twice.conv("x", 8), twice.conv("x", 8))), tmp_path)

    assert one.digest != other.digest


def test_a_graph_is_plain_json(tmp_path: Path) -> None:
    """It comes back as it was."""
    found = predictor.read(residual(tmp_path))

    assert found == Graph.from_json(found.to_json())
    assert found.digest == Graph.from_json(found.to_json()).digest


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


def test_a_workload_is_exported_once(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of timm has the MACs that counting its module gives, and its graph is kept."""
    network = timm.model("mobilenetv3_small_050")
    with set_options(state_dir=state):
        found = predictor.graph(network, 2)
        monkeypatch.setattr("ngbkit.predictor.examples.export_for", lambda *_: pytest.fail("exported again"))
        again = predictor.graph(network, 2)

    assert found == again
    assert 2 == found.inputs[0].shape[0]
    assert 20e6 < found.macs / 2 < 30e6  # timm's page says 23.6 M of it


def test_what_has_no_onnx_form_says_so(state: Path) -> None:
    """The error of the export comes through."""
    lines = ["import torch", "class Model(torch.nn.Module):", "    def forward(self, x):"]
    lines += ["        return torch.linalg.eig(x)[0].real", "model = Model()", "input_shape = (3, 3)"]
    (workload,) = cell.from_source("\n".join(lines), name="eigen")
    with set_options(state_dir=state), pytest.raises(UnsupportedError, match="cannot export"):
        predictor.graph(workload)


def test_a_library_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that brings it."""
    path = residual(tmp_path)
    monkeypatch.setitem(sys.modules, "onnx_ir", None)

    with pytest.raises(MissingDependencyError, match=r"pip install 'ngbkit\[predict\]'"):
        predictor.read(path)
