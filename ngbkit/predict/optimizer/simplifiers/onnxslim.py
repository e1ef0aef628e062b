"""onnxslim: folds constants, removes and fuses operators, in Python."""

from __future__ import annotations

from pathlib import Path

from ngbkit.predict.optimizer.simplifiers.base import Simplifier


def simplify(source: Path, target: Path) -> None:
    """Simplify with the tool's defaults."""
    import onnxslim

    onnxslim.slim(str(source), str(target))


SIMPLIFIER = Simplifier(
    name="onnxslim",
    summary="folds constants, removes and fuses operators",
    packages=("onnxslim",),
    install="pip install 'ngbkit[predict]'",
    simplify=simplify,
)
