"""The cost of a precision is measured over samples, and judged by the bounds that the user accepts."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tasks import build_task

from ngbkit.compilers.base import Program
from ngbkit.device import evaluation
from ngbkit.device.equivalence import EquivalenceCheck
from ngbkit.device.evaluation import Evaluation
from ngbkit.device.reference import Verdict
from ngbkit.sweep.records import Contract
from ngbkit.workloads.base import BATCH, TensorSpec

VALUES = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
FAR = Verdict(check=EquivalenceCheck(rmse=0.2, max_abs_error=0.2, problem="relative RMSE 0.2"))
COST = {"evaluated_samples": 50, "agreement": 0.98, "relative_error": 0.05, "sqnr": 26.0}


def measure(
    folder: Path, change: Any, batch_size: int = 2, labels: np.ndarray | None = None
) -> tuple[dict[str, Any], np.ndarray]:
    """Measure the cost of a program that changes its inputs; return it with the inputs that the program has then."""
    bound = np.ones((batch_size, 3), np.float32)

    def feed(arrays: Any) -> None:
        bound[...] = arrays[0]

    program = Program(
        run=lambda: [change(bound)], fetch=lambda outputs: outputs, contract=Contract(runtime="test"), feed=feed
    )
    inputs = [TensorSpec(name="x", shape=(BATCH, 3))]
    task = build_task(folder, inputs=inputs, arrays=[bound], batch_size=batch_size)
    is_labelled = labels is not None
    expected = Evaluation(folder=folder, count=len(VALUES), inputs={0: 0}, outputs={0: 0}, is_labelled=is_labelled)
    if labels is not None:
        expected.write_rows("target", 0, labels)
    expected.write_rows("input", 0, VALUES)
    expected.write_rows("output", 0, VALUES)
    expected.write()
    return evaluation.measure(program, evaluation.read(folder), task, 0, {}), bound


def test_the_cost_is_over_all_samples(tmp_path: Path) -> None:
    """An output that is 1 % too large costs 40 dB and no answer at any batch size, and inputs are then restored."""
    costs = [measure(tmp_path, lambda array: array * 1.01, batch_size) for batch_size in (1, 2, 4)]

    for cost, bound in costs:
        assert (7, 1.0) == (cost["evaluated_samples"], cost["agreement"])
        np.testing.assert_allclose([0.01, 40.0], [cost["relative_error"], cost["sqnr"]], rtol=1e-3)
        assert (bound == 1).all()


def test_another_answer_is_no_agreement(tmp_path: Path) -> None:
    """An output in reverse order agrees where the middle answer is the largest."""
    cost, _ = measure(tmp_path, lambda array: array[:, ::-1])

    assert float(np.mean(VALUES.argmax(1) == 1)) == cost["agreement"]


def test_an_overflow_is_counted(tmp_path: Path) -> None:
    """Samples whose outputs are not finite make a lower precision fail, whatever the bounds."""
    cost, _ = measure(tmp_path, lambda array: np.where(array > 1.2, np.inf, array))
    verdict = evaluation.judge(FAR, cost, "f16", ["agreement>=0.1"])

    assert int((VALUES > 1.2).any(1).sum()) == cost["not_finite"]
    assert f"f16 overflows: the outputs for {cost['not_finite']} of 7 samples" in verdict.check.problem


@pytest.mark.parametrize(
    ("precision", "bounds", "problem", "unchecked"),
    [
        ("f32", ["agreement>=0.9"], "relative RMSE 0.2", ""),
        ("bf16", [], "relative RMSE 0.2", ""),
        ("bf16", ["agreement>=0.97"], "", ""),
        ("int8", ["agreement>=0.97", "sqnr>=20"], "", ""),
        ("int8", ["agreement>=0.97", "sqnr>=30"], "sqnr 26 over 50 samples", ""),
        ("int8", [], "", "int8 is not judged without --accept"),
    ],
)
def test_a_lower_precision_is_judged_by_what_the_user_accepts(
    precision: str, bounds: list[str], problem: str, unchecked: str
) -> None:
    """Bounds replace the tolerance of rounding in a lower precision, and int8 has no other judge."""
    verdict = evaluation.judge(FAR, COST, precision, bounds)

    assert (problem in verdict.check.problem, bool(problem)) == (True, bool(verdict.check.problem))
    assert (unchecked in verdict.unchecked, bool(unchecked)) == (True, bool(verdict.unchecked))


LIKE = Verdict(check=EquivalenceCheck(rmse=1e-6, max_abs_error=1e-6))
REFERRED = {"reference": "original.onnx"}


@pytest.mark.parametrize(
    ("cost", "bounds", "problem"),
    [
        (COST, [], ""),
        (COST, ["agreement>=0.97"], ""),
        (COST, ["sqnr>=30"], "sqnr 26 over 50 samples, against original.onnx; accepted: sqnr>=30"),
        (
            {"evaluated_samples": 50, "not_finite": 2},
            ["sqnr>=30"],
            "the outputs for 2 of 50 samples are not finite where original.onnx's own are",
        ),
    ],
)
def test_bounds_judge_what_a_quantised_network_costs(cost: dict[str, Any], bounds: list[str], problem: str) -> None:
    """A column in the network's own precision is judged by its cost against the original, if there is one."""
    verdict = evaluation.judge(LIKE, {**cost, **REFERRED}, "f32", bounds)

    assert problem == verdict.check.problem
    assert LIKE == evaluation.judge(LIKE, cost, "f32", bounds)


