"""Examples whose seconds follow from their graphs by a rule, for the tests of what learns from them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
from onnxgraphs import Builder, graph, residual

from ngbkit.predictor import Examples, Graph, read

RUNTIMES = (("cpu", "openvino"), ("cpu", "onnxruntime"))


def seconds(one: Graph) -> list[float]:
    """The first runtime pays for operations and for calls of operators; the second pays more for bytes."""
    operations, moved = sum(each.macs or 0 for each in one.operators), sum(each.bytes for each in one.operators)
    return [1e-5 + 1e-10 * operations + 3e-6 * len(one.operators), 1e-5 + 5e-11 * operations + 2e-10 * moved]


def examples(folder: Path, *, alone: bool = False) -> Examples:
    """Stacks of blocks of several widths, depths and kernels; with `alone`, their operators by themselves too."""
    asked = list(product((8, 12, 16, 24, 32), (1, 2, 3, 4), (1, 3)))
    found = [read(residual(folder, width, blocks, kernel)) for width, blocks, kernel in asked]
    families = [f"width{width}" for width, _, _ in asked]
    parents = [f"{width}x{kernel}" for width, _, kernel in asked]
    rules = ["" if blocks == 1 else f"deeper{blocks}" for _, blocks, _ in asked]
    if alone:
        singles = [_single(folder, width, kernel) for width, kernel in product((8, 12, 16, 24, 32), (1, 3))]
        found += singles
        families += ["operator"] * len(singles)
        parents += [one.digest for one in singles]
        rules += [""] * len(singles)
    return Examples(
        graphs=tuple(found),
        seconds=np.array([seconds(one) for one in found]),
        runtimes=RUNTIMES,
        names=tuple(f"network{at}" for at in range(len(found))),
        families=tuple(families),
        parents=tuple(parents),
        rules=tuple(rules),
    )


def _single(folder: Path, width: int, kernel: int) -> Graph:
    build = Builder(width)
    return graph(build.model(build.conv("x", width, kernel)), folder)
