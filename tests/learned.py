"""Builds examples whose seconds follow from their graphs by a rule, for the tests of models."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from onnxgraphs import Builder, residual, write

from ngbkit.predict import Examples, Graph, read

RUNTIMES = (("cpu", "openvino"), ("cpu", "onnxruntime"))


def graph(model: Any, folder: Path, batch_size: int = 1) -> Graph:
    """Read a model as a graph."""
    return read(write(model, folder / "model.onnx"), batch_size)


def compute_seconds(graph_: Graph) -> list[float]:
    """Return the seconds of both runtimes: the first costs operations and operators; the second costs more per byte."""
    operations, moved = (
        sum(operator.macs or 0 for operator in graph_.operators),
        sum(operator.bytes for operator in graph_.operators),
    )
    return [1e-5 + 1e-10 * operations + 3e-6 * len(graph_.operators), 1e-5 + 5e-11 * operations + 2e-10 * moved]


def compute_operator_seconds(graph_: Graph) -> np.ndarray:
    """Return the part of each operator in the seconds of both runtimes: their sums are `compute_seconds`."""
    share = 1e-5 / len(graph_.operators)
    return np.array(
        [
            [share + 1e-10 * (operator.macs or 0) + 3e-6, share + 5e-11 * (operator.macs or 0) + 2e-10 * operator.bytes]
            for operator in graph_.operators
        ]
    )


def build_examples(folder: Path, *, alone: bool = False) -> Examples:
    """Build stacks of blocks of several widths, depths and kernels; with `alone`, their single operators too."""
    shapes = list(product((8, 12, 16, 24, 32), (1, 2, 3, 4), (1, 3)))
    graphs = [read(residual(folder, width, blocks, kernel)) for width, blocks, kernel in shapes]
    families = [f"width{width}" for width, _, _ in shapes]
    parents = [f"{width}x{kernel}" for width, _, kernel in shapes]
    rules = ["" if blocks == 1 else f"deeper{blocks}" for _, blocks, _ in shapes]
    if alone:
        singles = [_build_single(folder, width, kernel) for width, kernel in product((8, 12, 16, 24, 32), (1, 3))]
        graphs += singles
        families += ["operator"] * len(singles)
        parents += [graph_.digest for graph_ in singles]
        rules += [""] * len(singles)
    return Examples(
        graphs=tuple(graphs),
        seconds=np.array([compute_seconds(graph_) for graph_ in graphs]),
        runtimes=RUNTIMES,
        names=tuple(f"network{index}" for index in range(len(graphs))),
        families=tuple(families),
        parents=tuple(parents),
        rules=tuple(rules),
        operator_seconds=tuple(map(compute_operator_seconds, graphs)),
    )


def _build_single(folder: Path, width: int, kernel: int) -> Graph:
    build = Builder(width)
    return graph(build.model(build.conv("x", width, kernel)), folder)
