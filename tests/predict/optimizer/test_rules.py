"""Every rule preserves the results of a graph at each of its sites."""

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
from ngbkit.predict import onnx_graphs
from ngbkit.predict.optimizer.editing import infer_shapes, open_model
from ngbkit.predict.optimizer.rules import RULES, rule
from ngbkit.workloads import exact


def add_constant(build: Builder, values: np.ndarray, name: str) -> str:
    build.weights.append(numpy_helper.from_array(values, name))
    build.channels[name] = 0
    return name


def draw_values(build: Builder, *shape: int) -> np.ndarray:
    return build.generator.standard_normal(shape).astype(np.float32)


def add_batchnorm(build: Builder, value: str) -> str:
    channels = build.channels[value]
    values = [
        draw_values(build, channels),
        draw_values(build, channels),
        draw_values(build, channels),
        draw_values(build, channels) ** 2 + 0.1,
    ]
    names = [add_constant(build, values[index], f"{value}_norm{index}") for index in range(4)]
    return build.add("BatchNormalization", value, *names)


def add_parallel(build: Builder) -> None:
    parts = [build.conv("x", width) for width in (8, 16, 24)]
    build.add("Concat", *[build.add("Relu", part) for part in parts], axis=1)


def add_hollow(build: Builder) -> None:
    build.conv("x", 16, 3)
    weight = numpy_helper.to_array(build.weights[0]).copy()
    weight[:, :, [0, 0, 0, 1, 1, 2, 2, 2], [0, 1, 2, 0, 2, 0, 1, 2]] = 0
    build.weights[0].CopyFrom(numpy_helper.from_array(weight, "w0"))
    build.add("Concat", "v0", build.conv("x", 8, 3), axis=1)


def add_pointwise(build: Builder) -> None:
    build.add("Relu", build.conv("x", 16, 1))
    build.nodes[0].input.append(add_constant(build, draw_values(build, 16), "bias"))


def add_disguised(build: Builder) -> None:
    transposed = build.add("Transpose", "x", perm=[0, 2, 3, 1])
    value = build.add("MatMul", transposed, add_constant(build, draw_values(build, 8, 12), "matrix"))
    value = build.add("Add", value, add_constant(build, draw_values(build, 12), "shift"))
    build.add("Transpose", value, perm=[0, 3, 1, 2])


def add_projections(build: Builder) -> None:
    parts = [
        build.add("MatMul", "x", add_constant(build, draw_values(build, 16, 16), f"m{index}")) for index in range(3)
    ]
    build.add("Add", build.add("MatMul", parts[0], parts[1]), parts[2])


def add_gated(build: Builder) -> None:
    build.add("Mul", build.add("HardSigmoid", "x", alpha=1 / 6, beta=0.5), "x")


def add_erf(build: Builder) -> None:
    root, unit, half = (
        add_constant(build, np.array(number, np.float32), f"n{number}") for number in (2**0.5, 1.0, 0.5)
    )
    value = build.add("Relu", "x")
    part = build.add("Add", build.add("Erf", build.add("Div", value, root)), unit)
    build.add("Mul", build.add("Mul", value, half), part)


def add_layernorm(build: Builder) -> None:
    axes, epsilon = (
        add_constant(build, np.array([-1]), "axes"),
        add_constant(build, np.array(1e-5, np.float32), "epsilon"),
    )
    difference = build.add("Sub", "x", build.add("ReduceMean", "x", axes, keepdims=1))
    variance = build.add("ReduceMean", build.add("Mul", difference, difference), axes, keepdims=1)
    value = build.add("Div", difference, build.add("Sqrt", build.add("Add", variance, epsilon)))
    value = build.add("Mul", value, add_constant(build, draw_values(build, 16), "scale"))
    build.add("Add", value, add_constant(build, draw_values(build, 16), "shift"))


def add_transposes(build: Builder) -> None:
    twice = build.add("Transpose", build.add("Transpose", "x", perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2])
    build.add("Relu", build.add("Transpose", build.add("Transpose", twice, perm=[0, 2, 1, 3]), perm=[1, 0, 2, 3]))


def add_normalised_branch(build: Builder) -> None:
    value = build.add("Relu", "x")
    build.add("Relu", build.add("Add", build.conv(value, 8, 3), add_batchnorm(build, value)))


