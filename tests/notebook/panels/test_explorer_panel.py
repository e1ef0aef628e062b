"""The explorer: its figures, its descriptions of trials, and the code that it writes."""

from __future__ import annotations

import csv
import re

import pytest
from drawn import Spec, crashing, measured, network, record_tests, sweep
from IPython.core.interactiveshell import InteractiveShell

from ngbkit import figures
from ngbkit.errors import UsageError
from ngbkit.figures import renderer
from ngbkit.notebook.panels import ExplorerPanel
from ngbkit.notebook.panels import trial as trials


@pytest.fixture
def panel() -> ExplorerPanel:
    data = measured(network("a"), network("b"), compilers=["identity", "openvino", "tvm"])
    record_tests(data, deadline="50ms")
    return ExplorerPanel(data, "mine")


def read_bundle(panel: ExplorerPanel) -> dict:
    """Read the MIME bundle of the figure."""
    (output,) = panel.chart.outputs
    return output["data"]


def test_it_draws_at_once(panel: ExplorerPanel) -> None:
    """The first figure is displayed as a notebook stores it."""
    assert {renderer.MIME, "image/svg+xml", "text/plain"} == set(read_bundle(panel))
    assert "mine.ngb.plot.throughput()" == panel.copy.text


def test_the_code_draws_the_same_figure(panel: ExplorerPanel) -> None:
    """The copied code draws the displayed figure."""
    panel.figure.value = "speedup"
    panel.options["baseline"].value = "tvm"
    panel.options["by"].value = "compiler"
    panel.filters["compiler"].value = ("openvino", "identity")

    assert "mine.ngb.plot.speedup(by='compiler', baseline='tvm', compiler=['openvino', 'identity'])" == panel.copy.text
    again = eval(panel.copy.text, {"mine": panel._data})
    assert again.to_dict() == read_bundle(panel)[renderer.MIME]


def test_every_figure_can_be_chosen(panel: ExplorerPanel) -> None:
    """Each draws a dataset with the variables that it needs, also with the last of its choices."""
    panel.options["deadline"].value = "50ms"
    for name in {*panel.figure.options} - {"roofline"}:
        panel.figure.value = name
        for option in ("by", "ci"):
            control = panel.options[option]
            control.index = len(control.options) - 1

            assert "" == panel.message.value, panel.copy.text
            assert read_bundle(panel)
            assert control.label is not None


def test_a_capacity_needs_a_deadline(panel: ExplorerPanel) -> None:
    """The panel says how to write it, and draws what was measured with it."""
    panel.figure.value = "capacity"

    assert "expected a time such as &#x27;50ms&#x27;" in panel.message.value

    panel.options["deadline"].value = "50ms"

    assert "" == panel.message.value
    assert "mine.ngb.plot.capacity(deadline='50ms')" == panel.copy.text


@pytest.mark.parametrize("name", ["throughput", "speedup", "bsr", "break_even", "status", "heatmap", "depth"])
def test_each_mark_is_of_one_trial(name: str) -> None:
    """The data of a mark identify its trial, which the sheet describes."""
    data = measured(network("a", width=(8, 16), depth=(1, 2)), devices=["cpu", "orin"])
    panel = ExplorerPanel(data)
    panel.figure.value = name
    listed = trials.list_trials(data)
    rows = [row for row in Spec(getattr(figures, name)(data)).rows if row.get("kind", "trial") == "trial"]

    assert rows
    for row in rows:
        (index,) = trials.match_row(row, listed)
        panel.pick(row)
        assert index == panel.trial.value
        assert row["compiler"] == listed[index]["compiler"]
        assert trials.to_text(listed[index]) in panel.sheet.value


def test_a_click_beside_the_marks_changes_nothing(panel: ExplorerPanel) -> None:
    """A click on an axis or on the line of a roof is no click on a trial."""
    for row in ({}, {"device": "cpu", "intensity": 2.0}, {"network": "c", "compiler": "tvm", "batch_size": 1}):
        panel.pick(row)

    assert (None, "") == (panel.trial.value, panel.sheet.value)


def test_a_trial_beyond_the_end_of_the_list_can_be_picked() -> None:
    """The list has the first five hundred of a thousand trials."""
    panel = ExplorerPanel(measured(network("a"), batch_sizes=range(1, 501)))

    panel.pick({"network": "a", "compiler": "openvino", "batch_size": 500})

    assert "a, openvino, batch 500 on cpu" == panel.trial.label


def test_a_figure_that_cannot_be_drawn_is_reported(panel: ExplorerPanel) -> None:
    """The panel shows the error of the figure, and no earlier figure."""
    panel.figure.value = "roofline"

    assert () == panel.chart.outputs
    assert "roofline() needs" in panel.message.value


