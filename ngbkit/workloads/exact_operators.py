"""Operators that onnx's reference evaluator gets wrong for a network that only infers, written anew."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ngbkit.errors import UnsupportedError


@cache
def corrected() -> tuple[type, ...]:
    """What to give a `ReferenceEvaluator` as ``new_ops``.

    Up to onnx 1.23, GlobalMaxPool reduces the wrong axes of anything but an image, and BatchNormalization of opsets 7
    to 13, which knows no training, mixes the statistics of the batch into those that are stored.
    """
    from onnx.reference.op_run import OpRun

    class GlobalMaxPool(OpRun):
        op_domain = ""

        def _run(self, x: Any) -> tuple[Any, ...]:
            return (np.max(x, axis=tuple(range(2, x.ndim)), keepdims=True),)

    class BatchNormalization(OpRun):
        op_domain = ""

        def _run(self, *given: Any, epsilon: float = 1e-5, training_mode: int = 0, **_: Any) -> tuple[Any, ...]:
            if training_mode:
                raise UnsupportedError("a BatchNormalization of the file is in training mode")
            x, *stored = given
            shape = (-1, *[1] * (x.ndim - 2))
            scale, bias, mean, variance = (one.reshape(shape) for one in stored)
            return (scale * (x - mean) / np.sqrt(variance + epsilon) + bias,)

    return (GlobalMaxPool, BatchNormalization)
