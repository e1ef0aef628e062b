"""Inputs as people's files declare them: the batch in any place or nowhere, scalars, derived and empty dimensions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from field.case import Case, expect_failure
from field.measuring import WITH_OPENVINO, Results, find_faults, measure
from field.writing import write_graph

from ngbkit.workloads import onnx as onnx_source

RATE = """
speech (float[batch, 512] input, float[2, batch, 64] state, int64 sr)
    => (float[batch, 1] output, float[2, batch, 64] next)
<float[512, 64] w, float[64, 1] v, float k16 = {16000}, int64[1] first = {0}> {
    rate = Cast<to = 1>(sr)
    ratio = Div(rate, k16)
    plain = MatMul(input, w)
    feature = Mul(plain, ratio)
    mean = ReduceMean<axes = [0], keepdims = 0>(state)
    hidden = Add(feature, mean)
    logit = MatMul(hidden, v)
    output = Sigmoid(logit)
    layer = Unsqueeze(hidden, first)
    next = Concat<axis = 0>(layer, layer)
}"""
STATE_SECOND = """
speech (float[batch, 512] input, float[2, batch, 64] state) => (float[batch, 64] output) <float[512, 64] w> {
    feature = MatMul(input, w)
    mean = ReduceMean<axes = [0], keepdims = 0>(state)
    output = Add(feature, mean)
}"""
GRU = """
recurrent (float[SHAPE] x, float[STATE] h0) => (float[SEQUENCE] sequence, float[STATE] last)
<float[1, 48, 12] W, float[1, 48, 16] R, float[1, 96] B> {
    sequence, last = GRU<hidden_size = 16, linear_before_reset = 1>(x, W, R, B, , h0)
}"""
DECODER = """
decoder (int64[batch_size, sequence_length] input_ids, int64[batch_size, "past_sequence_length + sequence_length"] mask,
    float[batch_size, 1, past_sequence_length, 16] "past.0.key")
    => (float[batch_size, sequence_length, 50] logits,
        float[batch_size, 1, "past_sequence_length + sequence_length", 16] "present.0.key")
<float[50, 16] table, float[16, 50] head, int64[1] first = {1}, int64[2] middle = {1, 2},
 float one = {1}, float low = {-10000}> {
    words = Gather(table, input_ids)
    query = Unsqueeze(words, first)
    "present.0.key" = Concat<axis = 2>("past.0.key", query)
    keys = Transpose<perm = [0, 1, 3, 2]>("present.0.key")
    scores = MatMul(query, keys)
    visible = Cast<to = 1>(mask)
    wide = Unsqueeze(visible, middle)
    hidden = Sub(one, wide)
    bias = Mul(hidden, low)
    biased = Add(scores, bias)
    shares = Softmax<axis = -1>(biased)
    mixed = MatMul(shares, "present.0.key")
    flat = Squeeze(mixed, first)
    logits = MatMul(flat, head)
}"""
BLOOM = """
bloom (float[batch_size, sequence, 4] x, float["batch_size x num_heads", 4, past] key)
    => (float[batch_size, sequence, 4] y)
