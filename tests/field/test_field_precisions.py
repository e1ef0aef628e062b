"""Networks in their own precision: quantised, half, bfloat16 and double, each with the tolerance of its own type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from field.case import Case, Outcome
from field.measuring import WITH_OPENVINO, Results, find_faults, measure
from field.modules import COMPILERS, describe_module
from field.writing import write_graph

from ngbkit.compilers.quantiser import needs_reduced_range

RESIDUAL = """
quantised (float[batch, 3, 32, 32] x) => (float[batch, 16] y)
<int8[16, 3, 3, 3] q1, float[16] s1, int8[16] z1, int8[16, 16, 3, 3] q2, float[16] s2, int8[16] z2,
 float sx = {0.03}, uint8 zx = {128}, float sr = {0.03}, uint8 zr = {0}, float sc = {0.06}, uint8 zc = {128},
 float sa = {0.06}, uint8 za = {100}, float sp = {0.02}, uint8 zp = {60}> {
    xq = QuantizeLinear(x, sx, zx)
    xd = DequantizeLinear(xq, sx, zx)
    w1 = DequantizeLinear<axis = 0>(q1, s1, z1)
    c1 = Conv<pads = [1, 1, 1, 1]>(xd, w1)
    r1 = Relu(c1)
    rq = QuantizeLinear(r1, sr, zr)
    rd = DequantizeLinear(rq, sr, zr)
    w2 = DequantizeLinear<axis = 0>(q2, s2, z2)
    c2 = Conv<pads = [1, 1, 1, 1]>(rd, w2)
    cq = QuantizeLinear(c2, sc, zc)
    cd = DequantizeLinear(cq, sc, zc)
    a = Add(cd, rd)
    aq = QuantizeLinear(a, sa, za)
    ad = DequantizeLinear(aq, sa, za)
    p = GlobalAveragePool(ad)
    pq = QuantizeLinear(p, sp, zp)
    pd = DequantizeLinear(pq, sp, zp)
    y = Flatten(pd)
}"""
RESIZED = """
resized (float[batch, 1, 8, 8] x) => (float[batch, 1, 16, 16] y)
<float s = {0.5}, int8 z = {0}, float[4] scales = {1, 1, 2, 2}> {
    xq = QuantizeLinear(x, s, z)
    xd = DequantizeLinear(xq, s, z)
    r = Resize<mode = "linear", coordinate_transformation_mode = "half_pixel">(xd, , scales)
    yq = QuantizeLinear(r, s, z)
    y = DequantizeLinear(yq, s, z)
}"""
HALF = """
half (float16[batch, 3, 32, 32] x) => (float16[batch, 16] y) <float16[16, 3, 3, 3] k, float16[16, 16, 3, 3] k2> {
    a = Conv<pads = [1, 1, 1, 1]>(x, k)
    b = Relu(a)
    c = Conv<pads = [1, 1, 1, 1]>(b, k2)
    p = GlobalAveragePool(c)
    y = Flatten(p)
}"""
DYNAMIC = """
dynamic (float[batch, 64] x) => (float[batch, 32] y) <int8[64, 32] w, float scale = {0.01}> {
    q, s, z = DynamicQuantizeLinear(x)
    i = MatMulInteger(q, w, z)
    f = Cast<to = 1>(i)
    product = Mul(s, scale)
    y = Mul(f, product)
}"""


def _draw_weights() -> dict[str, np.ndarray]:
    """Draw int8 weights of two convolutions, with a scale for each channel."""
    generator = np.random.default_rng(7)
    values: dict[str, np.ndarray] = {}
    for index, shape in enumerate([(16, 3, 3, 3), (16, 16, 3, 3)], start=1):
        values[f"q{index}"] = generator.integers(-127, 128, shape)
        values[f"s{index}"] = generator.uniform(0.002, 0.006, 16)
        values[f"z{index}"] = np.zeros(16)
    return values


HALF_MODULE = "model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))"
BFLOAT_BODY = f"""
class Body(nn.Module):
    def __init__(self):
        super().__init__()
        {HALF_MODULE.replace("model", "self.body", 1)}.TYPE()
    def forward(self, x):
        return self.body(x.TYPE()).float()

model = Body()
input_shape = (16,)
"""
QUANTISED = """
import warnings
warnings.simplefilter("ignore")
layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
model = torch.ao.quantization.quantize_dynamic(layers, {nn.Linear}, dtype=torch.qint8)
input_shape = (64,)
"""
DOUBLE = """
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)).double()
inputs = torch.randn(2, 8, dtype=torch.float64)
"""
EXPORTED = Outcome(status="ok|unsupported")
# Without VNNI the sums of 8-bit kernels saturate, and outputs are off by 3 to 4 %: a column that is ok would be wrong.
SATURATED = Outcome(status="not-equivalent", reason="relative RMSE 0.0[2-9]")
CASES = (
    Case(
        name="07-qdq-residual",
        compilers=WITH_OPENVINO,
        build=write_graph(RESIDUAL, values=_draw_weights()),
        outcomes=dict.fromkeys(("onnxruntime", "openvino"), SATURATED) if needs_reduced_range() else {},
    ),
    Case(name="08-qdq-resize", build=write_graph(RESIZED)),
    Case(name="16-fp16", build=write_graph(HALF), compilers=("identity", "onnxruntime", "openvino", "tvm")),
    Case(
        name="36-dynamic-int8",
        build=write_graph(DYNAMIC, values={"w": np.random.default_rng(7).integers(-127, 128, (64, 32))}),
    ),
    describe_module(
        "62-half",
        f"{HALF_MODULE}.half()\ninput_shape = (16,)\n",
    ),
    describe_module(
        "62b-half-with-inputs",
        f"{HALF_MODULE}.half()\ninputs = torch.randn(2, 16).half()\n",
    ),
    describe_module(
        "63-bfloat16",
        f"{HALF_MODULE}.bfloat16()\ninputs = torch.randn(2, 16).bfloat16()\n",
        outcome=Outcome(status="ok|refused|failed|unsupported", reason="^$|bfloat16|NOT_IMPLEMENTED"),
    ),
    describe_module(
        "63b-bfloat16-body",
        BFLOAT_BODY.replace("TYPE", "bfloat16"),
        compilers=(*COMPILERS, "openvino"),
        outcomes={"onnxruntime": EXPORTED},
    ),
    describe_module("63c-half-body", BFLOAT_BODY.replace("TYPE", "half")),
    describe_module(
        "69-quantised",
        QUANTISED,
        outcomes=dict.fromkeys(("torchscript", "onnxruntime"), EXPORTED),
    ),
    describe_module("83-float64", DOUBLE),
)


@pytest.fixture(scope="module")
def results(state_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    return measure(CASES, tmp_path_factory.mktemp("precisions"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_tolerance_is_that_of_the_type(case: Case, results: dict[str, Results]) -> None:
    """Each compiler is measured and checked against the network in its own precision."""
    assert [] == find_faults(case, results[case.name])
