"""The same sweep twice: the changes beyond uncertainty."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from drawn import measured, network

from ngbkit import cli
from ngbkit.dataset import storage
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.metrics.pairing import compare
from ngbkit.workloads.cell import from_source


def twice():
    """A run of two networks, and another one, in which a compiler differs by less than anything can resolve."""
    first, second = measured(network("a"), network("b")), measured(network("a"), network("b"))
    second["latency"].loc[{"compiler": "openvino"}] *= 1 + 1e-9
    return first, second


def test_the_same_measurements_are_the_same() -> None:
    """No value changed, and no trial is missing."""
    comparison = compare(*twice())

    assert {"same"} == set(comparison.trials["is"])
    assert [1.0] * len(comparison.trials) == pytest.approx(comparison.trials["change"].tolist())
    assert 0 == comparison.missing
    assert (
        "speedup of 4 trials: 4 not conclusive (95 % intervals, of which less than 1 would differ by chance alone)."
        == str(comparison)
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


def test_the_trials_that_changed_are_told() -> None:
    """One compiler became five times slower on one network: its trials are lower, and no others."""
    first, second = twice()
    trial = {"workload": "b", "compiler": "openvino"}
    second["latency"].loc[trial] = second["latency"].loc[trial] * 5
    comparison = compare(first, second)
    changed = comparison.trials[comparison.trials["is"] != "same"]

    assert {("b", "openvino", "lower")} == set(
        zip(changed["workload"], changed["compiler"], changed["is"], strict=True)
    )


def test_differences_between_machines_are_said() -> None:
    """Single devices are matched whatever their labels, and what differs between them is said."""
    first, second = twice()
    second = second.assign_coords(device=["orin"])
    first.attrs["environments"] = json.dumps({"cpu": {"chip": "one", "cores_usable": 2, "packages": {"torch": "2.9"}}})
    second.attrs["environments"] = json.dumps(
        {"orin": {"chip": "two", "cores_usable": 2, "packages": {"torch": "2.9"}}}
    )
    comparison = compare(first, second)

    assert 8 == len(comparison.trials)
    assert ("chip was one and is two",) == comparison.unlike


def test_what_cannot_be_compared_is_an_error() -> None:
    """A comparison without a common trial or a known metric is an error."""
    dataset = measured(network("a"))

    with pytest.raises(UsageError, match="no trial in common: the first dataset has a on cpu, the second b, c on cpu"):
        compare(dataset, measured(network("b"), network("c")))
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
    assert "b against a: speedup" in (tmp_path / "changes.svg").read_text()
    text = capsys.readouterr().out
    assert "openvino" in text
    assert "speedup of 4 trials: 4 lower (95 % intervals" in text
    assert "0.711" in text
    assert 0 == cli.main(["compare", *files, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (8, 0) == (len(report["trials"]), report["missing"])


def test_a_measurement_that_both_runs_have_is_no_change() -> None:
    """Trials that a run took over from the other one are left out of every count."""
    first, second = measured(network("a")), measured(network("a"))
    second["latency"].loc[{"batch_size": 4}] *= 3
    comparison = compare(first, second, "throughput")

    assert 2 == (comparison.verdicts == "same measurement").sum()
    assert str(comparison).startswith("throughput of 2 trials: 2 slower (95 % intervals, of which less than 1")
    assert "2 trials are the same measurement in both" in str(comparison)


CELL = "\nimport torch\nmodel = torch.nn.Linear(4, 2)\ninput_shape = (4,)\n"


@pytest.mark.parametrize(
    ("cell", "changes", "metric"),
    [
        (CELL, (), "speedup"),
        (
            f"{CELL}# a remark\n",
            ("model: its cell has other comments or another layout, and the same code",),
            "speedup",
        ),
        (CELL.replace("2)", "8)"), ("model: its cell changed",), "throughput"),
    ],
)
def test_a_changed_cell_is_another_network(cell: str, changes: tuple[str, ...], metric: str) -> None:
    """A changed cell is compared by its throughputs, since its baseline changed too; a comment changes nothing."""
    first, second = (measured(*from_source(source)) for source in (CELL, cell))
    comparison = compare(first, second, names=("it2", "it3"))

    assert (changes, metric) == (comparison.runs.changes, comparison.metric)
    assert (cell != CELL) == comparison.runs.difference.startswith("--- it2\n+++ it3\n")


def test_a_network_of_another_name_is_matched_by_its_place() -> None:
    """Networks without a namesake are matched in order, and this is said; a gate judges none of them."""
    comparison = compare(measured(*map(network, "ab")), measured(*map(network, "ac")))

    assert {"b": "c"} == comparison.runs.renamed
    assert (8, 0) == (len(comparison.trials), comparison.missing)
    assert ("b is compared with c, which has its place",) == comparison.runs.changes
    with pytest.raises(UsageError, match="got b in one run and c in the other; expected networks of the same names"):
        comparison.gate()


def test_networks_with_other_factors_are_matched_by_those_that_they_share() -> None:
    """A factor that only one run varies stands beside the same trial of the other run, and labels are said."""
    comparison = compare(measured(network("a", width=(1, 2))), measured(network("a", width=(1,), depth=(3, 4))))

    assert {(1, 3), (1, 4)} == set(zip(comparison.trials["width"], comparison.trials["depth"], strict=True))
    assert (
        "only before has width 2",
        "only after varies depth: each value is compared with the same trial of the other run",
    ) == comparison.left_out


def test_a_comparison_is_displayed_as_a_table() -> None:
    """A notebook displays the title, a row per trial, the notes, and the difference of the cells, folded."""
    first, second = (
        measured(*from_source(source)).assign_attrs(run_id=f"20261126-1831{second}-ab12")
        for source, second in ((CELL, "00"), (CELL.replace("2)", "8 << 1)"), "07"))
    )
    second["latency"].loc[{"compiler": "openvino"}] *= 3
    comparison = first.ngb.compare(second, names=("it2", "it3"))
    page = comparison._repr_html_()

    assert re.search(r"it3 \(\d\d:31:07\) against it2 \(\d\d:31:00\): throughput \(samples/s\)", page)
    assert 2 == page.count(">slower<")
    assert "the cells differ: 1 line added, 1 removed" in page
    assert "8 &lt;&lt; 1" in page
    assert "openvino" in repr(comparison)