def test_another_answer_than_the_networks_own_fails_whatever_the_original_answers() -> None:
    """The check against the network itself comes first, and a cost that was not measured is no pass."""
    unmeasured = {**REFERRED, "cost_problem": "its samples are drawn"}
    unchecked = evaluation.judge(LIKE, unmeasured, "f32", ["sqnr>=1"]).unchecked

    assert FAR == evaluation.judge(FAR, {**COST, **REFERRED}, "f32", ["sqnr>=1"])
    assert "it is not compared with original.onnx: its samples are drawn" == unchecked


def test_zeros_are_no_cost_of_a_precision() -> None:
    """An error of half of the outputs or more is another answer, also where no bound judges it."""
    check = EquivalenceCheck(rmse=1.0, max_abs_error=9.0, problem="output 0: relative RMSE 1")
    verdict = evaluation.judge(Verdict(check=check), {}, "int8", [])

    assert "output 0: relative RMSE 1; no rounding to int8 explains that" == verdict.check.problem


def test_ranges_of_samples_need_not_suit_noise() -> None:
    """The samples decide whether int8 is another answer, where there are some, and not the noise of the check."""
    check = EquivalenceCheck(rmse=1.4, max_abs_error=9.0, problem="output 0: relative RMSE 1.4")
    near, far = (
        evaluation.judge(Verdict(check=check), {**COST, "relative_error": error}, "int8", []) for error in (0.05, 0.7)
    )

    assert ("", True) == (near.check.problem, near.unchecked.startswith("int8 is not judged without --accept"))
    assert "relative error 0.7 for the samples; no rounding to int8 explains that" == far.check.problem


def test_labels_tell_which_samples_are_right(tmp_path: Path) -> None:
    """The accuracy is by labels, and the bits of single samples are in their order."""
    labels = VALUES.argmax(1)
    labels[2] = (labels[2] + 1) % 3
    cost, _ = measure(tmp_path, lambda array: array, labels=labels)

    assert 6 / 7 == cost["accuracy"]
    bits = np.unpackbits(np.frombuffer(base64.b64decode(cost["correct"]), np.uint8), count=7)
    assert [1, 1, 0, 1, 1, 1, 1] == bits.tolist()


def test_other_shapes_fail_whatever_is_accepted() -> None:
    """Outputs that cannot be compared fail in any precision."""
    wrong = Verdict(check=EquivalenceCheck(rmse=np.inf, max_abs_error=np.inf, problem="output 0 has shape (1,)"))

    assert wrong == evaluation.judge(wrong, COST, "int8", ["agreement>=0.1"])
