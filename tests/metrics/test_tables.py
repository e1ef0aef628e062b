"""Results as frames, as text and as HTML."""

import math
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import synthetic
from drawn import network
from synthetic_records import build_record

from ngbkit.api import Sweep
from ngbkit.dataset import assembly as datasets
from ngbkit.errors import MetricError, UnknownNameError
from ngbkit.metrics import frames, tables
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.rendering import format_number, to_texts
from ngbkit.sweep.records import Contract, Failure, Measurement, Record
from ngbkit.sweep.trials import Trial
from ngbkit.workloads.base import Workload


def record(trial: Trial) -> Record:
    """Identity takes 0.5 s and openvino 0.25 s at any batch size, where it does not crash: at 4."""
    if (trial.compiler, trial.batch_size) == ("openvino", 4):
        return Failure(trial_id=trial.id, status="crashed", stage="measure", error="signal 11")
    return build_record(trial, [0.5 if trial.compiler == "identity" else 0.25])


def measured(*workloads: Workload, compilers=("identity", "openvino"), batch_sizes=(1, 4), **more) -> datasets.Data:
    sweep = Sweep(list(workloads) or [network("net")], compilers, batch_sizes, repeats=1, **more)
    return datasets.assemble(sweep, map(record, sweep.trials()))


METRICS = ("throughput", "speedup", "rtr", "ase", "bsr")
ENDS = [f"{name}_{end}" for name in METRICS for end in ("low", "high")]
CONCLUSIVE = [f"{name}_conclusive" for name in METRICS]
COLUMNS = ["workload", "device", "compiler", "batch_size", "latency", *METRICS, "compile_time", "status", "error"]


def test_a_row_a_trial():
    """The long form has each trial once, with its metrics, its status and its error."""
    table = frames.to_dataframe(measured())

    assert [
        ("net", "cpu", "identity", 1, 0.5, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, "ok", ""),
        ("net", "cpu", "identity", 4, 0.5, 8.0, 1.0, 4.0, 1.0, 1.0, 1.0, "ok", ""),
        ("net", "cpu", "openvino", 1, 0.25, 4.0, 2.0, 1.0, 1.0, 1.0, 1.0, "ok", ""),
    ] == list(table[COLUMNS].iloc[:3].itertuples(index=False, name=None))
    assert table[ENDS].isna().all(axis=None)  # of a single round
    assert table[CONCLUSIVE].all(axis=None)  # but nothing slowed it
    assert ("openvino", 4, "crashed", "signal 11") == tuple(table.loc[3, ["compiler", "batch_size", "status", "error"]])
    assert table.loc[3, ["latency", "throughput", "speedup", "ase", "bsr"]].isna().all()


def test_metrics_without_their_baseline_are_empty_columns():
    """The table has NaN for a ratio that lacks its baseline."""
    table = frames.to_dataframe(measured(compilers=["openvino"], batch_sizes=[2, 8]))

    assert [8.0, 32.0] == table["throughput"].tolist()
    assert table[["speedup", "rtr", "ase", "bsr"]].isna().all(axis=None)


def test_a_selection_can_be_tabulated():
    """A selected label keeps its column."""
    table = frames.to_dataframe(measured().sel(workload="net", compiler="identity", batch_size=4))

    assert [("net", "cpu", "identity", 4)] == list(table.iloc[:, :4].itertuples(index=False, name=None))


def test_a_column_a_compiler():
    """The wide form has one column per compiler, and the status of trials without a number."""
    table = tables.compact(measured())

    assert ["identity", "openvino"] == list(table.columns)
    assert [("net", 1), ("net", 4)] == list(table.index)
    assert [[2.0, 4.0], [8.0, "crashed"]] == table.values.tolist()
    assert "throughput (samples/s)" == table.attrs["title"]


def test_devices_are_rows_where_there_are_several():
    """The device is in the rows only if there is more than one."""
    table = tables.compact(measured(devices=["cpu", "orin"]), figure="speedup")

    assert ["workload", "device", "batch_size"] == list(table.index.names)
    assert [[1.0, 2.0], [1.0, "crashed"]] * 2 == table.values.tolist()


