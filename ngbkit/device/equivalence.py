"""Equivalence of a compiled network: its root-mean-square error against a float64 run of the uncompiled network.

The scheme is that of PyTorch's ``benchmarks/dynamo`` (``same()``): a compiled output passes if its error is at most
`factor` times the error that the uncompiled network itself makes by rounding, plus a tolerance. Here both are relative
to the reference's own root mean square, so that the scale of a network's outputs does not matter. Every output is
judged separately: an output that loses digits does not allow another to lose any.

An output of integers, booleans or text (labels, indices, masks) has no distance: 3 is no nearer to 4 than to 900. Its
error is the share of its elements that differ, and the same rule applies to it.

A check may be void: an output of zeros passes where the reference is zero, and that of other inputs where the outputs
hardly depend on them. So each check is itself checked, with outputs that are wrong (`find_void`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Axes = Sequence[int | None]
"""The dimension of the samples of each output; None for an output that is compared whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The error that a precision allows: ``error <= factor * baseline + absolute``, both relative to the reference."""

    factor: float
    absolute: float


# By precision, of the network's own body or requested. 1e-4 is between the differences of float32 kernels with
# different summation order (1e-6 to 1e-5) and the errors of TF32 (5e-4) and bfloat16 (4e-3), so that a silently lowered
# precision is detected.
TOLERANCES = {
    "int": Tolerance(factor=2.0, absolute=1e-4),
    "f64": Tolerance(factor=2.0, absolute=1e-4),
    "f32": Tolerance(factor=2.0, absolute=1e-4),
    # The factors of a product have 10 bits of mantissa.
    "tf32": Tolerance(factor=3.0, absolute=5e-3),
    # Another rounding before a quantisation moves a value by one step of 256.
    "q8": Tolerance(factor=3.0, absolute=1e-2),
    "f16": Tolerance(factor=3.0, absolute=1e-2),
    "bf16": Tolerance(factor=3.0, absolute=4e-2),
}

#: An output with this relative error in the uncompiled network itself is the remainder of larger, cancelled numbers.
NOISE = 0.1
# Of such an output only the magnitude is comparable: another order of the same sums gives other noise.
_NOISE_FACTOR = 10.0
# No rounding hides an error of 5 %, unless the network itself rounds as coarsely.
_MOST, _MOST_FACTOR = 0.045, 1.5
# A wrong output that is too large by this factor must be detected.
SCALE = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivalenceCheck:
    """Result of a comparison with the reference."""

    # The largest relative error of any output.
    rmse: float
    # The largest absolute error of any element.
    max_abs_error: float
    # Why the outputs are not equivalent, or ``""``.
    problem: str = ""


def choose_precision(body: str, requested: str) -> str:
    """Choose the coarser of the precision of a network's body and the one that was requested of its compiler."""
    return max((body, requested), key=lambda name: TOLERANCES[name].absolute)


def choose_tolerance(requested: str) -> str:
    """Choose the precision whose tolerance a requested one has: as that of int8, unless it has its own."""
    return requested if requested in TOLERANCES else "q8"


def compare(
    outputs: Sequence[np.ndarray],
    reference: Sequence[np.ndarray],
    *,
    baseline_rmse: float | Sequence[float] = 0.0,
    precision: str = "f32",
    axes: Axes | None = None,
    scales: Sequence[float] | None = None,
) -> EquivalenceCheck:
    """Compare `outputs` with the `reference`.

    The reference is float64, or integers, booleans or text if the network returns these. Along the axis of the samples,
    by default the first of every output, only those that both have are compared, whatever the batch. `baseline_rmse` is
    the uncompiled network's own relative error, of each output or of all; `precision` selects one of `TOLERANCES`;
    `scales` are the least magnitudes to which errors are relative: a single sample may be almost zero by chance.
    """
    if len(outputs) != len(reference):
        return _reject(f"got {len(outputs)} outputs; expected {len(reference)}")
    baselines = [baseline_rmse] * len(reference) if isinstance(baseline_rmse, (int, float)) else list(baseline_rmse)
    axes = [0] * len(reference) if axes is None else axes
    scales = [0.0] * len(reference) if scales is None else scales
    worst, largest, problem = 0.0, 0.0, ""
    for index, (output, expected, baseline, axis, scale) in enumerate(
        zip(outputs, reference, baselines, axes, scales, strict=True)
    ):
        got, want = select_common_rows(np.asarray(output), np.asarray(expected), axis)
        if got.shape != want.shape:
            return _reject(f"output {index} has shape {np.shape(output)}; expected {np.shape(expected)}")
        if (got.dtype.kind in _TEXT) != (want.dtype.kind in _TEXT):
            return _reject(f"output {index} has dtype {got.dtype}; expected {want.dtype}")
        if want.dtype.kind not in _TEXT:
            finite = np.isfinite(want)
            if not np.isfinite(got[finite]).all():
                return _reject(f"output {index} is not finite where the reference is")
            if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
                return _reject(f"output {index} differs where the reference is infinite or not a number")
        error, abs_error = compute_relative_error(got, want, scale)
        worst, largest = max(worst, error), max(largest, abs_error)
        limit = _compute_limit(TOLERANCES[precision], baseline)
        if error > limit and not problem:
            quantity = "share of differing values" if want.dtype.kind in f"iub{_TEXT}" else "relative RMSE"
            problem = f"output {index}: {quantity} {error:.3g} against the reference; "
            problem += f"{precision} allows at most {limit:.3g}"
    return EquivalenceCheck(rmse=worst, max_abs_error=largest, problem=problem)


