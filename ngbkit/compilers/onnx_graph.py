"""What an ONNX graph holds, counted: the side of `Program.explain` that all who read ONNX files share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Layouts of ONNX Runtime's own, in which an operator goes by its old name.
_LAYOUTS = {"com.microsoft.nchwc", "com.ms.internal.nhwc"}
_CONTRIBUTED = "com.microsoft"


def read_operators(path: Path) -> list[Any]:
    """The nodes of the graph in that file that compute something; its weights are not read.

    Raises
    ------
    ImportError
        The `onnx` package is not installed.
    """
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    return [node for node in model.graph.node if node.op_type != "Constant"]


def count_fused(before: list[Any], after: list[Any]) -> int:
    """How many nodes of ONNX Runtime's optimised graph do the work of more than one, as far as a node tells.

    That is a node which was not there before and either is an operator that Microsoft adds to ONNX (``FusedMatMul``),
    bears the name of a fusion, or, in a layout of the runtime's own, has an activation or a sum within it. A
    BatchNorm that went into the weights of a convolution leaves no trace.
    """
    known = {(node.domain, node.op_type, node.name) for node in before}
    return sum((node.domain, node.op_type, node.name) not in known and _is_fused(node) for node in after)


def _is_fused(node: Any) -> bool:
    if node.domain in _LAYOUTS or node.op_type.startswith("Nhwc"):
        activation = any(attribute.name == "activation" and attribute.s for attribute in node.attribute)
        # The fourth input of a convolution is what is added to its result.
        return activation or (node.op_type.endswith("Conv") and any(node.input[3:]))
    return node.domain == _CONTRIBUTED or "Fusion" in node.name
