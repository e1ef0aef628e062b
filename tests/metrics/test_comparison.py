"""The same sweep twice: the changes beyond uncertainty."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from drawn import measured, network

from ngbkit import cli
from ngbkit.dataset import storage
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.metrics.comparison import compare


def twice():
    return measured(network("a"), network("b")), measured(network("a"), network("b"))


def test_the_same_measurements_are_the_same() -> None:
    """No value and no winner changed, and no trial is missing."""
    comparison = compare(*twice())

    assert {"same"} == set(comparison.trials["is"])
    assert [1.0] * len(comparison.trials) == pytest.approx(comparison.trials["change"].tolist())
    assert not comparison.winners["another"].any()
    assert 0 == comparison.missing
    assert (
        "0 of 4 conclusive values of speedup differ beyond their 95% intervals; chance alone makes about 0.2 differ"
        in str(comparison)
    )


def test_a_machine_that_is_slower_changes_no_speedup() -> None:
    """A slower machine changes the throughput and no speed-up."""
    first, second = twice()
    second["latency"] = second["latency"] * 2
    second["throughput"] = second["throughput"] / 2

    assert {"same"} == set(compare(first, second).trials["is"])
    slower = compare(first, second, "throughput").trials
    assert {"lower"} == set(slower["is"])
    assert [0.5] * 8 == pytest.approx(slower["change"].tolist())
    assert (slower["change_low"] < slower["change"]).all()


def test_another_winner_is_told() -> None:
    """One compiler became five times slower on one network: its trials are lower, and identity leads there."""
    first, second = twice()
    trial = {"workload": "b", "compiler": "openvino"}
    second["latency"].loc[trial] = second["latency"].loc[trial] * 5
    comparison = compare(first, second)
    changed = comparison.trials[comparison.trials["is"] != "same"]

    assert {("b", "openvino", "lower")} == set(
        zip(changed["workload"], changed["compiler"], changed["is"], strict=True)
    )
    lost = comparison.winners[comparison.winners["another"]]
    assert {("b", "openvino", "identity")} == set(zip(lost["workload"], lost["first"], lost["second"], strict=True))


def test_machines_stand_side_by_side() -> None:
    """Single devices are matched whatever their labels; differences are marked."""
    first, second = twice()
    second = second.assign_coords(device=["orin"])
    first.attrs["environments"] = json.dumps({"cpu": {"chip": "one", "cores_usable": 2, "packages": {"torch": "2.9"}}})
    second.attrs["environments"] = json.dumps(
        {"orin": {"chip": "two", "cores_usable": 2, "packages": {"torch": "2.9"}}}
    )
    comparison = compare(first, second)

    assert 8 == len(comparison.trials)
    assert ["first: cpu", "second: orin", "differs"] == list(comparison.environments)
    differs = comparison.environments["differs"]
    assert (True, False, False) == (differs["chip"], differs["cores_usable"], differs["torch"])
    assert any("chip was one and is two" in line for line in comparison.unlike)


def test_what_cannot_be_compared_is_an_error() -> None:
    """A comparison without a common trial, factor or known metric is an error."""
    dataset = measured(network("a"))

    with pytest.raises(UsageError, match="no trial in common: the first dataset has a on cpu, the second b on cpu"):
        compare(dataset, measured(network("b")))
    with pytest.raises(UsageError, match="different factors"):
        compare(dataset, measured(network("a", width=(1, 2))))
    with pytest.raises(UnknownNameError, match="speedup"):
        compare(dataset, dataset, "speed")


def test_what_one_run_lacks_is_counted() -> None:
    """Trials of one run alone are not compared."""
    comparison = compare(measured(network("a")), measured(network("a"), network("b")))

    assert (4, 4) == (len(comparison.trials), comparison.missing)
    assert "4 trials were measured in only one of the two" in str(comparison)


def test_the_shell_prints_what_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`compare` prints what changed as a table or as JSON, and writes a figure."""
    first, second = twice()
    second["latency"].loc[{"compiler": "openvino"}] = second["latency"].loc[{"compiler": "openvino"}] * 3
    files = [str(storage.save(data, tmp_path / f"{name}.nc")) for name, data in (("a", first), ("b", second))]

    assert 0 == cli.main(["compare", *files, "--figure", str(tmp_path / "changes.svg")])
    assert "The same sweep twice" in (tmp_path / "changes.svg").read_text()
    text = capsys.readouterr().out
    assert "openvino" in text
    assert "4 of 4 conclusive values of speedup differ" in text
    assert 0 == cli.main(["compare", *files, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (8, 4) == (len(report["trials"]), len(report["winners"]))
