"""Is the compiled output the same function? Root-mean-square error against a float64 run of the uncompiled network.

The scheme is that of PyTorch's ``benchmarks/dynamo`` (``same()``): a compiled output passes if its error is at most
`factor` times the error that the uncompiled float32 network itself makes, plus a tolerance. Here both are relative to
the reference's own root mean square, so that the scale of a network's outputs does not matter. Every output is judged
by itself: one that loses digits does not make room for another that should lose none.

An output of integers or booleans (labels, indices, masks) has no distance: 3 is no nearer to 4 than to 900. Its error
is the share of its elements that differ, and the same rule holds for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """What a precision may cost: ``error <= factor * baseline + absolute``, both relative to the reference."""

    factor: float
    absolute: float


# By the precision that the user asked for. 1e-4 lies between what float32 kernels of different summation order differ
# by (1e-6 to 1e-5) and what TF32 (5e-4) and bfloat16 (4e-3) cost, so that a precision lowered in silence is seen.
TOLERANCES = {
    "f32": Tolerance(factor=2.0, absolute=1e-4),
    # Factors of products keep 10 bits of mantissa.
    "tf32": Tolerance(factor=3.0, absolute=5e-3),
    "f16": Tolerance(factor=3.0, absolute=1e-2),
    "bf16": Tolerance(factor=3.0, absolute=5e-2),
}

#: An output that the uncompiled network itself gets this wrong is what is left where larger numbers cancel.
NOISE = 0.1
# Of such an output only the magnitude can be held against a compiler: another order of the same sums is other noise.
_NOISE_FACTOR = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How far outputs are from the reference.

    Parameters
    ----------
    rmse
        The largest `relative_error` of any output.
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
    baseline_rmse: float | Sequence[float] = 0.0,
    precision: str = "f32",
) -> Check:
    """Hold `outputs` against the `reference`.

    Parameters
    ----------
    outputs
        What the compiled network gave, one array an output, of shape ``(batch, …)``.
    reference
        What it should give for the first samples, one array an output, of shape ``(rows, …)``: float64, or integers or
        booleans where the network returns these. The rows that both have are compared, whatever the batch.
    baseline_rmse
        The relative error that the uncompiled network itself makes: of each output, or one for all.
    precision
        Which tolerance applies, one of `TOLERANCES`.
    """
    if len(outputs) != len(reference):
        return _unlike(f"{len(outputs)} outputs came, {len(reference)} were expected")
    own = [baseline_rmse] * len(reference) if isinstance(baseline_rmse, (int, float)) else list(baseline_rmse)
    worst, largest, problem = 0.0, 0.0, ""
    for index, (output, expected, baseline) in enumerate(zip(outputs, reference, own, strict=True)):
        got, want = _same_rows(np.asarray(output), np.asarray(expected))
        if got.shape != want.shape:
            return _unlike(f"output {index} has shape {np.shape(output)}, which does not go with {np.shape(expected)}")
        finite = np.isfinite(want)
        if not np.isfinite(got[finite]).all():
            return _unlike(f"output {index} is not finite where the reference is")
        if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
            return _unlike(f"output {index} differs where the reference is infinite or not a number")
        error, furthest = relative_error(got, want)
        worst, largest = max(worst, error), max(largest, furthest)
        limit = _limit(TOLERANCES[precision], baseline)
        if error > limit and not problem:
            problem = f"output {index}: {_measure(want)} {error:.3g} against the float64 reference; "
            problem += f"at most {limit:.3g} is {precision}"
    return Check(rmse=worst, max_abs_error=largest, problem=problem)


def relative_error(got: np.ndarray, want: np.ndarray) -> tuple[float, float]:
    """How far an output is from what it should be, over the elements that are finite there.

    Returns
    -------
    tuple
        The RMSE of `got` over the root mean square of `want`, or, where `want` is of integers or booleans, the share of
        elements that differ; and the largest absolute error. Where `want` is zero, or smaller than any normal float32,
        there is nothing to divide by: the RMSE is absolute.
    """
    finite = np.isfinite(want)
    if not finite.any():
        return 0.0, 0.0
    kind = np.result_type(want.dtype, np.float64)
    expected, found = want[finite].astype(kind), got[finite].astype(np.result_type(got.dtype, np.float64))
    error = np.abs(found - expected)
    largest = float(np.max(error))
    if want.dtype.kind in "iub":
        return float(np.mean(got[finite] != want[finite])), largest
    scale, rmse = _rms(np.abs(expected)), _rms(error)
    return (rmse / scale if scale >= float(np.finfo(np.float32).tiny) else rmse), largest


def _rms(magnitudes: np.ndarray) -> float:
    """Root mean square, also of values whose squares float64 cannot hold."""
    top = float(np.max(magnitudes))
    return top * float(np.sqrt(np.mean((magnitudes / top) ** 2))) if 0 < top < np.inf else top


def _limit(tolerance: Tolerance, baseline: float) -> float:
    factor = tolerance.factor if baseline <= NOISE else _NOISE_FACTOR
    return factor * baseline + tolerance.absolute


def _measure(want: np.ndarray) -> str:
    return "share of other values" if want.dtype.kind in "iub" else "relative RMSE"


def _unlike(problem: str) -> Check:
    return Check(rmse=np.inf, max_abs_error=np.inf, problem=problem)


def _same_rows(got: np.ndarray, want: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if got.ndim == 0 or want.ndim == 0 or got.shape == want.shape:
        return got, want
    rows = min(len(got), len(want))
    return got[:rows], want[:rows]
