"""The outputs of runtimes that are no tensors: sequences and maps, as arrays that can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ngbkit.workloads.feeds import is_floating


def to_arrays(output: Any) -> list[np.ndarray]:
    """Convert an output to arrays: each tensor of a sequence, and the values of a map in the order of its keys.

    A sequence of maps with the same keys, as of a classifier that gives each label a probability, is one array with a
    row a map. A missing optional output is no array.
    """
    if output is None:
        return []
    if isinstance(output, Mapping):
        return [np.asarray([output[key] for key in sorted(output)])]
    if isinstance(output, (list, tuple)):
        if output and all(isinstance(member, Mapping) and member.keys() == output[0].keys() for member in output):
            return [np.asarray([[member[key] for key in sorted(member)] for member in output])]
        return [array for member in output for array in to_arrays(member)]
    array = np.asarray(output)
    if array.dtype.kind in "US":
        return [array.astype(object)]
    if array.dtype.kind == "V":  # of ml_dtypes
        return [array.astype(np.float64 if is_floating(array.dtype) else np.int64)]
    return [array]
