"""The layers of a quantised network that its runtime computes in f32 are facts, with the reason."""

from __future__ import annotations

import onnx
import pytest

from ngbkit.compilers import onnx_graph

BEFORE = """
<ir_version: 9, opset_import: ["" : 19]>
net (float[1, 4] x, uint8[1, 4] q, float scale, float[4, 4] weights) => (float[1, 4] y) {
    d = DequantizeLinear(q, scale)
    y = MatMul(d, weights)
}"""
PLAIN = """
<ir_version: 9, opset_import: ["" : 19]>
net (float[1, 4] x, float[4, 4] weights) => (float[1, 4] y) {
    y = MatMul(x, weights)
}"""
INTEGER = """
<ir_version: 9, opset_import: ["" : 19, "com.microsoft" : 1]>
net (float[1, 4] x, float[4, 4] weights) => (float[1, 4] y) {
    a = com.microsoft.QGemm(x, weights)
    b = com.microsoft.QLinearAdd(a, x)
    y = Gemm(b, weights)
}"""


def parse(text: str) -> list[onnx.NodeProto]:
    return list(onnx.parser.parse_model(text).graph.node)


@pytest.mark.parametrize(
    ("before", "after", "facts"),
    [
        (
            BEFORE,
            BEFORE,
            {
                "f32_layers": 1,
                "f32_share": 1.0,
                "f32_reasons": {"MatMul": "no kernel in int8, so its inputs are dequantised"},
            },
        ),
        (
            BEFORE,
            INTEGER,
            {"f32_layers": 1, "f32_share": 0.5, "f32_reasons": {"Gemm": "not quantised in the file"}},
        ),
        (PLAIN, PLAIN, {}),
    ],
    ids=["no kernel", "not quantised", "f32"],
)
def test_layers_in_f32_are_counted(before: str, after: str, facts: dict[str, object]) -> None:
    """Sums in int8 are no layers, a dequantised input means a missing kernel, and a plain network has no such facts."""
    assert facts == onnx_graph.describe_wide_layers(parse(before), parse(after))