def test_nodes_stand_under_each_other():
    """Networks with and without factors share a table; missing factors are empty."""
    table = tables.compact(measured(network("net"), network("conv", depth=(1, 2))), figure="latency")

    assert [("net", "", 1), ("net", "", 4), ("conv", 1, 1), ("conv", 1, 4), ("conv", 2, 1), ("conv", 2, 4)] == list(
        table.index
    )
    assert [[0.5, 0.25], [0.5, "crashed"]] * 3 == table.values.tolist()


def test_what_nobody_asked_for_is_left_out():
    """A cell that no run requested is no row, or an empty cell if its row has others."""
    data = measured()
    holed = data.assign(status=data["status"].where(data["batch_size"] < 4, ""))
    partly = data.assign(status=data["status"].where(data["status"] == "ok", ""))

    assert [("net", 1)] == list(tables.compact(holed).index)
    assert [[2.0, 4.0], [8.0, ""]] == tables.compact(partly).values.tolist()


def test_an_unknown_figure_offers_the_nearest():
    """The error suggests a valid figure."""
    with pytest.raises(UnknownNameError, match="Did you mean speedup"):
        tables.compact(measured(), figure="speed-up")


def test_a_figure_without_its_baseline_is_an_error():
    """The error names the trials to add."""
    with pytest.raises(MetricError, match="-c identity,openvino"):
        tables.compact(measured(compilers=["openvino"]), figure="bsr")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0001234567, "1.235e-04"),
        (0.0123456, "0.01235"),
        (0.99996, "1.000"),
        (1.0, "1.000"),
        (12.3456, "12.35"),
        (1234.5678, "1,235"),
        (123456.0, "123,500"),
        (2.5e9, "2.500e+09"),
        (-3.14159, "-3.142"),
        (0.0, "0"),
        (math.nan, "–"),
        (math.inf, "inf"),
    ],
)
def test_numbers_have_four_digits(value, text):
    """A number has four significant digits, and NaN is a dash."""
    assert text == format_number(value)


def test_text_for_a_terminal():
    """The text has a title, labels once, numbers and statuses, and no escape codes outside a terminal."""
    lines = to_texts(tables.compact(measured())).to_text().splitlines()

    assert "throughput (samples/s)" == lines[0]
    assert ["workload", "batch_size", "identity", "openvino"] == lines[1].split()
    assert ["net", "1", "~2.0", "~4.0"] == lines[2].split()
    assert ["4", "~8.0", "crashed"] == lines[3].split()
    assert [UNBOUNDED, APART] == lines[-2:]
    assert not any("\x1b" in line for line in lines)


def test_text_takes_markup_as_it_is():
    """A label with brackets is not parsed as markup."""
    assert "[red]x[/red]" in to_texts(pd.DataFrame({"a": ["[red]x[/red]"]})).to_text()


def test_text_fits_a_width():
    """No line exceeds the width."""
    text = to_texts(tables.compact(measured())).to_text(width=40)

    assert max(map(len, text.splitlines())) <= 40


APART = "two groups also differ by their minutes: 3 % (standard deviation, assumed)"
UNBOUNDED = "~ without an interval: too few rounds; measure more repeats (-r)"
UNLIKE = 'openvino{"precision":"bf16"}: compared although unlike, precision bf16 instead of f32'


@pytest.fixture
def unlike() -> datasets.Data:
    """Openvino in two precisions, and at batch size 4 with more threads."""
    sweep = Sweep([network("net")], ["identity", "openvino", 'openvino{"precision":"bf16"}'], [1, 4], repeats=1)
    precisions = {'openvino{"precision":"bf16"}': "bf16"}

    def measure(trial: Trial) -> Measurement:
        contract = Contract(
            runtime=trial.compiler,
            precision=precisions.get(trial.compiler, "f32"),
            threads=2 if (trial.compiler, trial.batch_size) == ("openvino", 4) else 1,
        )
        result = record(trial)
        measurement = result if isinstance(result, Measurement) else record(replace(trial, batch_size=1))
        return replace(measurement, trial_id=trial.id, contract=contract)

    return datasets.assemble(sweep, map(measure, sweep.trials()))


