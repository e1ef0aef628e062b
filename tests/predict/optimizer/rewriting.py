"""Models and a cost for the tests of rewritings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnxgraphs import Builder

from ngbkit.predict import Graph
from ngbkit.predict.optimizer.editing import open_model


def build_model(build: Builder) -> ir.Model:
    """Build the model of a network at batch size 1, open for rewriting."""
    proto = build.model()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return open_model(ir.from_proto(onnx.shape_inference.infer_shapes(proto)))


def count_calls(graphs: Sequence[Graph]) -> np.ndarray:
    """Cost one per operator."""
    return np.array([float(len(graph.operators)) for graph in graphs])
