"""A gate between two runs: its verdicts, what weakens them, and the exit code of the shell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import synthetic
import xarray as xr
from drawn import change_texts, measured, network, sweep

from ngbkit import cli
from ngbkit.dataset import assembly, storage
from ngbkit.errors import UsageError
from ngbkit.metrics.pairing import compare
from ngbkit.sweep.records import Failure


def slower(factor: float, compiler: str = "openvino") -> xr.Dataset:
    """A run in which one compiler takes that many times as long."""
    data = measured(network("a"), network("b"))
    scale = xr.where(data["compiler"] == compiler, factor, 1.0)
    return data.assign(
        latency=(data["latency"] * scale).transpose(*data["latency"].dims), throughput=data["throughput"] / scale
    )


def failing() -> xr.Dataset:
    """A run in which one trial failed, and another has no record."""
    grid = sweep(network("a"), network("b"))
    records = synthetic.make_records(grid)
    ids = {(trial.workload, trial.compiler, trial.batch_size): trial.id for trial in grid.trials()}
    failed, pending = ids["a", "openvino", 4], ids["b", "openvino", 4]
    failure = Failure(trial_id=failed, status="crashed", stage="measure", error="signal 11")
    return assembly.assemble(grid, [failure, *(r for r in records if r.trial_id not in (failed, pending))])


def describe(data: xr.Dataset, **packages: str) -> xr.Dataset:
    return data.assign_attrs(environments=json.dumps({"cpu": {"chip": "one", "packages": packages}}))


def test_a_slower_compiler_is_an_alarm() -> None:
    """The trials of a slower compiler are alarms, and the baseline is not judged."""
    gate = compare(slower(1), slower(1.3)).gate("2%")

    assert {("openvino", "slower")} == set(zip(gate.trials["compiler"], gate.trials["verdict"], strict=True))
    assert not gate.passes()
    assert [1.3] * 4 == pytest.approx(gate.trials["slowdown"].tolist())
    assert "4 of 4 trials slower by more than 2 % (speedup of two runs; unchanged code has any such alarm in" in str(
        gate
    )


def test_a_faster_one_is_not_slower() -> None:
    """A faster trial passes the gate, even if every trial must be conclusive."""
    gate = compare(slower(1), slower(0.7)).gate()

    assert {"not slower"} == set(gate.trials["verdict"])
    assert gate.passes(("slower", "inconclusive"))


def test_a_slowdown_within_the_margin_passes() -> None:
    """A slowdown within the margin passes; an inconclusive one fails only on request."""
    gate = compare(slower(1), slower(1.3)).gate(0.5)
    unsure = compare(slower(1), slower(1.3)).gate(0.3)

    assert {"not slower"} == set(gate.trials["verdict"])
    assert {"not conclusive"} == set(unsure.trials["verdict"])
    assert unsure.passes()
    assert not unsure.passes(("inconclusive",))


def test_what_no_longer_runs_fails_the_gate() -> None:
    """A trial that fails only in the second run fails the gate, with its reason."""
    gate = compare(slower(1), failing()).gate()
    verdicts = {
        (row["workload"], row["batch_size"]): (row["verdict"], row["reason"]) for row in gate.trials.to_dict("records")
    }

    assert ("failed", "crashed: signal 11") == verdicts["a", 4]
    assert ("not conclusive", "") == verdicts["b", 4]
    assert not gate.passes()
    assert {"failed: crashed: signal 11"} == {row[-1] for row in gate.to_report().frames[0].cells[:1]}


def test_what_failed_in_both_runs_is_named() -> None:
    """A trial that failed in the first run is not judged, and the gate has its reason."""
    both, mended = compare(failing(), failing()).gate(), compare(failing(), slower(1)).gate()
    rows = [
        next(row for row in gate.trials.to_dict("records") if (row["workload"], row["batch_size"]) == ("a", 4))
        for gate in (both, mended)
    ]

    assert ["not judged"] * 2 == [row["verdict"] for row in rows]
    assert ["crashed: signal 11 on both sides", "crashed: signal 11 before"] == [row["reason"] for row in rows]
    assert both.passes()
    assert "1 not judged" in str(both)


def test_what_was_not_checked_is_no_alarm() -> None:
    """The gate says why, and so does the comparison."""
    later = slower(0.4)
    is_unchecked = later["compiler"] == "openvino"
    later["status"] = xr.where(is_unchecked, "not-checked", later["status"]).transpose(*later["status"].dims)
    later["error"] = xr.where(is_unchecked, "it is random", later["error"]).transpose(*later["error"].dims)
    comparison = compare(slower(1), later)
    gate = comparison.gate()

    assert {("not conclusive", "not checked in the second run: it is random")} == set(
        zip(gate.trials["verdict"], gate.trials["reason"], strict=True)
    )
    assert "4 trials were not checked in the second run: it is random" in str(comparison)
    assert 4 == (comparison.verdicts == "not checked").sum()


def test_a_contended_run_is_no_alarm() -> None:
    """Trials without enough uncontended rounds are not conclusive, however slow."""
    later = slower(1.5)
    later["contended"] = xr.ones_like(later["contended"])

    assert {"not conclusive"} == set(compare(slower(1), later).gate().trials["verdict"])


def test_another_torch_weakens_speedups() -> None:
    """The baseline may have changed: the warning says what to compare instead. A throughput has its own."""
    runs = describe(slower(1), torch="2.9"), describe(slower(1), torch="2.10")

    (warning,) = compare(*runs).gate().warnings
    assert "identity itself may have changed, and every speedup is over it: torch was 2.9 and is 2.10" in warning
    (warning,) = compare(*runs, "throughput").gate().warnings
    assert "two runs at different times differ by about 3 %" in warning
    assert () == compare(runs[0], describe(slower(1), torch="2.9", numpy="2.1")).gate().warnings


@pytest.mark.parametrize("metric", ["speedup", "throughput"])
def test_runs_of_two_machines_are_no_gate(metric: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The gate says the differences, and judges nothing."""
    first, second = (
        slower(1).assign_attrs(environments=json.dumps({"cpu": {"chip": chip, "threads": threads}}))
        for chip, threads in (("A", 2), ("B", 64))
    )
    runs = {"a": first, "b": change_texts(second, "contract", precision="bf16")}
    files = [str(storage.save(data, tmp_path / f"{name}.nc")) for name, data in runs.items()]
    words = ["compare", *files, "--metric", metric, "--fail-on", "slower"]

    differences = ("chip was A and is B", "threads was 2 and is 64", "timed with precision bf16 instead of")

    assert 2 == cli.main(words)
    printed = capsys.readouterr().err
    assert "differ by more than their code: " in printed
    assert "Measure both in turns: `ngbkit gate`." in printed
    assert [] == [text for text in differences if text not in printed]