def test_an_error_that_ngbkit_does_not_know_is_reported(panel: ExplorerPanel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The panel shows it with its traceback, and draws the next figure."""
    monkeypatch.setattr(figures, "latency", lambda data: 1 / 0)
    panel.figure.value = "latency"

    assert () == panel.chart.outputs
    assert "unexpected error: ZeroDivisionError: division by zero" in panel.message.value
    assert "Traceback" in panel.message.value

    panel.figure.value = "status"

    assert "" == panel.message.value
    assert read_bundle(panel)


def test_only_the_options_of_the_figure_are_visible(panel: ExplorerPanel) -> None:
    """The status figure has no baseline, for example."""
    panel.figure.value = "status"
    hidden = {name for name, control in panel.options.items() if control.layout.display == "none"}

    assert {"deadline", "by", "baseline", "cache", "ci", "probability"} == hidden


def test_figures_over_a_factor_need_a_factor() -> None:
    """Depth is a choice only if the dataset has a factor, which can then be chosen."""
    plain, varied = ExplorerPanel(measured()), ExplorerPanel(measured(network("block", depth=(1, 2), width=(8, 16))))

    assert "depth" not in plain.figure.options
    assert "depth" in varied.figure.options
    assert ("width", "depth") == tuple(sorted(varied.options["factor"].options, reverse=True))


def test_a_trial_is_described(panel: ExplorerPanel) -> None:
    """The sheet has its samples, its contract and its environment."""
    panel.trial.value = next(index for label, index in panel.trial.options if label == "a, openvino, batch 4 on cpu")

    assert "a, openvino, batch 4 on cpu" in panel.sheet.value
    assert "10, median" in panel.sheet.value
    assert "runtime openvino" in panel.sheet.value
    assert re.search(r"[\d.,]+ (± [\d.]+|\([\d.,]+ to [\d.,]+\)) samples/s", panel.sheet.value)
    assert "speed-up" in panel.sheet.value

    panel.trial.value = None

    assert "" == panel.sheet.value


def test_a_failed_trial_has_its_error() -> None:
    """The sheet has the status and the error, and no samples."""
    data = crashing(sweep(), "openvino", 4)
    failed = next(
        trial for trial in trials.list_trials(data) if (trial["compiler"], trial["batch_size"]) == ("openvino", 4)
    )

    row = trials.describe(data, failed)

    assert ("crashed", "signal 11") == (row["status"], row["error"])
    assert "samples" not in row


def test_a_filter_shortens_the_list_of_trials(panel: ExplorerPanel) -> None:
    """The list has only the trials that the figure draws."""
    assert "click a mark, or choose one of 12 trials" == panel.trial.options[0][0]

    panel.filters["workload"].value = ("b",)

    assert "click a mark, or choose one of 6 trials" == panel.trial.options[0][0]
    assert all(label.startswith("b, ") for label, _ in panel.trial.options[1:])


@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("csv", b"workload,")])
def test_it_writes_files(panel: ExplorerPanel, tmp_path, suffix: str, begins: bytes) -> None:
    """The message names the file."""
    panel.path.value = str(tmp_path / "deep" / "figure")

    target = panel.save(suffix)

    assert target.read_bytes().startswith(begins)
    assert str(target) in panel.message.value


def test_a_table_has_the_drawn_trials(panel: ExplorerPanel, tmp_path) -> None:
    """The rows of the table are the trials that pass the filters."""
    panel.path.value = str(tmp_path / "table")
    panel.filters["compiler"].value = ("tvm",)

    rows = list(csv.DictReader(panel.save("csv").read_text().splitlines()))

    assert {"tvm"} == {row["compiler"] for row in rows}
    assert 4 == len(rows)


def test_the_magic_shows_it(shell: InteractiveShell) -> None:
    """``%ngpanel explore`` takes the name of a dataset."""
    shell.user_ns["ds"] = measured()

    panel = shell.run_line_magic("ngpanel", "explore ds")

    assert "ds.ngb.plot.throughput()" == panel.copy.text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("explore", "missing the name of a dataset; expected one of ds"),
        ("explore other", "'other' is not a dataset; expected one of ds"),
        ("sweep ds", "unexpected argument 'ds': the sweep panel shows no dataset"),
    ],
)
def test_the_magic_names_the_datasets(shell: InteractiveShell, line: str, message: str) -> None:
    """The error lists them if the name is missing or wrong."""
    shell.user_ns["ds"] = measured()

    with pytest.raises(UsageError, match=message):
        shell.run_line_magic("ngpanel", line)


def test_a_trial_that_was_not_checked_says_why() -> None:
    """The sheet of an unchecked trial has its numbers, the mark and the reason."""
    data = measured(network("a"))
    texts = {"status": "not-checked", "error": "it is random"}
    data = data.assign({name: data[name].where(data["compiler"] != "openvino", text) for name, text in texts.items()})
    row = trials.describe(data, {"workload": "a", "compiler": "openvino", "batch_size": 1, "device": "cpu"})

    assert ("not-checked", "it is random") == (row["status"], row["not checked"])
    assert row["throughput"].endswith("? samples/s")
    assert "no (?): its outputs were not checked" == row["conclusive"]
    assert "error" not in row
