"""Is the compiled output the same function? Root-mean-square error against a float64 run of the uncompiled network.

The scheme is that of PyTorch's ``benchmarks/dynamo`` (``same()``): a compiled output passes if its error is at most
`factor` times the error that the uncompiled float32 network itself makes, plus a tolerance. Here both are relative to
the reference's own root mean square, so that the scale of a network's outputs does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """What a precision may cost: ``rmse <= factor * baseline_rmse + absolute``, both relative to the reference."""

    factor: float
    absolute: float


# By the precision that the user asked for. 1e-4 lies between what float32 kernels of different summation order differ
# by (1e-6 to 1e-5) and what TF32 (5e-4) and bfloat16 (4e-3) cost, so that a precision lowered in silence is seen.
TOLERANCES = {
    "f32": Tolerance(factor=2.0, absolute=1e-4),
    "f16": Tolerance(factor=3.0, absolute=1e-2),
    "bf16": Tolerance(factor=3.0, absolute=5e-2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How far outputs are from the reference.

    Parameters
    ----------
    rmse
        Of the worst output, relative to that output's reference.
    max_abs_error
        The largest absolute error of any element.
    problem
        Why the outputs are not equivalent, or ``""``.
    """

    rmse: float
    max_abs_error: float
    problem: str = ""


def compare(
    outputs: Sequence[np.ndarray],
    reference: Sequence[np.ndarray],
    *,
    baseline_rmse: float = 0.0,
    precision: str = "f32",
) -> Check:
    """Hold `outputs` against the `reference`.

    Parameters
    ----------
    outputs
        What the compiled network gave, one array an output, of shape ``(batch, …)``.
    reference
        What it should give for the first samples, one float64 array an output, of shape ``(rows, …)``. The rows that
        both have are compared, whatever the batch.
    baseline_rmse
        The relative error that the uncompiled network itself makes.
    precision
        Which tolerance applies, one of `TOLERANCES`.
    """
    if len(outputs) != len(reference):
        return Check(
            rmse=np.inf, max_abs_error=np.inf, problem=f"{len(outputs)} outputs came, {len(reference)} were expected"
        )
    worst, largest = 0.0, 0.0
    for index, (output, expected) in enumerate(zip(outputs, reference, strict=True)):
        got, want = _same_rows(np.asarray(output), np.asarray(expected))
        if got.shape != want.shape:
            problem = f"output {index} has shape {np.shape(output)}, which does not go with {np.shape(expected)}"
            return Check(rmse=np.inf, max_abs_error=np.inf, problem=problem)
        if not np.array_equal(np.isfinite(got), np.isfinite(want)):
            return Check(
                rmse=np.inf, max_abs_error=np.inf, problem=f"output {index} is not finite where the reference is"
            )
        rmse, error = relative_rmse(got, want)
        worst, largest = max(worst, rmse), max(largest, error)
    tolerance = TOLERANCES[precision]
    limit = tolerance.factor * baseline_rmse + tolerance.absolute
    if worst <= limit:
        return Check(rmse=worst, max_abs_error=largest)
    problem = f"relative RMSE {worst:.3g} against the float64 reference; at most {limit:.3g} is {precision}"
    return Check(rmse=worst, max_abs_error=largest, problem=problem)


def relative_rmse(got: np.ndarray, want: np.ndarray) -> tuple[float, float]:
    """The RMSE of `got` over the root mean square of `want`, and the largest absolute error, over finite elements."""
    finite = np.isfinite(want)
    expected = want[finite].astype(np.float64)
    if not expected.size:
        return 0.0, 0.0
    error = got[finite].astype(np.float64) - expected
    scale = float(np.sqrt(np.mean(expected**2)))
    rmse = float(np.sqrt(np.mean(error**2)))
    return (rmse / scale if scale else rmse), float(np.max(np.abs(error)))


def _same_rows(got: np.ndarray, want: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if got.ndim == 0 or want.ndim == 0 or got.shape == want.shape:
        return got, want
    rows = min(len(got), len(want))
    return got[:rows], want[:rows]
