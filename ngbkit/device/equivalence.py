"""Equivalence of a compiled network: its root-mean-square error against a float64 run of the uncompiled network.

The scheme is that of PyTorch's ``benchmarks/dynamo`` (``same()``): a compiled output passes if its error is at most
`factor` times the error that the uncompiled float32 network itself makes, plus a tolerance. Here both are relative to
the reference's own root mean square, so that the scale of a network's outputs does not matter. Every output is judged
separately: an output that loses digits does not allow another to lose any.

An output of integers or booleans (labels, indices, masks) has no distance: 3 is no nearer to 4 than to 900. Its error
is the share of its elements that differ, and the same rule applies to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The error that a precision allows: ``error <= factor * baseline + absolute``, both relative to the reference."""

    factor: float
    absolute: float


# By the requested precision. 1e-4 is between the differences of float32 kernels with different summation order (1e-6 to
# 1e-5) and the errors of TF32 (5e-4) and bfloat16 (4e-3), so that a silently lowered precision is detected.
TOLERANCES = {
    "f32": Tolerance(factor=2.0, absolute=1e-4),
    # The factors of a product have 10 bits of mantissa.
    "tf32": Tolerance(factor=3.0, absolute=5e-3),
    "f16": Tolerance(factor=3.0, absolute=1e-2),
    "bf16": Tolerance(factor=3.0, absolute=5e-2),
}

#: An output with this relative error in the uncompiled network itself is the remainder of larger, cancelled numbers.
NOISE = 0.1
# Of such an output only the magnitude is comparable: another order of the same sums gives other noise.
_NOISE_FACTOR = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Result of a comparison with the reference."""

    # The largest relative error of any output.
    rmse: float
    # The largest absolute error of any element.
    max_abs_error: float
    # Why the outputs are not equivalent, or ``""``.
    problem: str = ""


def compare(
    outputs: Sequence[np.ndarray],
    reference: Sequence[np.ndarray],
    *,
    baseline_rmse: float | Sequence[float] = 0.0,
    precision: str = "f32",
) -> Check:
    """Compare `outputs`, an array each of shape ``(batch, …)``, with the `reference` of the first samples.

    The reference is float64, or integers or booleans if the network returns these; only the rows that both have are
    compared, whatever the batch. `baseline_rmse` is the uncompiled network's own relative error, of each output or of
    all; `precision` selects one of `TOLERANCES`.
    """
    if len(outputs) != len(reference):
        return _reject(f"got {len(outputs)} outputs; expected {len(reference)}")
    baselines = [baseline_rmse] * len(reference) if isinstance(baseline_rmse, (int, float)) else list(baseline_rmse)
    worst, largest, problem = 0.0, 0.0, ""
    for index, (output, expected, baseline) in enumerate(zip(outputs, reference, baselines, strict=True)):
        got, want = _select_common_rows(np.asarray(output), np.asarray(expected))
        if got.shape != want.shape:
            return _reject(f"output {index} has shape {np.shape(output)}; expected {np.shape(expected)}")
        finite = np.isfinite(want)
        if not np.isfinite(got[finite]).all():
            return _reject(f"output {index} is not finite where the reference is")
        if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
            return _reject(f"output {index} differs where the reference is infinite or not a number")
        error, abs_error = compute_relative_error(got, want)
        worst, largest = max(worst, error), max(largest, abs_error)
        limit = _compute_limit(TOLERANCES[precision], baseline)
        if error > limit and not problem:
            problem = f"output {index}: {_name_error(want)} {error:.3g} against the float64 reference; "
            problem += f"{precision} allows at most {limit:.3g}"
    return Check(rmse=worst, max_abs_error=largest, problem=problem)


def compute_relative_error(got: np.ndarray, want: np.ndarray) -> tuple[float, float]:
    """Compute the relative and the largest absolute error of an output, over the elements that are finite in `want`.

    The relative error is the RMSE over the root mean square of `want`, or the share of elements that differ if `want`
    has integers or booleans. The RMSE is absolute if `want` is zero, or smaller than any normal float32.
    """
    finite = np.isfinite(want)
    if not finite.any():
        return 0.0, 0.0
    kind = np.result_type(want.dtype, np.float64)
    expected, values = want[finite].astype(kind), got[finite].astype(np.result_type(got.dtype, np.float64))
    error = np.abs(values - expected)
    largest = float(np.max(error))
    if want.dtype.kind in "iub":
        return float(np.mean(got[finite] != want[finite])), largest
    scale, rmse = _compute_rms(np.abs(expected)), _compute_rms(error)
    return (rmse / scale if scale >= float(np.finfo(np.float32).tiny) else rmse), largest


def _compute_rms(magnitudes: np.ndarray) -> float:
    """Compute the root mean square, also of values whose squares overflow float64."""
    top = float(np.max(magnitudes))
    return top * float(np.sqrt(np.mean((magnitudes / top) ** 2))) if 0 < top < np.inf else top


def _compute_limit(tolerance: Tolerance, baseline: float) -> float:
    factor = tolerance.factor if baseline <= NOISE else _NOISE_FACTOR
    return factor * baseline + tolerance.absolute


def _name_error(want: np.ndarray) -> str:
    return "share of differing values" if want.dtype.kind in "iub" else "relative RMSE"


def _reject(problem: str) -> Check:
    return Check(rmse=np.inf, max_abs_error=np.inf, problem=problem)


def _select_common_rows(got: np.ndarray, want: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if got.ndim == 0 or want.ndim == 0 or got.shape == want.shape:
        return got, want
    rows = min(len(got), len(want))
    return got[:rows], want[:rows]