# By rule, what makes a graph one with a site for it.
FITTING: dict[str, Callable[[Builder], object]] = {
    "fold-batchnorm": lambda build: build.add("Relu", add_batchnorm(build, build.conv("x", 16))),
    "merge-convs": add_parallel,
    "sum-branches": lambda build: build.add("Relu", build.add("Add", build.conv("x", 16, 3), build.conv("x", 16, 1))),
    "shrink-conv": add_hollow,
    "absorb-batchnorm": add_normalised_branch,
    "conv-to-matmul": add_pointwise,
    "matmul-to-conv": add_disguised,
    "merge-matmuls": add_projections,
    "fuse-hardswish": add_gated,
    "fuse-gelu": add_erf,
    "fuse-layernorm": add_layernorm,
    "push-transpose": lambda build: build.add(
        "HardSigmoid", build.add("Transpose", "x", perm=[0, 2, 3, 1]), alpha=0.3, beta=0.4
    ),
    "pull-transpose": lambda build: build.add("Transpose", build.add("LeakyRelu", "x", alpha=0.3), perm=[0, 2, 3, 1]),
    "merge-transposes": add_transposes,
}


def build_fitting(name: str) -> ir.Model:
    """Build a graph with a site for a rule."""
    build = Builder()
    FITTING[name](build)
    return build_model(build)


def build_model(build: Builder) -> ir.Model:
    proto = build.model()
    proto.opset_import[0].version = 20
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    return open_model(ir.from_proto(onnx.shape_inference.infer_shapes(proto)))


def compute_outputs(model: ir.Model, folder: Path) -> list[np.ndarray]:
    """Compute the outputs of a model in float64, for seeded inputs."""
    path = folder / "one.onnx"
    ir.save(model, path)
    onnx.checker.check_model(path, full_check=True)
    value = np.random.default_rng(1).standard_normal([int(side) for side in model.graph.inputs[0].shape])
    return exact.run(path, {"x": value.astype(np.float32)}, budget_s=60)


def test_every_rule_has_a_graph_that_it_fits() -> None:
    """The following tests cover every rule."""
    assert set(FITTING) == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_preserves_results(name: str, tmp_path: Path) -> None:
    """A rule changes the graph at each site, and not its results in float64 or the original model."""
    original = build_fitting(name)
    expected, before = compute_outputs(original, tmp_path), onnx_graphs.annotate(original.clone().graph).digest
    sites = rule(name).sites(original)

    assert sites
    for site in sites:
        rewritten = rule(name).apply(original, site)
        for values, new_values in zip(expected, compute_outputs(rewritten, tmp_path), strict=True):
            # New weights are rounded to float32.
            np.testing.assert_allclose(new_values, values, rtol=2e-5, atol=2e-5 * np.abs(values).max())
        assert before != onnx_graphs.annotate(rewritten.graph).digest
        assert all(value.shape is not None for node in rewritten.graph for value in node.outputs)
    assert before == onnx_graphs.annotate(original.graph).digest


@pytest.mark.parametrize("name", RULES)
def test_a_rule_fits_no_more_than_it_says(name: str) -> None:
    """No rule has a site in a graph of a softmax and a maximum."""
    build = Builder()
    build.add("MaxPool", build.add("Softmax", "x"), kernel_shape=[2, 2])

    assert [] == rule(name).sites(build_model(build))


def test_an_output_keeps_its_name() -> None:
    """The new value takes the name of the output."""
    original = build_fitting("fuse-hardswish")
    rewritten = rule("fuse-hardswish").apply(original, rule("fuse-hardswish").sites(original)[0])

    assert [value.name for value in original.graph.outputs] == [value.name for value in rewritten.graph.outputs]
    assert ["HardSwish"] == [node.op_type for node in rewritten.graph]


def test_a_value_with_two_consumers_is_not_folded() -> None:
    """A BatchNorm is not folded into a convolution whose output has another consumer."""
    build = Builder()
    value = build.conv("x", 8)
    build.add("Add", add_batchnorm(build, value), value)

    assert [] == rule("fold-batchnorm").sites(build_model(build))


def test_unlike_windows_are_not_merged() -> None:
    """Convolutions of another stride, padding or value are separate."""
    build = Builder()
    parts = [build.conv("x", 8), build.conv("x", 8, stride=2), build.conv("x", 8, kernel=5)]
    parts.append(build.conv(build.add("Relu", "x"), 8))
    proto = build.model(*parts)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1

    assert [] == rule("merge-convs").sites(open_model(ir.from_proto(proto)))


def test_nodes_without_names_are_named() -> None:
    """Sites are names of nodes, so that each needs a distinct one."""
    build = Builder()
    build.add("Relu", build.add("Relu", "x"))
    for node in build.nodes:
        node.name = ""
    named_model = build_model(build)

    assert 2 == len({node.name for node in named_model.graph if node.name})
    assert infer_shapes(named_model) is named_model


def test_an_unknown_rule_is_an_error() -> None:
    """The error lists similar rules."""
    with pytest.raises(UnknownNameError, match="merge-convs"):
        rule("merge-conv")


def test_functions_are_inlined() -> None:
    """Rules see operators, not functions."""
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
    inlined = open_model(
        ir.from_proto(helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10))
    )

    assert ["Add"] == [node.op_type for node in inlined.graph]
