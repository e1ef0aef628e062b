"""Every rule leaves what is computed as it is, wherever it fits, and its inverse undoes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper
from onnxgraphs import Builder

from ngbkit.errors import UnknownNameError
from ngbkit.optimizer.editing import infer, open_model
from ngbkit.optimizer.rules import RULES, rule
from ngbkit.predictor import graphs
from ngbkit.workloads import exact


def constant(build: Builder, values: np.ndarray, name: str) -> str:
    build.weights.append(numpy_helper.from_array(values, name))
    build.channels[name] = 0
    return name


def drawn(build: Builder, *shape: int) -> np.ndarray:
    return build.drawn.standard_normal(shape).astype(np.float32)


def normalised(build: Builder, value: str) -> str:
    channels = build.channels[value]
    values = [drawn(build, channels), drawn(build, channels), drawn(build, channels), drawn(build, channels) ** 2 + 0.1]
    names = [constant(build, values[at], f"{value}_norm{at}") for at in range(4)]
    return build.add("BatchNormalization", value, *names)


def batchnorm() -> Builder:
    build = Builder()
    build.add("Relu", normalised(build, build.conv("x", 16)))
    return build


def biased() -> Builder:
    build = Builder()
    made = build.conv("x", 16)
    build.nodes[-1].input.append(constant(build, drawn(build, 16), "bias"))
    build.add("Relu", made)
    return build


def parallel() -> Builder:
    build = Builder()
    parts = [build.conv("x", width) for width in (8, 16, 24)]
    build.add("Concat", *[build.add("Relu", part) for part in parts], axis=1)
    return build


def branches() -> Builder:
    build = Builder()
    build.add("Relu", build.add("Add", build.conv("x", 16, 3), build.conv("x", 16, 1)))
    return build


def hollow() -> Builder:
    build = Builder()
    build.conv("x", 16, 3)
    weight = numpy_helper.to_array(build.weights[0]).copy()
    weight[:, :, [0, 0, 0, 1, 1, 2, 2, 2], [0, 1, 2, 0, 2, 0, 1, 2]] = 0
    build.weights[0].CopyFrom(numpy_helper.from_array(weight, "w0"))
    build.add("Concat", "v0", build.conv("x", 8, 3), axis=1)
    return build


def grouped() -> Builder:
    build = Builder()
    build.conv("x", 16, 3, group=4)
    return build


def blocks() -> Builder:
    build = Builder()
    build.conv("x", 16, 3, group=2)
    weight = numpy_helper.to_array(build.weights[0]).copy()
    weight[:4, 2:] = 0
    weight[4:8, :2] = 0
    weight[8:12, 2:] = 0
    weight[12:, :2] = 0
    build.weights[0].CopyFrom(numpy_helper.from_array(weight, "w0"))
    return build


def pooled() -> Builder:
    build = Builder()
    build.add(
        "AveragePool", build.add("Relu", "x"), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, count_include_pad=1
    )
    return build


def means() -> Builder:
    build = Builder()
    build.conv("x", 8, 3, group=8)
    build.weights[0].CopyFrom(numpy_helper.from_array(np.full((8, 1, 3, 3), 1 / 9, np.float32), "w0"))
    return build


def pointwise() -> Builder:
    build = Builder()
    build.add("Relu", build.conv("x", 16, 1))
    build.nodes[0].input.append(constant(build, drawn(build, 16), "bias"))
    return build


def disguised() -> Builder:
    build = Builder()
    turned = build.add("Transpose", "x", perm=[0, 2, 3, 1])
    made = build.add("MatMul", turned, constant(build, drawn(build, 8, 12), "matrix"))
    made = build.add("Add", made, constant(build, drawn(build, 12), "shift"))
    build.add("Transpose", made, perm=[0, 3, 1, 2])
    return build


def projections() -> Builder:
    build = Builder()
    parts = [build.add("MatMul", "x", constant(build, drawn(build, 16, 16), f"m{at}")) for at in range(3)]
    build.add("Add", build.add("MatMul", parts[0], parts[1]), parts[2])
    return build


def product() -> Builder:
    build = Builder()
    build.add("MatMul", "x", constant(build, drawn(build, 16, 40), "matrix"))
    return build


def single(kind: str, *constants: np.ndarray) -> Callable[[], Builder]:
    def make() -> Builder:
        build = Builder()
        build.add(kind, "x", *[constant(build, values, f"c{at}") for at, values in enumerate(constants)])
        return build

    return make


def gated() -> Builder:
    build = Builder()
    build.add("Mul", build.add("HardSigmoid", "x", alpha=1 / 6, beta=0.5), "x")
    return build


def erf() -> Builder:
    build = Builder()
    root, one, half = (constant(build, np.array(number, np.float32), f"n{number}") for number in (2**0.5, 1.0, 0.5))
    value = build.add("Relu", "x")
    part = build.add("Add", build.add("Erf", build.add("Div", value, root)), one)
    build.add("Mul", build.add("Mul", value, half), part)
    return build


def layernorm() -> Builder:
    build = Builder()
    axes, epsilon = constant(build, np.array([-1]), "axes"), constant(build, np.array(1e-5, np.float32), "epsilon")
    apart = build.add("Sub", "x", build.add("ReduceMean", "x", axes, keepdims=1))
    variance = build.add("ReduceMean", build.add("Mul", apart, apart), axes, keepdims=1)
    made = build.add("Div", apart, build.add("Sqrt", build.add("Add", variance, epsilon)))
    made = build.add("Mul", made, constant(build, drawn(build, 16), "scale"))
    build.add("Add", made, constant(build, drawn(build, 16), "shift"))
    return build


def turned_before() -> Builder:
    build = Builder()
    build.add("HardSigmoid", build.add("Transpose", "x", perm=[0, 2, 3, 1]), alpha=0.3, beta=0.4)
    return build


def turned_behind() -> Builder:
    build = Builder()
    build.add("Transpose", build.add("LeakyRelu", "x", alpha=0.3), perm=[0, 2, 3, 1])
    return build


def turned_twice() -> Builder:
    build = Builder()
    twice = build.add("Transpose", build.add("Transpose", "x", perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2])
    build.add("Relu", build.add("Transpose", build.add("Transpose", twice, perm=[0, 2, 1, 3]), perm=[1, 0, 2, 3]))
    return build


# By the name of the rule, a graph that it fits.
FITTING: dict[str, Callable[[], Builder]] = {
    "fold-batchnorm": batchnorm,
    "unfold-batchnorm": biased,
    "merge-convs": parallel,
    "split-conv": biased,
    "sum-branches": branches,
    "split-branch": biased,
    "enlarge-conv": branches,
    "shrink-conv": hollow,
    "merge-groups": grouped,
    "split-groups": blocks,
    "average-to-depthwise": pooled,
    "depthwise-to-average": means,
    "conv-to-matmul": pointwise,
    "matmul-to-conv": disguised,
    "merge-matmuls": projections,
    "split-matmul": product,
    "unfuse-hardswish": single("HardSwish"),
    "fuse-hardswish": gated,
    "unfuse-gelu": single("Gelu"),
    "fuse-gelu": erf,
    "unfuse-layernorm": single("LayerNormalization", np.linspace(-1, 2, 16, dtype=np.float32)),
    "fuse-layernorm": layernorm,
    "push-transpose": turned_before,
    "pull-transpose": turned_behind,
    "merge-transposes": turned_twice,
}


def model(build: Builder) -> ir.Model:
    found = build.model(build.nodes[-1].output[0])
    found.opset_import[0].version = 20
    found.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    return open_model(ir.from_proto(onnx.shape_inference.infer_shapes(found)))


def outputs(one: ir.Model, folder: Path) -> list[np.ndarray]:
    """What a model computes in float64, of seeded inputs."""
    path = folder / "one.onnx"
    ir.save(one, path)
    onnx.checker.check_model(path, full_check=True)
    value = np.random.default_rng(1).standard_normal([int(side) for side in one.graph.inputs[0].shape])
    return exact.run(path, {"x": value.astype(np.float32)}, budget_s=60)


def test_every_rule_has_a_graph_that_it_fits() -> None:
    """Or the next tests would say nothing of it."""
    assert set(FITTING) == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_leaves_what_is_computed(name: str, tmp_path: Path) -> None:
    """At each of its places, in float64; the model that came is as it was, and the graph is another."""
    came = model(FITTING[name]())
    expected, before = outputs(came, tmp_path), graphs.of(came.clone().graph).digest
    sites = rule(name).sites(came)

    assert sites
    for site in sites:
        found = rule(name).apply(came, site)
        for one, other in zip(expected, outputs(found, tmp_path), strict=True):
            # Weights are rounded to float32 when they are changed.
            np.testing.assert_allclose(other, one, rtol=2e-5, atol=2e-5 * np.abs(one).max())
        assert before != graphs.of(found.graph).digest
        assert all(value.shape is not None for node in found.graph for value in node.outputs)
    assert before == graphs.of(came.graph).digest


@pytest.mark.parametrize("name", [name for name, one in RULES.items() if one.inverse])
def test_an_inverse_fits_what_a_rule_made(name: str, tmp_path: Path) -> None:
    """And what comes out of both computes the same."""
    came = model(FITTING[name]())
    made = rule(name).apply(came, rule(name).sites(came)[0])
    back = rule(RULES[name].inverse)
    sites = back.sites(made)

    assert name == back.inverse
    assert sites
    for one, other in zip(outputs(came, tmp_path), outputs(back.apply(made, sites[0]), tmp_path), strict=True):
        np.testing.assert_allclose(other, one, rtol=2e-5, atol=2e-5 * np.abs(one).max())


@pytest.mark.parametrize("name", RULES)
def test_a_rule_fits_no_more_than_it_says(name: str) -> None:
    """A graph of a softmax and a maximum is none of theirs."""
    build = Builder()
    build.add("MaxPool", build.add("Softmax", "x"), kernel_shape=[2, 2])

    assert [] == rule(name).sites(model(build))


def test_an_output_keeps_its_name(tmp_path: Path) -> None:
    """What a rule puts in its place is what the network gives."""
    came = model(means())
    found = rule("depthwise-to-average").apply(came, rule("depthwise-to-average").sites(came)[0])

    assert [value.name for value in came.graph.outputs] == [value.name for value in found.graph.outputs]
    assert ["AveragePool"] == [node.op_type for node in found.graph]
    assert not found.graph.initializers


def test_a_value_that_is_taken_twice_is_not_folded_away() -> None:
    """A BatchNorm cannot go into a convolution whose own output somebody takes."""
    build = Builder()
    made = build.conv("x", 8)
    build.add("Add", normalised(build, made), made)

    assert [] == rule("fold-batchnorm").sites(model(build))


def test_unlike_windows_are_not_merged() -> None:
    """Another stride, another padding, another value."""
    build = Builder()
    parts = [build.conv("x", 8), build.conv("x", 8, stride=2), build.conv("x", 8, kernel=5)]
    parts.append(build.conv(build.add("Relu", "x"), 8))
    came = build.model(*parts)
    came.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1

    assert [] == rule("merge-convs").sites(open_model(ir.from_proto(came)))


def test_nodes_without_names_get_them() -> None:
    """Sites are names of nodes, so that each must have one of its own."""
    build = Builder()
    build.add("Relu", build.add("Relu", "x"))
    for node in build.nodes:
        node.name = ""
    found = model(build)

    assert 2 == len({node.name for node in found.graph if node.name})
    assert infer(found) is found


def test_an_unknown_rule_is_an_error() -> None:
    """It names those that there are."""
    with pytest.raises(UnknownNameError, match="merge-convs"):
        rule("merge-conv")


def test_functions_are_inlined() -> None:
    """Rules see operators, and no names for several of them."""
    function = helper.make_function(
        "local", "twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 20)]
    )
    graph = helper.make_graph(
        [helper.make_node("twice", ["x"], ["y"], domain="local")],
        "graph",
        [helper.make_tensor_value_info("x", 1, [1, 2])],
        [helper.make_tensor_value_info("y", 1, [1, 2])],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    found = open_model(
        ir.from_proto(helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10))
    )

    assert ["Add"] == [node.op_type for node in found.graph]
