"""Counts of the operators in an ONNX graph, shared by the `Program.explain` of all compilers that read ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PACKAGES = ("onnx", "ml-dtypes")
"""The packages that read ONNX files, and their values of narrow types, for ngbkit itself."""

# Internal layouts of ONNX Runtime, in which an operator keeps its ONNX name.
_LAYOUTS = {"com.microsoft.nchwc", "com.ms.internal.nhwc"}
_CONTRIBUTED = "com.microsoft"
# The nodes of a quantised graph; the layers that multiply; and the kernels of these in int8.
_QUANTISING = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"}
_LAYERS = {
    *("Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU", "RNN", "Einsum"),
    *("FusedConv", "FusedMatMul", "FusedGemm", "NhwcFusedConv", "Attention", "MultiHeadAttention"),
}
_NARROW = {
    *("QLinearConv", "QLinearMatMul", "QGemm", "QAttention", "ConvInteger", "MatMulInteger", "MatMulIntegerToFloat"),
    *("DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "MatMulNBits"),
}


def read_operators(path: Path) -> list[Any]:
    """Return the nodes of the graph in a file that compute something, without loading the weights."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    return [node for node in model.graph.node if node.op_type != "Constant"]


def count_fused(before: list[Any], after: list[Any]) -> int:
    """Count the nodes of ONNX Runtime's optimised graph that replace several nodes, as far as a node shows it.

    Such a node is new and is either an operator that Microsoft adds to ONNX (``FusedMatMul``), or named after a fusion,
    or, in an internal layout, has an activation or a sum folded in. A BatchNorm folded into the weights of a
    convolution leaves no trace.
    """
    original = {(node.domain, node.op_type, node.name) for node in before}
    return sum((node.domain, node.op_type, node.name) not in original and _is_fused(node) for node in after)


def describe_wide_layers(before: list[Any], after: list[Any]) -> dict[str, Any]:
    """Describe as facts how many layers of a quantised graph an optimised one computes in f32, their share and why."""
    if not any(node.op_type in _QUANTISING for node in before):
        return {}
    dequantised = {name for node in after if node.op_type == "DequantizeLinear" for name in node.output}
    wide = [node for node in after if node.op_type in _LAYERS]
    narrow = [node for node in after if node.op_type in _NARROW]
    if not wide and not narrow:
        return {}
    reasons: dict[str, dict[str, None]] = {}
    for node in wide:
        has_narrow_input = any(name in dequantised for name in node.input)
        reason = "no kernel in int8, so its inputs are dequantised" if has_narrow_input else "not quantised in the file"
        reasons.setdefault(node.op_type, {})[reason] = None
    return {
        "f32_layers": len(wide),
        "f32_share": len(wide) / (len(wide) + len(narrow)),
        "f32_reasons": {kind: "; ".join(texts) for kind, texts in reasons.items()},
    }


def _is_fused(node: Any) -> bool:
    if node.domain in _LAYOUTS or node.op_type.startswith("Nhwc"):
        activation = any(attribute.name == "activation" and attribute.s for attribute in node.attribute)
        # The fourth input of a convolution is added to its result.
        return activation or (node.op_type.endswith("Conv") and any(node.input[3:]))
    return node.domain == _CONTRIBUTED or "Fusion" in node.name