def test_two_runs_of_one_machine_are_a_gate() -> None:
    """A gate compares two runs of one machine, even with other labels or updated packages."""
    first, second = describe(slower(1), torch="2.9"), describe(slower(1), torch="2.10")
    comparison = compare(first, second.assign_coords(device=["laptop"]))

    assert ("torch was 2.9 and is 2.10",) == comparison.unlike
    assert comparison.gate().passes()


def test_a_throughput_allows_for_different_times() -> None:
    """The interval of a throughput is at least as wide as the machine's drift."""
    comparison = compare(slower(1), slower(1.01), "throughput")
    widths = np.log(comparison.gate().trials["high"] / comparison.gate().trials["low"])

    assert (widths > 2 * 1.96 * 0.02 * np.sqrt(2)).all()
    hosted = json.dumps({"cpu": {"conditions": {"virtual_machine": True}}})
    pair = [run.assign_attrs(environments=hosted) for run in (slower(1), slower(1.01))]
    assert np.sqrt(2) * 0.1 == pytest.approx(compare(*pair, "throughput").drift_sd)


def test_one_device_of_several_is_judged_alone() -> None:
    """A comparison of one device has the gate of its trials."""
    pair = [measured(network("a"), devices=["cpu", "orin"]) for _ in range(2)]

    assert {"cpu"} == set(compare(*pair).on_device("cpu").gate().trials["device"])


def test_a_gate_of_nothing_is_an_error() -> None:
    """A gate of the baseline alone is an error, as no speed-up can change."""
    pair = [measured(network("a"), compilers=("identity",)) for _ in range(2)]

    with pytest.raises(UsageError, match=r"no trial to judge: .* beside what is compared with itself"):
        compare(*pair).gate()


@pytest.mark.parametrize(
    ("later", "options", "code"),
    [
        (lambda: slower(1.3), ["--fail-on", "slower"], 1),
        (lambda: slower(1.3), ["--fail-on", "slower", "--margin", "30%"], 0),
        (lambda: slower(1.3), ["--fail-on", "slower,inconclusive", "--margin", "30%"], 1),
        (failing, ["--fail-on", "slower"], 1),
        (lambda: slower(1.3), [], 0),
    ],
)
def test_the_exit_code_is_the_verdict(
    tmp_path: Path, later: Callable[[], xr.Dataset], options: list[str], code: int
) -> None:
    """1 if a trial is slower or fails; 0 if it is not conclusive, unless that is a cause; 0 without --fail-on."""
    files = [str(storage.save(data, tmp_path / f"{name}.nc")) for name, data in (("a", slower(1)), ("b", later()))]

    assert code == cli.main(["compare", *files, *options])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fail-on", "slow"], "unknown cause of --fail-on 'slow'.*slower"),
        (["--fail-on", ""], "invalid --fail-on: got ''; expected slower or inconclusive"),
        (["--margin", "2%"], "--margin without --fail-on"),
        (["--fail-on", "slower", "--margin", "2"], "invalid margin: got '2'; expected a share"),
    ],
)
def test_an_invalid_option_is_refused_first(
    capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    """An invalid option is refused before a file is read."""
    assert 2 == cli.main(["compare", "a.nc", "b.nc", *options])

    assert re.search(message, capsys.readouterr().err)


def test_the_report_is_text_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The warning that nobody knows is on stderr."""
    files = [str(storage.save(data, tmp_path / f"{name}.nc")) for name, data in (("a", slower(1)), ("b", slower(1.3)))]

    cli.main(["compare", *files, "--fail-on", "slower"])
    text = capsys.readouterr().out
    assert text.startswith("4 of 4 trials slower by more than 1 %")
    assert text.endswith("failed\n")
    cli.main(["compare", *files, "--fail-on", "slower", "--margin", "30%"])
    printed = capsys.readouterr()
    assert printed.out.endswith("passed, but no trial of any compiler could be judged\n")
    assert "4 of 4 trials are not conclusive" in printed.err
    cli.main(["compare", *files, "--fail-on", "slower", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (False, 4, 0.01) == (report["passes"], report["verdicts"]["slower"], report["margin"])
