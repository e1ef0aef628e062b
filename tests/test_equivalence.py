"""Equivalence: a fast wrong answer is seen, float32 in another order is not an error."""

from __future__ import annotations

import numpy as np
import pytest

from ngbkit.equivalence import TOLERANCES, compare

REFERENCE = [np.random.default_rng(0).standard_normal((2, 50)), np.random.default_rng(1).standard_normal((2, 3, 4))]


def noisy(relative: float) -> list[np.ndarray]:
    generator = np.random.default_rng(2)
    return [(array * (1 + relative * generator.choice([-1, 1], array.shape))).astype(np.float32) for array in REFERENCE]


def test_the_same_function_passes_with_its_error_told() -> None:
    """Single precision costs about 1e-7."""
    check = compare(noisy(0), REFERENCE)

    assert "" == check.problem
    assert 0 < check.rmse < 1e-6
    assert 0 < check.max_abs_error < 1e-5


@pytest.mark.parametrize(("precision", "error"), [("f32", 1e-3), ("f16", 3e-2), ("bf16", 0.2)])
def test_an_error_above_what_its_precision_costs_is_a_problem(precision: str, error: float) -> None:
    """And half of what is allowed is none."""
    allowed = TOLERANCES[precision].absolute / 2

    assert "relative RMSE" in compare(noisy(error), REFERENCE, precision=precision).problem
    assert "" == compare(noisy(allowed), REFERENCE, precision=precision).problem


def test_a_lowered_precision_does_not_pass_for_single() -> None:
    """bfloat16 costs some 4e-3, TF32 some 5e-4: neither is f32."""
    assert compare(noisy(4e-3), REFERENCE).problem
    assert compare(noisy(5e-4), REFERENCE).problem


def test_what_the_baseline_itself_gets_wrong_is_allowed_for() -> None:
    """A network that loses digits in float32 does so in any compiler."""
    assert compare(noisy(1e-2), REFERENCE).problem
    assert "" == compare(noisy(1e-2), REFERENCE, baseline_rmse=1e-2).problem


def test_every_output_counts() -> None:
    """One wrong output of several is enough."""
    good = noisy(0)

    assert compare([good[0], good[1] * 1.01], REFERENCE).problem
    assert compare([good[0] * 1.01, good[1]], REFERENCE).problem


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ([REFERENCE[0]], "1 outputs came, 2 were expected"),
        ([REFERENCE[1], REFERENCE[0]], "output 0 has shape"),
        ([REFERENCE[0], REFERENCE[1] * np.nan], "output 1 is not finite where the reference is"),
    ],
)
def test_outputs_of_another_form_are_a_problem(outputs: list[np.ndarray], text: str) -> None:
    """Missing, swapped, or not numbers."""
    assert text in compare(outputs, REFERENCE).problem


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_the_rows_that_both_have_are_compared(batch: int) -> None:
    """One or two samples are enough, whatever the batch."""
    good = [np.concatenate([array] * 4)[:batch] for array in noisy(0)]
    bad = [array.copy() for array in good]
    bad[1][0] *= 1.01

    assert "" == compare(good, REFERENCE).problem
    assert compare(bad, REFERENCE).problem