def test_unlike_columns_are_not_compared_and_a_note_says_so(unlike):
    """A number is omitted if it compares two contracts, and kept if it has one."""
    table = tables.compact(unlike, "speedup")

    assert [[1.0, 2.0], [1.0]] == [table.iloc[0, :2].tolist(), table.iloc[1, :1].tolist()]
    assert table.iloc[:, 2].tolist() == [2.0, 2.0]  # its label asks for it
    assert ["openvino: not compared, threads 2 instead of 1", UNLIKE, UNBOUNDED] == sorted(table.attrs["notes"])
    assert [UNBOUNDED, APART] == tables.compact(unlike).attrs["notes"]
    headers = [to_texts(frame).header[-2:] for frame in (table, tables.compact(unlike))]
    assert [["openvino", 'openvino{"precision":"bf16"} †'], ["openvino", 'openvino{"precision":"bf16"}']] == headers
    over_batches = "openvino: not compared over batch sizes, threads 2 instead of 1"
    assert [UNBOUNDED, f"rtr: of throughputs minutes apart; {APART}", over_batches] == (
        tables.compact(unlike, "rtr").attrs["notes"]
    )
    assert 3 == len(frames.to_dataframe(unlike).attrs["notes"])


def test_notes_stand_below_the_table(unlike):
    """Notes are separate lines of the text, and a paragraph below the HTML table."""
    table = tables.compact(unlike, "speedup")

    assert set(table.attrs["notes"]) == set(to_texts(table).to_text().splitlines()[-3:])
    assert all(len(line) <= 80 for line in to_texts(table).to_text(width=80).splitlines())
    page = Tags(to_texts(table).to_html())
    assert ["table", "p"] == [tag for tag in page.tags if tag in ("table", "p")]
    assert table.attrs["notes"] == page.texts[-3:]


