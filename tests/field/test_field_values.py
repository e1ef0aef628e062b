"""Inputs whose values mean something: indices, lengths, sizes, axes, texts; drawn to be valid, or given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from field.case import Case, Outcome, expect_failure
from field.measuring import WITH_OPENVINO, Results, find_faults, measure
from field.writing import write_graph

SHAPE_ARITHMETIC = """
arithmetic (float[batch, 24] x) => (float[batch, 2, 6] y)
<int64[1] first = {0}, int64[1] second = {1}, int64[2] rest = {4, 6}> {
    sides = Shape(x)
    rows = Slice(sides, first, second)
    target = Concat<axis = 0>(rows, rest)
    grid = Reshape(x, target)
    left, right = Split<axis = 1>(grid)
    product = Mul(left, right)
    size = Shape(product)
    zeros = ConstantOfShape(size)
    y = Add(product, zeros)
}"""
RESHAPE_BY_INPUT = """
reshaped (float[batch, 24] x, int64[batch, 1] flag) => (float[batch, 4, 6] y)
<int64 zero = {0}, int64[1] minus = {-1}, int64[3] target = {-1, 4, 6}> {
    total = ReduceSum<keepdims = 1>(flag)
    nothing = Mul(total, zero)
    flat = Reshape(nothing, minus)
    shape = Add(flat, target)
    y = Reshape(x, shape)
}"""
BEAMS = """
beams (float[batch, 4, 8] cache, int64[batch] beams) => (float[batch, 4, 8] y) <float[8, 8] w> {
    survivors = Gather<axis = 0>(cache, beams)
    y = MatMul(survivors, w)
}"""
LENGTHS = """
pooled (float[batch, 12] x, int64[batch] lengths) => (float[batch, 1] y)
<int64 zero = {0}, int64 end = {12}, int64 step = {1}, int64[1] second = {1}> {
    places = Range(zero, end, step)
    column = Unsqueeze(lengths, second)
    visible = Less(places, column)
    mask = Cast<to = 1>(visible)
    masked = Mul(x, mask)
    total = ReduceSum<keepdims = 1>(masked, second)
    count = ReduceSum<keepdims = 1>(mask, second)
    y = Div(total, count)
}"""
SIZES = 'upscaled (float[1, 3, 8, 8] x, int64[4] sizes) => (float[] y) { y = Resize<mode = "nearest">(x, , , sizes) }'
SCALES = 'scaled (float[1, 3, 8, 8] x, float[4] scales) => (float[] y) { y = Resize<mode = "nearest">(x, , scales) }'
TOKENS = """
tokens (int64[batch, 7] ids) => (float[batch, 7, 4] y) <float[3, 8] table, float[8, 4] w> {
    words = Gather(table, ids)
    y = MatMul(words, w)
}"""
AXIS = """
summed (float[batch, 6] x, int64[1] axes) => (float[batch, 1] y) { y = ReduceSum<keepdims = 1>(x, axes) }"""
EXPANDED = """
expanded (float[1, 8] x, int64[2] shape) => (float[] y) <float[8, 8] w> { t = MatMul(x, w) y = Expand(t, shape) }"""
DEFAULT = """
gained (float[batch, 8] x, float[1] gain) => (float[batch, 4] y) <float[1] gain = {2}, float[8, 4] w> {
    scaled = Mul(x, gain)
    y = MatMul(scaled, w)
}"""
CATEGORIES = """
categories (string[batch, 2] city) => (float[batch, 4] y) <float[2, 4] w> {
    id = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b"], values_floats = [1.0, 2.0]>(city)
    y = MatMul(id, w)
}"""
DIVISION = """
divided (int64[batch, 16] ids) => (int64[batch, 16] y) <int64 seven = {7}, int64 three = {3}> {
    shifted = Sub(ids, seven)
    quotient = Div(shifted, three)
    rest = Mod(shifted, three)
    y = Add(quotient, rest)
}"""
PICTURE = """
picture (uint8[batch, 16, 16, 3] img) => (float[batch, 8, 16, 16] y) <float s = {0.00392157}, float[8, 3, 3, 3] k> {
    numbers = Cast<to = 1>(img)
    planes = Transpose<perm = [0, 3, 1, 2]>(numbers)
    scaled = Mul(planes, s)
    y = Conv<pads = [1, 1, 1, 1]>(scaled, k)
}"""
INFINITE = """
infinite (float[batch, 6] x, bool[batch, 6] mask) => (float[batch, 6] s, float[batch, 6] p) <float low = {-inf}> {
    s = Where(mask, x, low)
    p = Softmax<axis = -1>(s)
}"""

# Valid draws that are known from the graph are right, and so is a reason that names the option; never a wrong verdict.
DRAWN = Outcome(status="ok|refused|not-checked|failed|unsupported", reason="^$|--inputs")
CASES = (
    Case(name="09-int64-division", compilers=WITH_OPENVINO, build=write_graph(DIVISION)),
    Case(name="20-shape-arithmetic", build=write_graph(SHAPE_ARITHMETIC)),
    Case(name="20b-reshape-by-input", build=write_graph(RESHAPE_BY_INPUT)),
    Case(name="21-beam-index", build=write_graph(BEAMS)),
    Case(
        name="21d-beam-index-given", compilers=WITH_OPENVINO, build=write_graph(BEAMS), inputs={"beams": np.array([0])}
    ),
    Case(name="21b-lengths-given", build=write_graph(LENGTHS), inputs={"lengths": np.array([5, 12])}),
    Case(
        name="21b-lengths",
        build=write_graph(LENGTHS),
        outcome=DRAWN,
    ),
    Case(
        name="21c-size-input",
        build=write_graph(SIZES),
        batch_sizes=(1,),
        inputs={"sizes": np.array([1, 3, 16, 16])},
    ),
    Case(
        name="21c-size-input-drawn",
        build=write_graph(SIZES),
        batch_sizes=(1,),
        outcome=DRAWN,
    ),
    Case(
        name="21e-scale-input",
        build=write_graph(SCALES),
        batch_sizes=(1,),
        inputs={"scales": np.array([1, 1, 2, 2], np.float32)},
    ),
    Case(name="21f-three-tokens", build=write_graph(TOKENS)),
    Case(name="21g-axis", build=write_graph(AXIS)),
    Case(name="21g-axis-given", build=write_graph(AXIS), inputs={"axes": np.array([1])}),
    Case(
        name="21h-shape-given",
        build=write_graph(EXPANDED),
        batch_sizes=(1,),
        inputs={"shape": np.array([5, 8])},
    ),
    Case(name="18d-default-input", build=write_graph(DEFAULT)),
    Case(
        name="13-text-input",
        build=write_graph(CATEGORIES, opset=15, domains={"ai.onnx.ml": 3}),
        compilers=WITH_OPENVINO,
        outcomes={"openvino": expect_failure("(?i)text|string|LabelEncoder")},
    ),
    Case(name="37-infinite-mask", compilers=WITH_OPENVINO, build=write_graph(INFINITE)),
    Case(name="41-uint8-image", build=write_graph(PICTURE)),
)


@pytest.fixture(scope="module")
def results(state_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    return measure(CASES, tmp_path_factory.mktemp("values"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_are_valid_or_given(case: Case, results: dict[str, Results]) -> None:
    """Each compiler is measured and checked, or the reason names the option that gives values."""
    assert [] == find_faults(case, results[case.name])
