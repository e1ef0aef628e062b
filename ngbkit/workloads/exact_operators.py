"""Corrected operators of onnx's reference evaluator, for inference."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ngbkit.errors import UnsupportedError


@cache
def build_operators() -> tuple[type, ...]:
    """Build the ``new_ops`` of a `ReferenceEvaluator`.

    Up to onnx 1.23, GlobalMaxPool reduces the wrong axes unless its input is an image, and BatchNormalization of opsets
    7 to 13, which have no training mode, mixes the batch's statistics into the stored ones.
    """
    from onnx.reference.op_run import OpRun

    class GlobalMaxPool(OpRun):
        op_domain = ""

        def _run(self, x: Any) -> tuple[Any, ...]:
            return (np.max(x, axis=tuple(range(2, x.ndim)), keepdims=True),)

    class BatchNormalization(OpRun):
        op_domain = ""

        def _run(self, *inputs: Any, epsilon: float = 1e-5, training_mode: int = 0, **_: Any) -> tuple[Any, ...]:
            if training_mode:
                raise UnsupportedError("the file contains a BatchNormalization in training mode")
            x, *statistics = inputs
            shape = (-1, *[1] * (x.ndim - 2))
            scale, bias, mean, variance = (statistic.reshape(shape) for statistic in statistics)
            return (scale * (x - mean) / np.sqrt(variance + epsilon) + bias,)

    return (GlobalMaxPool, BatchNormalization)