class Tags(HTMLParser):
    """Collects tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.texts.append(data)


def test_html_is_a_table_of_its_own():
    """The page has a table with the same cells, and loads or runs nothing."""
    page = Tags(to_texts(tables.compact(measured())).to_html())

    assert ["throughput (samples/s)", "workload", "batch_size", "identity", "openvino"] == page.texts[:5]
    assert ["net", "1", "~2.0", "~4.0", "4", "~8.0", "crashed", UNBOUNDED, APART] == page.texts[5:]
    assert {"table", "caption", "thead", "tbody", "tr", "th", "td", "p", "br"} == set(page.tags)
    assert {"style"} == page.names


def test_a_number_has_one_line():
    """No thousands separator is a place to fold, and a table that fits on a page has one line a row."""
    html = to_texts(pd.DataFrame({"network": ["a"], "speed": [12345.5]})).to_html()

    assert "12,350" in html
    assert "<wbr>" not in html
    assert "white-space: nowrap" in html.partition(">")[0]


def test_html_is_escaped():
    """A label with tags stays text."""
    page = Tags(to_texts(pd.DataFrame({"<b>": ["<script>x</script>", "a & b"]})).to_html())

    assert "script" not in page.tags
    assert ["<b>", "<script>x</script>", "a & b"] == page.texts


def build_blocks() -> datasets.Data:
    networks = [network("conv", depth=(1, 2, 4), width=(16, 32))]
    return synthetic.make_dataset(Sweep(networks, ["identity", "openvino"], [1, 4], repeats=10))


@pytest.mark.parametrize(
    ("figure", "rows"),
    [
        ("depth_slope", ["workload", "width", "batch_size"]),
        ("retention", ["workload", "width", "batch_size"]),
        ("friction", ["workload", "depth"]),
        ("break_even", ["workload", "depth", "width", "batch_size"]),
        ("break_even_warm", ["workload", "depth", "width", "batch_size"]),
    ],
)
def test_a_metric_of_several_trials_has_a_table(figure, rows):
    """The table of a metric over several trials lacks the dim that it reduces."""
    table = tables.compact(build_blocks(), figure)

    assert set(rows) == set(table.index.names)
    assert ["identity", "openvino"] == list(table.columns)
    assert all(isinstance(cell, Estimate) and cell.bounded for cell in table["openvino"])
    assert table.attrs["title"].startswith({"f": "growth", "b": "calls", "d": "least", "r": "speed-up"}[figure[0]])


def test_the_baseline_over_itself_is_exact():
    """The baseline over itself has the slope 0, the retention 1 and the break-even 0, exactly."""
    for figure, number in (("depth_slope", "0"), ("retention", "1"), ("break_even", "0")):
        assert {number} == {str(cell) for cell in tables.compact(build_blocks(), figure)["identity"]}


def test_nodes_without_the_factor_have_no_rows():
    """The table of a tree omits nodes without the factor; that of a dataset is an error."""
    tree = measured(network("net"), network("conv", depth=(1, 2)))

    assert {"conv"} == set(tables.compact(tree, "retention").index.get_level_values("workload"))
    with pytest.raises(MetricError, match="--factor depth=1"):
        tables.compact(measured(), "retention")


def test_a_curve_that_is_not_monotone_is_named(deepening):
    """The table names a curve whose slope and retention contradict each other."""
    seconds = np.array([1, 0.5, 1, 0.9, 1, 0.51]).reshape(3, 2, 1, 1)
    odd = deepening.assign(latency=deepening["latency"].copy(data=seconds)).assign_coords(depth=[1, 2, 9])
    odd = odd.expand_dims(workload=["conv"], device=["cpu"])
    note = "slope and retention contradict each other, so neither describes: fast on conv batch_size 1"

    assert [note] == [line for line in tables.compact(odd, "depth_slope").attrs["notes"] if "contradict" in line]
    chosen = tables.compact(odd, "retention", select={"compiler": "identity"}).attrs["notes"]
    assert [] == [line for line in chosen if "contradict" in line]


def test_rows_of_groups():
    """Networks are replaced by the geometric mean of their group."""
    data = synthetic.make_dataset(Sweep(list(map(network, "abc")), ["identity", "openvino"], [1, 4], repeats=10))
    table = tables.compact(data, "speedup", by={"a": "small", "b": "small", "c": "large"})
    means = data.ngb.mean(by={"a": "small", "b": "small", "c": "large"})

    assert [("small", 1), ("small", 4), ("large", 1), ("large", 4)] == table.index.tolist()
    assert means.sel(device="cpu", compiler="openvino").values.ravel().tolist() == table["openvino"].tolist()
    assert all(cell.bounded for cell in table["openvino"])
    with pytest.raises(UnknownNameError, match="unknown metric 'compile_time'"):
        tables.compact(data, "compile_time", by={"a": "small"})


def test_labels_are_selected_after_the_numbers():
    """The baseline need not be among them; columns stand in the order of the selection."""
    table = tables.compact(measured(), "bsr", select={"compiler": ["openvino"], "batch_size": 4})

    assert ([("net", 4)], ["openvino"]) == (list(table.index), list(table.columns))
    assert ["openvino", "identity"] == list(tables.compact(measured(), select={"compiler": ["openvino", "identity"]}))
    with pytest.raises(UnknownNameError, match="Did you mean openvino"):
        tables.compact(measured(), select={"compiler": "opnvino"})
    with pytest.raises(UnknownNameError, match="unknown batch size '3'"):
        tables.compact(measured(), select={"batch_size": 3})
    with pytest.raises(UnknownNameError, match="unknown dim 'width'"):
        tables.compact(measured(), select={"width": 3})


def test_a_variable_that_is_missing_is_an_error():
    """The error names the variable that a user dropped."""
    with pytest.raises(MetricError, match="no 'peak_memory'"):
        tables.compact(measured().drop_vars("peak_memory"), "peak_memory")


def test_a_table_displays_itself():
    """A table displays as HTML in a notebook and as text in a terminal."""
    frame = tables.compact(measured())
    table = tables.Table(frame)

    assert (to_texts(frame).to_html(), to_texts(frame).to_text()) == (table._repr_html_(), repr(table))
    assert table.frame is frame


def test_the_first_rows_are_those_of_the_whole_table() -> None:
    """A table of the first rows has the intervals of the whole one, and counts the other rows.

    What rounds resemble each other is pooled over the networks that are drawn: a share of 0.001 of an interval's width.
    """
    networks = [network(f"net{index}") for index in range(400)]
    data = synthetic.make_dataset(Sweep(networks, ["identity", "openvino"], [1, 4], repeats=10))
    table, first = tables.compact(data, "speedup"), tables.compact(data, "speedup", most=3)
    ends = [[(cell.low, cell.high) for cell in rows["openvino"]] for rows in (table.head(3), first)]

    assert 797 == first.attrs["left_out"]
    assert "… and 797 more rows" == first.attrs["notes"][0]
    for complete, part in zip(*ends, strict=True):
        assert part == pytest.approx(complete, abs=0.01 * (complete[1] - complete[0]))
