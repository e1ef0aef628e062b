"""Counts of the operators in an ONNX graph, shared by the `Program.explain` of all compilers that read ONNX files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PACKAGES = ("onnx", "ml-dtypes")
"""The packages that read ONNX files, and their values of narrow types, for ngbkit itself."""

# Internal layouts of ONNX Runtime, in which an operator keeps its ONNX name.
_LAYOUTS = {"com.microsoft.nchwc", "com.ms.internal.nhwc"}
_CONTRIBUTED = "com.microsoft"


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


def _is_fused(node: Any) -> bool:
    if node.domain in _LAYOUTS or node.op_type.startswith("Nhwc"):
        activation = any(attribute.name == "activation" and attribute.s for attribute in node.attribute)
        # The fourth input of a convolution is added to its result.
        return activation or (node.op_type.endswith("Conv") and any(node.input[3:]))
    return node.domain == _CONTRIBUTED or "Fusion" in node.name
