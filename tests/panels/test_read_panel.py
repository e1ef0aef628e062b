"""The panel that reads results: its table, its figure, its sheets of trials, and its files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import StringIO
from typing import Any

import pandas as pd
import pytest
from drawn import OF_COSTS, Spec, crashing, measured, network, sweep, unlike
from IPython.core.interactiveshell import InteractiveShell

import ngbkit
from ngbkit import figures
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.panels import figure_choice, read, trial_sheet
from ngbkit.panels import trial as trials
from ngbkit.panels.page import Page


class RecordingPage(Page):
    """A page that records its charts and its files."""

    def __init__(self) -> None:
        super().__init__()
        self.chart: dict[str, Any] | None = None
        self.files: dict[str, bytes] = {}

    def draw(self, chart: str, spec: dict[str, Any] | None) -> None:
        """Record a chart."""
        self.chart = spec

    def download(self, name: str, mime: str, content: bytes) -> None:
        """Record a file."""
        self.files[name] = content


def show(data: Data, name: str = "ds", run_id: str = "") -> tuple[RecordingPage, read.ReadSection]:
    """Show a dataset on a page."""
    page = RecordingPage()
    section = read.ReadSection(page)
    section.show_data(data, name, run_id)
    return page, section


@pytest.fixture
def page() -> RecordingPage:
    data = measured(network("a"), network("b"), compilers=["identity", "openvino", "tvm"])
    return show(data, "mine")[0]


def list_cells(page: Page, place: int) -> list[str]:
    """List the texts of a column of the table, whose first is the name of the network."""
    body = page.parts["table"].partition("<tbody>")[2]
    rows = re.findall(r"<tr.*?</tr>", body)
    return [re.sub(r"<.*?>", "", re.findall(r"<t[hd].*?</t[hd]>", row)[place]) for row in rows]


def read_code(page: Page) -> str:
    """Read the code of the figure."""
    return re.search(r"<code>(.*?)</code>", page.parts["figure-code"])[1].replace("&#39;", "'")


def test_it_draws_at_once(page: RecordingPage) -> None:
    """The first metric is the first of the results, in table and figure."""
    assert "mine.ngb.plot.speedup()" == read_code(page)
    assert page.chart is not None
    assert 12 == len(list_cells(page, 0))


def test_the_code_draws_the_same_figure(page: RecordingPage) -> None:
    """The copied code draws the displayed figure."""
    data = measured(network("a"), network("b"), compilers=["identity", "openvino", "tvm"])
    page.act("figure", "speedup")
    page.act("baseline", "tvm")
    page.act("figure-by", "compiler")
    page.act("filter-compiler-2", False)

    expected = "mine.ngb.plot.speedup(by='compiler', baseline='tvm', compiler=['identity', 'openvino'])"
    assert expected == read_code(page)
    assert Spec(eval(expected, {"mine": data})).rows == Spec(_Stored(page.chart)).rows


class _Stored:
    """A chart that has its specification already."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.spec = spec

    def to_dict(self) -> Mapping[str, Any]:
        """Return the specification."""
        return self.spec


def test_every_figure_can_be_chosen(page: RecordingPage) -> None:
    """Each figure draws a dataset with the variables that it needs."""
    page.act("figure-deadline", "50ms")
    for name in {*figures.list_figures()} - {"roofline", "depth", "heatmap", "tcr", *OF_COSTS}:
        page.act("figure", name)

        assert "" == page.parts["figure-error"], name
        assert page.chart is not None


def test_no_older_chart_stays(page: RecordingPage) -> None:
    """The sentence of a figure that cannot be drawn replaces the chart, until it can."""
    page.act("figure", "heatmap")

    assert "the sweep varies no factor" in page.parts["figure-error"]
    assert page.chart is None

    page.act("figure", "frontier")
    page.act("figure-deadline", "50ms")

    assert "" == page.parts["figure-error"]
    assert "mine.ngb.plot.frontier(deadline='50ms')" == read_code(page)
    assert page.chart is not None


def test_the_choice_says_what_a_figure_lacks() -> None:
    """A dataset of a network without factors has nothing to draw for some figures, and the list says why."""
    controls = show(measured())[0].parts["read-controls"]

    assert "networks (needs two networks)" in controls
    assert "depth (needs a factor)" in controls
    assert "tcr (needs a network that compresses)" in controls


def test_unlike_columns_are_shown_on_request() -> None:
    """A choice that only such a dataset has marks its columns, in the table, the figure and the code."""
    data = unlike(sweep(network("net"), compilers=["identity", "openvino", "tvm"]), "openvino")
    page = show(data, "mine")[0]
    controls = page.parts["read-controls"]
    page.act("unlike", "allow")

    assert "left out" in controls
    assert "left out" not in show(measured())[0].parts["read-controls"]
    assert "mine.ngb.allow_unlike().ngb.plot.speedup()" == read_code(page)
    assert {"identity", "openvino †", "tvm"} == {*list_cells(page, 1)}
    assert "openvino †: compared although unlike" in str(page.chart)

    page.act("unlike", "mask")

    assert "mine.ngb.plot.speedup()" == read_code(page)