def find_void(
    reference: Sequence[np.ndarray],
    others: Sequence[np.ndarray],
    *,
    baseline_rmse: float | Sequence[float] = 0.0,
    precision: str = "f32",
    axes: Axes | None = None,
) -> str:
    """Return which wrong outputs the check would accept in place of the reference, or ``""``.

    Wrong are zeros, outputs that are 5 % too large, the samples in another order, and the outputs for `others`: other
    inputs, of another seed. A network for whose samples the outputs are the same has them in no other order.
    """
    if not any(array.size for array in reference):
        return "any outputs without an element"
    axes = [0] * len(reference) if axes is None else axes
    reversed_rows = [np.asarray(_flip(array, axis)) for array, axis in zip(reference, axes, strict=True)]
    is_ordered = any(not _is_same(array, other) for array, other in zip(reference, reversed_rows, strict=True))
    has_numbers = any(array.dtype.kind not in _TEXT for array in reference)
    wrong = {
        "outputs of zeros": [np.full_like(array, "" if array.dtype.kind in _TEXT else 0) for array in reference],
        **({"outputs that are 5 % too large": list(map(_scale, reference))} if has_numbers else {}),
        **({"the outputs of its samples in another order": reversed_rows} if is_ordered else {}),
        **({"the outputs for other inputs": list(others)} if others else {}),
    }
    accepted = [
        name
        for name, outputs in wrong.items()
        if not compare(outputs, reference, baseline_rmse=baseline_rmse, precision=precision, axes=axes).problem
    ]
    return " and ".join(accepted)


def compute_relative_error(got: np.ndarray, want: np.ndarray, least: float = 0.0) -> tuple[float, float]:
    """Compute the relative and the largest absolute error of an output, over the elements that are finite in `want`.

    The relative error is the RMSE over the root mean square of `want`, at `least` that, or the share of elements that
    differ if `want` has integers, booleans or text. The RMSE is absolute if `want` is zero, or smaller than any normal
    float32.
    """
    if want.dtype.kind in _TEXT:
        share = float(np.mean(got != want)) if want.size else 0.0
        return share, share
    finite = np.isfinite(want)
    if not finite.any():
        return 0.0, 0.0
    kind = np.result_type(want.dtype, np.float64)
    expected, values = want[finite].astype(kind), got[finite].astype(np.result_type(got.dtype, np.float64))
    error = np.abs(values - expected)
    largest = float(np.max(error))
    if want.dtype.kind in "iub":
        return float(np.mean(got[finite] != want[finite])), largest
    scale, rmse = max(least, _compute_rms(np.abs(expected))), _compute_rms(error)
    return (rmse / scale if scale >= float(np.finfo(np.float32).tiny) else rmse), largest


def compute_scale(outputs: Sequence[np.ndarray]) -> float:
    """Compute the root mean square of the finite numbers of arrays; 0 of others."""
    numbers = [array[np.isfinite(array)] for array in outputs if array.dtype.kind in "fc"]
    values = np.concatenate([np.abs(array).ravel().astype(np.float64) for array in numbers]) if numbers else np.empty(0)
    return _compute_rms(values) if values.size else 0.0


def select_common_rows(got: np.ndarray, want: np.ndarray, axis: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Select the samples that both arrays have, along an axis."""
    if axis is None or got.ndim != want.ndim or got.ndim <= axis or got.shape == want.shape:
        return got, want
    rows = range(min(got.shape[axis], want.shape[axis]))
    return got.take(rows, axis), want.take(rows, axis)


# The kinds of dtypes whose elements are text.
_TEXT = "OUST"


def _compute_rms(magnitudes: np.ndarray) -> float:
    """Compute the root mean square, also of values whose squares overflow float64."""
    top = float(np.max(magnitudes))
    return top * float(np.sqrt(np.mean((magnitudes / top) ** 2))) if 0 < top < np.inf else top


def _compute_limit(tolerance: Tolerance, baseline: float) -> float:
    if baseline > NOISE:
        return _NOISE_FACTOR * baseline + tolerance.absolute
    return min(tolerance.factor * baseline + tolerance.absolute, max(_MOST, _MOST_FACTOR * baseline))


def _reject(problem: str) -> EquivalenceCheck:
    return EquivalenceCheck(rmse=np.inf, max_abs_error=np.inf, problem=problem)


def _flip(array: np.ndarray, axis: int | None) -> np.ndarray:
    return array if axis is None or array.ndim <= axis else np.flip(array, axis)


def _scale(array: np.ndarray) -> np.ndarray:
    return array if array.dtype.kind in _TEXT else array * SCALE


def _is_same(first: np.ndarray, second: np.ndarray) -> bool:
    return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
