"""onnxoptimizer: the passes that once were part of onnx, in C++."""

from __future__ import annotations

from pathlib import Path

from ngbkit.predict.optimizer.simplifiers.base import Simplifier


def simplify(source: Path, target: Path) -> None:
    """Run the tool's default passes, those that fuse and eliminate, until nothing changes."""
    import onnx
    import onnxoptimizer

    onnx.save(onnxoptimizer.optimize(onnx.load(source), fixed_point=True), target)


SIMPLIFIER = Simplifier(
    name="onnxoptimizer",
    summary="removes and fuses operators",
    packages=("onnxoptimizer",),
    install="pip install 'ngbkit[predict]'",
    simplify=simplify,
)