def test_an_unknown_error_has_its_traceback(page: RecordingPage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that is none of ngbkit's is shown with its traceback, and the next figure is drawn."""
    monkeypatch.setattr(figures, "latency", lambda data: 1 / 0)
    page.act("figure", "latency")

    assert "unexpected error: ZeroDivisionError" in page.parts["figure-error"]

    page.act("figure", "status")

    assert "" == page.parts["figure-error"]


def test_a_figure_of_a_megabyte_is_refused(page: RecordingPage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says its size, and offers its line."""
    monkeypatch.setattr(figure_choice, "MOST_BYTES", 1000)
    page.act("figure", "traces")

    assert page.chart is None
    assert "expected at most 1 kB" in page.parts["figure-error"]


def test_a_filter_applies_to_table_and_figure(page: RecordingPage) -> None:
    """The overview, which selects nothing itself, draws the selected networks too."""
    page.act("filter-workload-0", False)
    page.act("figure", "overview")

    assert {"b"} == {*list_cells(page, 0)}
    assert "mine.sel(workload=['b']).ngb.plot.overview()" == read_code(page)
    assert {"b"} == {row["network"] for row in Spec(_Stored(page.chart)).rows if "network" in row}

    page.act("filter-workload", "none")

    assert "No trial passes the filters" in page.parts["table"]
    assert "no workload is checked" in page.parts["figure-error"]

    page.act("filter-workload", "all")

    assert 12 == len(list_cells(page, 0))


def test_a_head_sorts(page: RecordingPage) -> None:
    """A click sorts by the number and not by its text, and another one the other way round."""
    page.act("sort", "speedup")
    ascending = list_cells(page, 3)
    page.act("sort", "speedup")
    numbers = [float(re.match(r"[\d.]+", text)[0]) for text in ascending]

    assert sorted(numbers) == pytest.approx(numbers, abs=0.05)
    assert float(re.match(r"[\d.]+", list_cells(page, 3)[0])[0]) == max(numbers)
    assert 'aria-sort="descending"' in page.parts["table"]


def test_a_metric_has_its_column_and_figure(page: RecordingPage) -> None:
    """The metric is drawn, too, and the table stays sorted by the metric."""
    page.act("sort", "speedup")
    page.act("metric", "throughput")

    assert "throughput (samples/s) ▲" in page.parts["table"]
    assert "mine.ngb.plot.throughput()" == read_code(page)


def test_a_cell_has_its_interval(page: RecordingPage) -> None:
    """The tooltip of a value has its interval and the number of its samples."""
    assert re.search(r'title="speedup [\d.]+, between [\d.]+ and [\d.]+; 10 samples"', page.parts["table"])


def test_a_long_table_is_cut() -> None:
    """The first hundred of three hundred trials are shown, and a button shows the next."""
    page, _ = show(measured(network("a"), batch_sizes=range(1, 151)))

    assert 100 == len(list_cells(page, 0))
    assert "the first 100 of 300 trials" in page.parts["table"]

    page.act("more-trials")

    assert 200 == len(list_cells(page, 0))


@pytest.mark.parametrize("name", ["throughput", "speedup", "bsr", "break_even", "status", "heatmap", "depth"])
def test_a_mark_opens_its_trial(name: str) -> None:
    """A click on a mark opens the sheet of its trial, and marks its row."""
    data = measured(network("a", width=(8, 16), depth=(1, 2)), devices=["cpu", "orin"])
    page, _ = show(data)
    listed = trials.list_trials(data)
    rows = [row for row in Spec(getattr(figures, name)(data)).rows if row.get("kind", "trial") == "trial"]

    assert rows
    for row in rows[:4]:
        (index,) = trials.match_row(row, listed)
        page.act("pick", row)
        assert trials.to_text(listed[index]) in page.parts["sheet"]
        assert f'data-key="{index}" aria-selected="true"' in page.parts["table"]


def test_a_click_beside_the_marks_changes_nothing(page: RecordingPage) -> None:
    """A click on an axis or on the line of a roof is no click on a trial."""
    for row in ({}, {"device": "cpu", "intensity": 2.0}, {"network": "c", "compiler": "tvm", "batch_size": 1}):
        page.act("pick", row)

    assert "" == page.parts["sheet"]


def test_the_sheet_is_in_words(page: RecordingPage) -> None:
    """A trial has its results, what was timed and its memory in words, with units that people read."""
    page.act("open-trial", "3")
    sheet = re.sub(r"<.*?>", " ", page.parts["sheet"])

    assert "a, openvino, batch 4 on cpu" in sheet
    assert "a call of openvino, in f32, on 1 thread" in sheet
    assert "240 MB" in sheet
    assert re.search(r"error against the reference\s+[\d.]+ times that of identity", sheet)
    assert re.search(r"speed-up\s+[\d.,]+ (± [\d.]+|\([\d.,]+ to [\d.,]+\))", sheet)
    assert not {"contract", "facts", "rmse", "peak_memory"} & {*sheet.split()}

    page.act("close-trial")

    assert "" == page.parts["sheet"]


def test_a_failed_trial_has_its_reason() -> None:
    """The sheet of a failed trial has its status in words and its error, and no samples."""
    data = crashing(sweep(), "openvino", 4)
    labels = {"workload": "net", "compiler": "openvino", "batch_size": 4, "device": "cpu"}
    texts = {line.name: line.text for line in trial_sheet.describe(data, labels)}

    assert ("failed: its process crashed", "signal 11") == (texts["result"], texts["reason"])
    assert "samples" not in texts


def test_what_is_not_conclusive_is_measured_again() -> None:
    """A row that was not checked is marked by a word, and a button measures the run again."""
    data = measured(network("a"))
    texts = {"status": "not-checked", "error": "it is random"}
    data = data.assign({name: data[name].where(data["compiler"] != "openvino", text) for name, text in texts.items()})
    page, section = show(data, run_id="r1")

    assert ["ok", "ok", "not-checked, not conclusive", "not-checked, not conclusive"] == list_cells(page, 5)
    assert "2 trials are not conclusive" in page.parts["inconclusive"]
    assert "Measure these again" not in page.parts["inconclusive"]

    runs: list[str] = []
    section.settle = runs.append
    page.act("sort", "status")
    page.act("settle")

    again = page.parts["inconclusive"]
    page.act("filter-batch_size-0", False)

    assert "Measure these again" in again
    assert "Measure all 2 of the run again" in page.parts["inconclusive"]
    assert ["r1"] == runs


@pytest.mark.parametrize(
    ("kind", "name", "begins"),
    [
        ("PNG", "mine-speedup.png", b"\x89PNG"),
        ("SVG", "mine-speedup.svg", b"<svg"),
        ("PDF 88 mm", "mine-speedup-88mm.pdf", b"%PDF"),
        ("LaTeX 88 mm", "mine-speedup-88mm.tex", b"% Written by ngbkit"),
        ("CSV", "mine-trials.csv", b"workload,"),
        ("NetCDF", "mine.nc", b"\x89HDF"),
    ],
)
def test_it_hands_over_files(page: RecordingPage, kind: str, name: str, begins: bytes) -> None:
    """A button lets the browser save a file, and the sentence below it names the file."""
    page.act("download", kind)

    assert [name] == list(page.files)
    assert page.files[name].startswith(begins)
    assert name in page.parts["read-message"]


def test_files_have_the_selected_trials(page: RecordingPage, tmp_path) -> None:
    """The table has the trials that pass the filters, and the dataset has all."""
    page.act("filter-compiler", "none")
    page.act("filter-compiler-2", True)
    page.act("download", "CSV")
    page.act("download", "NetCDF")
    (tmp_path / "mine.nc").write_bytes(page.files["mine.nc"])
    table = pd.read_csv(StringIO(page.files["mine-trials.csv"].decode()))

    assert (4, {"tvm"}) == (len(table), {*table["compiler"]})
    assert 3 == ngbkit.load(tmp_path / "mine.nc").sizes["compiler"]


def test_a_file_that_cannot_be_written_is_a_sentence(page: RecordingPage) -> None:
    """A figure that cannot be drawn has no picture, and its sentence is below the buttons."""
    page.act("figure", "heatmap")
    page.act("download", "PNG")

    assert {} == page.files
    assert "the sweep varies no factor" in page.parts["read-message"]


def test_it_compares_with_another_dataset(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The datasets of the notebook are offered, and a comparison with one is unfolded below."""
    data, earlier = measured(network("a")), measured(network("a"))
    monkeypatch.setattr(read, "get_ipython", lambda: shell)
    shell.user_ns |= {"ds": data, "before": earlier}
    page, _ = show(data)

    assert '<option value="before">' in page.parts["compare-choice"]
    assert '<option value="ds">' not in page.parts["compare-choice"]

    page.act("compare-choice", "before")
    page.act("compare")

    assert re.search(r"<details open><summary>ds .*against before", page.parts["comparison"])
    assert "<table" in page.parts["comparison"]


def test_a_dataset_without_the_baseline_can_be_read() -> None:
    """The table has the throughput of a dataset without identity, and says why there is no speed-up."""
    page, _ = show(measured(network("a"), compilers=["openvino", "tvm"]))
    page.act("metric", "rtr")

    assert 4 == len(list_cells(page, 0))
    assert "" == page.parts.get("message", "")


def test_the_magic_shows_it(shell: InteractiveShell) -> None:
    """``%ngpanel explore`` takes the name of a dataset."""
    shell.user_ns["ds"] = measured()

    page = shell.run_line_magic("ngpanel", "explore ds")

    assert "ds.ngb.plot.speedup()" == read_code(page)


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
