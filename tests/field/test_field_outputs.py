"""Outputs as runtimes return them: rows that depend on data, texts, other orders, numbers for the whole batch."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from field.case import Case, Outcome, expect_failure, expect_unchecked, expect_unsupported
from field.measuring import WITH_OPENVINO, Results, find_faults, measure
from field.writing import write_graph

DETECTIONS = """
detections (float[batch, 20, 4] boxes, float[batch, 2, 20] raw) => (int64[selected, 3] keep)
<int64[1] most = {5}, float[1] overlap = {0.5}, float[1] least = {LEAST}> {
    scores = Sigmoid(raw)
    keep = NonMaxSuppression(boxes, scores, most, overlap, least)
}"""
WRONG_SHAPE = "wrong (float[1, 8] x) => (float[1, 99] y) <float[8, 4] w> { y = MatMul(x, w) }"
WRONG_RANK = "wrong (float[batch, 8, 4, 4] x) => (float[batch, 8, 1, 1] y) { p = GlobalAveragePool(x) y = Flatten(p) }"
ROWS = """
rows (float[batch, 4, 8] x) => (float[rows, 8] rows, float y) <int64[2] shape = {-1, 8}, int64 zero = {0}> {
    rows = Reshape(x, shape)
    sides = Shape(rows)
    count = Gather(sides, zero)
    number = Cast<to = 1>(count)
    mean = Div(rows, number)
    y = ReduceSum<keepdims = 0>(mean)
}"""
TIME_FIRST = """
frames (float[batch, 6, 8] x) => (float[frames, batch, 8] y, float[frames, batch, 8] scaled)
<float[8, 8] w, int64 zero = {0}> {
    turned = Transpose<perm = [1, 0, 2]>(x)
    y = MatMul(turned, w)
    sides = Shape(y)
    count = Gather(sides, zero)
    number = Cast<to = 1>(count)
    scaled = Mul(y, number)
}"""
LABELS = """
labels (float[batch, 2] x) => (string[batch] label, float[batch, 3] scores) {
    label, scores = ai.onnx.ml.LinearClassifier<coefficients = [0.1, -0.3, 0.2, 0.5, -0.1, 0.4],
        intercepts = [0.1, 0.2, 0.3], classlabels_strings = ["ant", "bee", "cat"], multi_class = 1,
        post_transform = "SOFTMAX">(x)
}"""
BRANCHES = """
branches (float[batch, 16] x) => (float[batch, 8] y) <float[16] bias, float[16, 8] w, float zero = {0}> {
    mean = ReduceMean<keepdims = 0>(x)
    low = Less(mean, zero)
    t = If(low) <
        then_branch = then () => (float[N, 16] left) { left = Add(x, bias) },
        else_branch = otherwise () => (float[N, 16] right) { right = Identity(x) }
    >
    y = MatMul(t, w)
}"""
LOOP = """
steps (float[batch, time, 8] x) => (float[batch, 8] last, float[batch, time, 8] y)
<float[8, 8] w, int64 second = {1}, bool always = {1}> {
    sides = Shape(x)
    count = Gather(sides, second)
    start = ReduceMean<axes = [1], keepdims = 0>(x)
    last, all = Loop(count, always, start) <body =
        body (int64 i, bool go, float[N, 8] s) => (bool on, float[N, 8] next, float[N, 8] row) {
        product = MatMul(s, w)
        next = Tanh(product)
        on = Identity(go)
        row = Identity(next)
    }>
    y = Transpose<perm = [1, 0, 2]>(all)
}"""
SEQUENCE = """
parts (float[batch, 8] x) => (float[batch, 4] y, float[batch, 2] a)
<int64 two = {2}, int64 zero = {0}, float[8, 4] w> {
    s = SplitToSequence<axis = 1>(x, two)
    a = SequenceAt(s, zero)
    joined = ConcatFromSequence<axis = 1>(s)
    y = MatMul(joined, w)
}"""
MEAN = """
mean (float[batch, 3, 16, 16] x) => (float y) <float[8, 3, 3, 3] k> {
    a = Conv<pads = [1, 1, 1, 1]>(x, k)
    y = ReduceMean<keepdims = 0>(a)
}"""
ODD = """
odd (float[batch, 8] x, float[batch, 3] unused) => (float[batch, 4] y, float[batch, 8] copy, int64[4] labels)
<float[8, 4] w> {
    y = MatMul(x, w)
    copy = Identity(x)
    labels = Constant<value = int64[4] {0, 1, 2, 3}>()
}"""
WEIGHT_RETURNED = (
    "returned (float[batch, 8] x) => (float[batch, 4] y, float[8, 4] w) <float[8, 4] w> { y = MatMul(x, w) }"
)
INPUT_RETURNED = (
    "returned (float[batch, 8] x) => (float[batch, 4] y, float[batch, 8] x) <float[8, 4] w> { y = MatMul(x, w) }"
)
NOISE = """
noise (float[batch, 8] x) => (float[batch, 4] y) <float[8, 4] w> {
    n = RandomNormalLike<scale = 0.1ATTRIBUTE>(x)
    z = Add(x, n)
    y = MatMul(z, w)
}"""
TIES = """
ties (float[batch, 20] x) => (float[batch, 5] v, int64[batch, 5] i) <int64[1] k = {5}> {
    rounded = Round(x)
    v, i = TopK<axis = -1>(rounded, k)
}"""
BAKED = """
baked (float[batch, 4, 4] x) => (float[batch, 3] y) <int64[2] s = {1, 16}, float[16, 3] w> {
    r = Reshape(x, s)
    y = MatMul(r, w)
}"""
SEGMENTS = """
segments (uint8[batch, 3, 32, 32] img) => (int64[batch, 32, 32] labels) <float[6, 3, 3, 3] k> {
    f = Cast<to = 1>(img)
    a = Conv<pads = [1, 1, 1, 1]>(f, k)
    labels = ArgMax<axis = 1, keepdims = 0>(a)
}"""
ZEROS = "zeros (float[batch, 8] x) => (float[batch, 8] y) <float zero = {0}> { y = Mul(x, zero) }"
COUNTS = """
chosen (float[batch, 8] x) => (int64[2, count] places) <float zero = {0}> {
    high = Greater(x, zero)
    places = NonZero(high)
}"""
MAPS = """
maps (float[batch, 2] x) => (string[batch] label, seq(map(string, float)) probabilities) {
    label, scores = ai.onnx.ml.LinearClassifier<coefficients = [0.1, -0.3, 0.2, 0.5, -0.1, 0.4],
        intercepts = [0.1, 0.2, 0.3], classlabels_strings = ["ant", "bee", "cat"], multi_class = 1,
        post_transform = "SOFTMAX">(x)
    probabilities = ai.onnx.ml.ZipMap<classlabels_strings = ["ant", "bee", "cat"]>(scores)
}"""


def clear_branch_shapes(model: onnx.ModelProto) -> None:
    """Leave the outputs of branches without a shape, as exporters write them."""
    for node in model.graph.node:
        for attribute in node.attribute:
            for output in attribute.g.output:
                output.type.tensor_type.ClearField("shape")


# No boxes, or zeros alone: an output of a compiler that computes nothing would be the same.
VOID = expect_unchecked("cannot tell a wrong answer")
# Neither can a compiler be blamed for it, nor may it pass: a measured trial says that it is not checked.
RANDOM = Outcome(status="failed|unsupported|not-checked", reason="random")
CASES = (
    Case(name="10-no-detections", build=write_graph(DETECTIONS.replace("LEAST", "1.1")), outcome=VOID),
    Case(name="10b-some-detections", compilers=WITH_OPENVINO, build=write_graph(DETECTIONS.replace("LEAST", "0.3"))),
    Case(name="10c-wrong-declared-output", build=write_graph(WRONG_SHAPE), batch_sizes=(1,)),
    Case(name="10d-wrong-declared-rank", build=write_graph(WRONG_RANK)),
    Case(name="10e-count-of-places", build=write_graph(COUNTS)),
    Case(name="11-rows-output", build=write_graph(ROWS), batch_sizes=(1, 2)),
    Case(name="11b-time-first-output", build=write_graph(TIME_FIRST)),
    Case(
        name="12-zipmap",
        compilers=WITH_OPENVINO,
        build=write_graph(MAPS, opset=15, domains={"ai.onnx.ml": 3}),
        outcomes={"openvino": expect_failure(".")},
    ),
    Case(
        name="12b-text-labels",
        compilers=WITH_OPENVINO,
        build=write_graph(LABELS, opset=15, domains={"ai.onnx.ml": 3}),
        outcomes={"openvino": expect_failure(".")},
    ),
    Case(name="14-if-outer", build=write_graph(BRANCHES, change=clear_branch_shapes)),
    Case(
        name="15-loop-scan",
        build=write_graph(LOOP, change=clear_branch_shapes),
        factors={"time": (5,)},
        compilers=("identity", "onnxruntime", "tvm"),
        outcomes={"tvm": expect_unsupported("Loop")},
    ),
    Case(name="22-sequence-inside", build=write_graph(SEQUENCE)),
    Case(name="27-mean-over-batch", build=write_graph(MEAN), batch_sizes=(1, 2)),
    Case(name="28-odd-outputs", build=write_graph(ODD)),
    Case(name="28b-initializer-output", build=write_graph(WEIGHT_RETURNED)),
    Case(name="28c-input-is-output", build=write_graph(INPUT_RETURNED)),
    Case(name="28d-all-zeros", build=write_graph(ZEROS), outcome=VOID),
    Case(
        name="29-random",
        build=write_graph(NOISE.replace("ATTRIBUTE", "")),
        outcome=RANDOM,
    ),
    Case(
        name="29b-random-seeded",
        build=write_graph(NOISE.replace("ATTRIBUTE", ", seed = 3.0")),
        outcome=RANDOM,
    ),
    Case(name="38-ties", build=write_graph(TIES)),
    Case(
        name="40-baked-batch",
        build=write_graph(BAKED),
        batch_sizes=(1, 2),
        outcomes={2: expect_failure("(?i)batch|reshape")},
    ),
    Case(name="42-argmax-labels", compilers=WITH_OPENVINO, build=write_graph(SEGMENTS)),
)


@pytest.fixture(scope="module")
def results(state_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    return measure(CASES, tmp_path_factory.mktemp("outputs"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_are_what_the_runtime_returns(case: Case, results: dict[str, Results]) -> None:
    """Each compiler is measured and checked, or the reason is true."""
    assert [] == find_faults(case, results[case.name])
