"""onnxsim (onnx-simplifier): folds constants, and runs the passes of its own optimizer, in C++."""

from __future__ import annotations

from pathlib import Path

from ngbkit.errors import UnsupportedError
from ngbkit.predict.optimizer.simplifiers.base import Simplifier


def simplify(source: Path, target: Path) -> None:
    """Simplify with the tool's defaults."""
    import onnx
    import onnxsim

    model, valid = onnxsim.simplify(str(source))
    if not valid:
        raise UnsupportedError("onnxsim rejects its own result")
    onnx.save(model, target)


SIMPLIFIER = Simplifier(
    name="onnxsim",
    summary="folds constants, removes and fuses operators",
    packages=("onnxsim",),
    install="pip install 'ngbkit[predict]'",
    simplify=simplify,
)
