"""The explorer: what it draws, what it tells, and the code that it gives."""

from __future__ import annotations

import csv

import pytest
from drawn import Spec, crashing, measured, network, sweep
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from ngbkit import figures
from ngbkit.figures import renderer
from ngbkit.notebook.panels import ExplorerPanel
from ngbkit.notebook.panels import trial as trials


@pytest.fixture
def panel() -> ExplorerPanel:
    return ExplorerPanel(measured(network("a"), network("b"), compilers=["identity", "openvino", "tvm"]), "mine")


def drawn(panel: ExplorerPanel) -> dict:
    (output,) = panel.chart.outputs
    return output["data"]


def test_it_draws_at_once(panel: ExplorerPanel) -> None:
    """The first figure is there, as a notebook keeps it."""
    assert {renderer.MIME, "image/svg+xml", "text/plain"} == set(drawn(panel))
    assert "mine.ngb.plot.throughput()" == panel.copy.text


def test_the_code_draws_the_same_figure(panel: ExplorerPanel) -> None:
    """What is copied and run is what is shown."""
    panel.figure.value = "speedup"
    panel.options["baseline"].value = "tvm"
    panel.options["by"].value = "compiler"
    panel.filters["compiler"].value = ("openvino", "identity")

    assert "mine.ngb.plot.speedup(by='compiler', baseline='tvm', compiler=['openvino', 'identity'])" == panel.copy.text
    again = eval(panel.copy.text, {"mine": panel._data})
    assert again.to_dict() == drawn(panel)[renderer.MIME]


@pytest.mark.parametrize(
    "name", ["throughput", "speedup", "ase", "bsr", "cpu", "break_even", "latency", "traces", "status"]
)
def test_every_figure_can_be_chosen(panel: ExplorerPanel, name: str) -> None:
    """None of them fails on a dataset that has what it needs."""
    panel.figure.value = name

    assert drawn(panel)
    assert "" == panel.message.value


@pytest.mark.parametrize("name", ["throughput", "speedup", "bsr", "break_even", "status", "heatmap", "depth"])
def test_each_mark_is_of_one_trial(name: str) -> None:
    """What a mark is drawn from leads to the trial that it shows, in a sheet."""
    data = measured(network("a", width=(8, 16), depth=(1, 2)), devices=["cpu", "orin"])
    panel = ExplorerPanel(data)
    panel.figure.value = name
    found = trials.labels(data)
    shown = [row for row in Spec(getattr(figures, name)(data)).rows if row.get("kind", "trial") == "trial"]

    assert shown
    for row in shown:
        (at,) = trials.drawn_from(row, found)
        panel.pick(row)
        assert at == panel.trial.value
        assert row["compiler"] == found[at]["compiler"]
        assert trials.name(found[at]) in panel.sheet.value


def test_what_is_no_trial_tells_nothing(panel: ExplorerPanel) -> None:
    """A click on an axis or on a line of the roof leaves the sheet as it is."""
    for row in ({}, {"device": "cpu", "intensity": 2.0}, {"network": "c", "compiler": "tvm", "batch_size": 1}):
        panel.pick(row)

    assert (None, "") == (panel.trial.value, panel.sheet.value)


def test_a_trial_that_the_list_has_no_room_for_can_be_picked() -> None:
    """Of a thousand trials the list has five hundred."""
    panel = ExplorerPanel(measured(network("a"), batch_sizes=range(1, 501)))

    panel.pick({"network": "a", "compiler": "openvino", "batch_size": 500})

    assert "a, openvino, batch 500 on cpu" == panel.trial.label


def test_what_cannot_be_drawn_is_said(panel: ExplorerPanel) -> None:
    """The figure's own words, and no figure of before."""
    panel.figure.value = "roofline"

    assert () == panel.chart.outputs
    assert "roofline() needs" in panel.message.value


def test_only_options_of_the_figure_are_shown(panel: ExplorerPanel) -> None:
    """A status has no baseline."""
    panel.figure.value = "status"
    hidden = {name for name, control in panel.options.items() if control.layout.display == "none"}

    assert {"by", "baseline", "cache", "ci", "probability"} == hidden


def test_figures_over_a_factor_are_for_data_that_has_one() -> None:
    """Depth is offered where something varies, and the factor can be chosen."""
    plain, varied = ExplorerPanel(measured()), ExplorerPanel(measured(network("block", depth=(1, 2), width=(8, 16))))

    assert "depth" not in plain.figure.options
    assert "depth" in varied.figure.options
    assert ("width", "depth") == tuple(sorted(varied.options["factor"].options, reverse=True))


def test_a_trial_is_told(panel: ExplorerPanel) -> None:
    """Its samples, how it was timed, and where."""
    panel.trial.value = next(at for label, at in panel.trial.options if label == "a, openvino, batch 4 on cpu")

    assert "a, openvino, batch 4 on cpu" in panel.sheet.value
    assert "10, median" in panel.sheet.value
    assert "runtime openvino" in panel.sheet.value

    panel.trial.value = None

    assert "" == panel.sheet.value


def test_a_failed_trial_says_why() -> None:
    """Status and error, and no number."""
    data = crashing(sweep(), "openvino", 4)
    failed = next(one for one in trials.labels(data) if (one["compiler"], one["batch_size"]) == ("openvino", 4))

    row = trials.describe(data, failed)

    assert ("crashed", "signal 11") == (row["status"], row["error"])
    assert "samples" not in row


def test_a_filter_shortens_the_list_of_trials(panel: ExplorerPanel) -> None:
    """Only what is drawn can be looked into."""
    assert "click a mark, or choose one of 12 trials" == panel.trial.options[0][0]

    panel.filters["workload"].value = ("b",)

    assert "click a mark, or choose one of 6 trials" == panel.trial.options[0][0]
    assert all(label.startswith("b, ") for label, _ in panel.trial.options[1:])


@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("csv", b"workload,")])
def test_it_writes_files(panel: ExplorerPanel, tmp_path, suffix: str, begins: bytes) -> None:
    """And says where they are."""
    panel.path.value = str(tmp_path / "deep" / "figure")

    target = panel.save(suffix)

    assert target.read_bytes().startswith(begins)
    assert str(target) in panel.message.value


def test_a_table_holds_what_is_drawn(panel: ExplorerPanel, tmp_path) -> None:
    """Its rows are the trials of the filter."""
    panel.path.value = str(tmp_path / "table")
    panel.filters["compiler"].value = ("tvm",)

    rows = list(csv.DictReader(panel.save("csv").read_text().splitlines()))

    assert {"tvm"} == {row["compiler"] for row in rows}
    assert 4 == len(rows)


def test_the_magic_shows_it(shell: InteractiveShell) -> None:
    """For a dataset of the notebook, by its name."""
    shell.user_ns["found"] = measured()

    panel = shell.run_line_magic("ngpanel", "explore found")

    assert "found.ngb.plot.throughput()" == panel.copy.text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("explore", "which dataset to explore was not said; this notebook has found"),
        ("explore other", "'other' holds no dataset; this notebook has found"),
        ("sweep found", "takes no dataset"),
    ],
)
def test_the_magic_says_what_there_is(shell: InteractiveShell, line: str, message: str) -> None:
    """Where the dataset was not named, or is none."""
    shell.user_ns["found"] = measured()

    with pytest.raises(UsageError, match=message):
        shell.run_line_magic("ngpanel", line)