<float[4, 4] w> {
    total = ReduceSum<keepdims = 0>(key)
    scaled = MatMul(x, w)
    y = Add(scaled, total)
}"""
MASK = """
masked (float[batch, 6] x, bool[1, 6] keep) => (float[batch, 4] y) <float[6, 4] w, float zero = {0}> {
    visible = Where(keep, x, zero)
    y = MatMul(visible, w)
}"""
PICTURE_AND_SIZE = """
detector (float[N, 3, 64, 64] image, float[1, 2] image_shape) => (float[N, 8] y)
<float[8, 3, 3, 3] k, int64[1] zero = {0}, int64[1] one = {1}> {
    features = Conv<pads = [1, 1, 1, 1]>(image, k)
    pooled = GlobalAveragePool(features)
    flat = Flatten(pooled)
    height = Slice(image_shape, zero, one, one)
    y = Mul(flat, height)
}"""
SCALED = """
scaled (float[batch, 32] x, float temperature) => (float[batch, 16] y) <float[32, 16] w> {
    s = Mul(x, temperature)
    y = MatMul(s, w)
}"""
SWITCHED = """
switched (float[batch, 8] x, bool doubled) => (float[batch, 4] y) <float[8, 4] w, float two = {2}, float one = {1}> {
    factor = Where(doubled, two, one)
    s = Mul(x, factor)
    y = MatMul(s, w)
}"""
EMPTY_CACHE = """
cached (float[batch, 4, 8] x, float[batch, 0, 8] cache) => (float[batch, 8] y) <int64[1] one = {1}> {
    keys = Concat<axis = 1>(x, cache)
    y = ReduceSum<keepdims = 0>(keys, one)
}"""
TIME_FIRST = """
frames (float[time, batch, 8] x) => (float[time, batch, 4] y) <float[8, 4] w> { y = MatMul(x, w) }"""
NO_BATCH = (
    "table (float[5, 8] x, float[8] bias) => (float[5, 4] y) <float[8, 4] w> { s = Add(x, bias) y = MatMul(s, w) }"
)


def _write_gru(shape: str, state: str, sequence: str) -> str:
    return GRU.replace("SHAPE", shape).replace("STATE", state).replace("SEQUENCE", sequence)


def _erase_symbols(model: onnx.ModelProto) -> None:
    """Leave open dimensions of inputs without a name."""
    for value in model.graph.input:
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.WhichOneof("value") == "dim_param":
                dimension.Clear()


def _mark_symbols(model: onnx.ModelProto) -> None:
    """Call each open dimension of inputs ``?``, as some converters do."""
    for value in model.graph.input:
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.WhichOneof("value") == "dim_param":
                dimension.dim_param = "?"


RATE_HZ = np.array(16000, np.int64)
CASES = (
    Case(name="02-scalar-rate", compilers=WITH_OPENVINO, build=write_graph(RATE)),
    Case(name="02-scalar-rate-given", build=write_graph(RATE), inputs={"sr": RATE_HZ}),
    Case(name="02-anonymous", build=write_graph(RATE, change=_erase_symbols), batch_axis={"state": 1, "sr": None}),
    Case(name="02-question-marks", build=write_graph(RATE, change=_mark_symbols), batch_axis={"state": 1, "sr": None}),
    Case(name="02b-state-batch-second", build=write_graph(STATE_SECOND)),
    Case(name="02c-scalar-only", build=write_graph(SCALED)),
    Case(name="02d-scalar-flag", build=write_graph(SWITCHED)),
    Case(
        name="03-gru-sequence-first-fixed",
        build=write_graph(_write_gru("10, 1, 12", "1, 1, 16", "10, 1, 1, 16")),
        batch_sizes=(1,),
    ),
    Case(
        name="03b-gru-sequence-first-open",
        build=write_graph(_write_gru("seq_len, batch, 12", "1, batch, 16", "seq_len, 1, batch, 16")),
        factors={"seq_len": (4,)},
    ),
    Case(name="03c-time-first", build=write_graph(TIME_FIRST), factors={"time": (3,)}),
    Case(name="03d-no-batch", build=write_graph(NO_BATCH), batch_sizes=(1,)),
    Case(name="04-image-and-its-size", build=write_graph(PICTURE_AND_SIZE)),
    Case(name="04b-one-mask-for-all", build=write_graph(MASK)),
    Case(
        name="05-decoder-with-past",
        build=write_graph(DECODER),
        factors={"sequence_length": (4,), "past_sequence_length": (3,)},
    ),
    Case(
        name="05-decoder-without-past",
        compilers=WITH_OPENVINO,
        build=write_graph(DECODER),
        factors={"sequence_length": (4,), "past_sequence_length": (0,)},
    ),
    Case(name="05b-fixed-empty-cache", build=write_graph(EMPTY_CACHE)),
    Case(
        name="05c-batch-times-heads",
        build=write_graph(BLOOM),
        factors={"sequence": (3,), "past": (2,), "num_heads": (2,)},
        batch_sizes=(1,),
    ),
    Case(
        name="03d-no-batch-at-two",
        build=write_graph(NO_BATCH),
        outcome=expect_failure("batch size 1 only.*a sample is a call"),
    ),
    Case(
        name="03-fixed-at-two",
        build=write_graph(_write_gru("10, 1, 12", "1, 1, 16", "10, 1, 1, 16")),
        outcome=expect_failure("batch"),
    ),
)


@pytest.fixture(scope="module")
def results(state_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    return measure(CASES, tmp_path_factory.mktemp("descriptions"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_description_fits_the_runtime(case: Case, results: dict[str, Results]) -> None:
    """Each compiler is measured and checked, or the reason names the remedy."""
    assert [] == find_faults(case, results[case.name])


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        (DECODER, {"sequence_length", "past_sequence_length"}),
        (BLOOM, {"sequence", "past", "num_heads"}),
        (RATE, set()),
        (TIME_FIRST, {"time"}),
    ],
    ids=["derived", "product", "state", "time-first"],
)
def test_a_derived_dimension_is_no_factor(tmp_path: Path, text: str, takes: set[str]) -> None:
    """The batch and expressions of other dimensions follow; only free dimensions are factors."""
    path = write_graph(text)(tmp_path)
    workload = onnx_source.file(path)

    assert takes == set(workload.takes)
