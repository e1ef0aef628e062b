"""Two sides of a gate that took turns: verdicts of known truth, and what weakens them."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic_records import QUIET, ROUNDS, build_network, build_record, measure_sides

from ngbkit.api import build_gate_sweep
from ngbkit.dataset.assembly import assemble
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.metrics.gates.sides import judge_sides, name_sides
from ngbkit.sweep.records import Failure


def verdicts(data: Data, margin: float | str = 0.02) -> list[str]:
    verdict: list[str] = judge_sides(data, margin).trials["verdict"].tolist()
    return verdict


def test_a_planted_slowdown_is_found_round_by_round() -> None:
    """The gate finds a slowdown of 5 % among rounds that drift by 30 %."""
    gate = judge_sides(measure_sides(1.05))
    (row,) = gate.trials.to_dict("records")

    assert ("net", "cpu", "onnxruntime", 1) == tuple(
        row[key] for key in ("workload", "device", "compiler", "batch_size")
    )
    assert "slower" == row["verdict"]
    assert row["slowdown"] == pytest.approx(1.05, abs=0.01)
    assert row["low"] < row["slowdown"] < row["high"]
    assert row["after"] / row["before"] == pytest.approx(1.05, abs=0.02)
    assert "latency, measured in turns" == gate.compared
    assert () == gate.warnings


def test_two_releases_of_a_compiler_are_the_sides_of_a_gate() -> None:
    """The first column is the earlier side; a compiler that has one column has no sides."""
    labels = ("onnxruntime@1.22.1", "onnxruntime@1.23.2")
    sweep = build_gate_sweep(build_network("net"), compilers=labels, repeats=ROUNDS)
    generator = np.random.default_rng(0)
    common = np.exp(generator.normal(0, 0.3, ROUNDS))
    slowdowns = dict(zip(labels, (1.0, 1.05), strict=True))
    records = [
        build_record(trial, common * np.exp(generator.normal(0, 0.01, ROUNDS)) * slowdowns[trial.compiler], 7)
        for trial in sweep.trials()
    ]
    gate = judge_sides(assemble(sweep, records, environments=QUIET, run_id="1"))
    (row,) = gate.trials.to_dict("records")

    assert ("net", "onnxruntime@1.22.1 to onnxruntime@1.23.2") == (row["workload"], row["compiler"])
    assert "slower" == row["verdict"]
    assert row["slowdown"] == pytest.approx(1.05, abs=0.01)
    assert "latency, measured in turns" == gate.compared
    with pytest.raises(UsageError, match="expected two sides, or two columns of one compiler"):
        build_gate_sweep(build_network("net"), compilers=["onnxruntime@1.22.1", "openvino"])


def test_alarms_and_misses_of_many_gates_are_rare() -> None:
    """Few of 20 gates have a false alarm, and few miss a planted slowdown of 5 %."""
    compilers = ("onnxruntime", "openvino")
    unchanged = [verdicts(measure_sides(1.0, compilers=compilers, seed=seed), 0.0) for seed in range(20)]
    planted = [verdicts(measure_sides(1.05, compilers=compilers, seed=seed)) for seed in range(20)]

    assert sum("slower" in gate for gate in unchanged) <= 3  # more than 3 of 20 are as rare as 2 %, at 5 % each
    assert sum("slower" in gate for gate in planted) >= 19


def test_two_processes_of_one_program_may_differ() -> None:
    """A difference within that of processes is not conclusive if there is no self-check."""
    exact = measure_sides(1.007, noise=1e-4)
    unchecked = measure_sides(1.007, noise=1e-4, environments={})

    assert ["slower"] == verdicts(exact, 0.0)
    assert ["not conclusive"] == verdicts(unchecked, 0.0)


def test_a_virtual_machine_does_not_widen_a_gate() -> None:
    """The gate of a virtual machine has no allowance for its host, as both sides are one program."""
    hosted = {"cpu": {"conditions": {"virtual_machine": True}}}

    assert ["slower"] == verdicts(measure_sides(1.05, environments=hosted))


def test_sides_that_took_no_turns_are_wider_and_say_so() -> None:
    """Sides without common rounds have wider intervals and a warning."""
    gate = judge_sides(measure_sides(1.04, drift=0.0, bundles=(7, 8)))

    assert ["not conclusive"] == gate.trials["verdict"].tolist()
    assert "some trials did not take turns" in gate.warnings[0]
    assert "latency" == gate.compared
    assert ["slower"] == verdicts(measure_sides(1.5, drift=0.0, bundles=(7, 8)))


def test_a_rule_that_stopped_widens() -> None:
    """An interval is wider if a rule stopped the measurement."""
    fixed, stopped = (judge_sides(measure_sides(1.05, looks=looks)).trials for looks in (0, 3))

    widths = [np.log(trials["high"] / trials["low"])[0] for trials in (fixed, stopped)]
    assert widths[1] == pytest.approx(1.12 * widths[0])


def test_what_no_longer_runs_is_failed_and_what_is_pending_is_not_conclusive() -> None:
    """The reason is that of the later side."""
    failure = Failure(trial_id="", status="not-equivalent", stage="check", error="the outputs differ")
    gate = judge_sides(
        measure_sides(1.0, compilers=("onnxruntime", "openvino", "tvm"), failures={"openvino": failure, "tvm": None})
    )
    rows = {row["compiler"]: (row["verdict"], row["reason"]) for row in gate.trials.to_dict("records")}

    assert ("failed", "not-equivalent: the outputs differ") == rows["openvino"]
    assert ("not conclusive", "") == rows["tvm"]
    assert not gate.passes()


def test_what_fails_on_both_sides_is_named_and_no_plain_pass() -> None:
    """A failure on both sides fails no gate, and the outcome names it."""
    failure = Failure(trial_id="", status="unsupported", stage="compile", error="operator GridSample")
    compilers, failing = ("onnxruntime", "tvm"), {"failures": {"tvm": failure}, "failing_before": ("tvm",)}
    gate = judge_sides(measure_sides(1.0, compilers=compilers, **failing), 0.05)
    row = next(row for row in gate.trials.to_dict("records") if row["compiler"] == "tvm")

    assert ("net", "not judged") == (row["workload"], row["verdict"])
    assert "unsupported: operator GridSample on both sides" == row["reason"]
    assert "not judged: unsupported: operator GridSample on both sides" in {
        row[-1] for row in gate.to_report().frames[0].cells
    }
    assert "; 1 not judged; 1 not slower." in str(gate)
    assert gate.passes(("slower", "inconclusive"))
    assert "passed, but no trial of tvm could be judged" == gate.describe_outcome()
    assert "passed" == judge_sides(measure_sides(1.0), 0.05).describe_outcome()


def test_a_gate_without_any_result_before_is_an_error_with_the_reason() -> None:
    """Nothing could ever be slower than it."""
    failure = Failure(trial_id="", status="crashed", stage="measure", error="signal 11")
    data = measure_sides(1.0, failures={"onnxruntime": failure}, failing_before=("onnxruntime",))

    with pytest.raises(UsageError, match=r"none has a result before \(crashed: signal 11 on both sides\)"):
        judge_sides(data)


def test_what_was_not_checked_is_not_conclusive_however_slow() -> None:
    """An unchecked trial is not conclusive, and its row has the side and the reason."""
    gate = judge_sides(measure_sides(1.5, unchecked="it draws random numbers"))
    (row,) = gate.to_report().frames[0].cells

    assert "not conclusive: not checked before and after: it draws random numbers" == row[-1]
    assert not gate.passes(("slower", "inconclusive"))
    assert "passed, but no trial of any compiler could be judged" == gate.describe_outcome()


def test_networks_and_values_of_factors_are_judged_apart() -> None:
    """Each pair is judged at each value of a factor, and all are one family."""
    data = measure_sides(1.05, build_network("a", seq=(32, 128)), build_network("b"))
    trials = judge_sides(data).trials

    assert [("a", 32), ("a", 128)] == [(row["workload"], row["seq"]) for row in trials.to_dict("records")][:2]
    assert {"slower"} == set(trials["verdict"])
    assert 3 == len(trials)


def test_a_run_without_sides_is_an_error() -> None:
    """The error says what a gate needs."""
    data = measure_sides(1.0)
    renamed = data.assign_coords(workload=["a", "b"])

    with pytest.raises(UsageError, match=r"a gate needs networks whose names end in ' \(before\)' and ' \(after\)'"):
        judge_sides(renamed)
    with pytest.raises(UsageError, match="invalid sides: got 1 networks before and 2 after"):
        name_sides([build_network("a")], [build_network("a"), build_network("b")])
