"""The overview: its panels, its marks and its remarks."""

from dataclasses import replace

import altair as alt
import pytest
import synthetic
from drawn import read

from ngbkit.api import Sweep
from ngbkit.dataset import assembly as datasets
from ngbkit.figures import theme
from ngbkit.figures.charts.overview import NETWORKS, overview
from ngbkit.sweep.records import Failure
from ngbkit.workloads.base import Workload


def network(name: str, **factors: tuple[float, ...]) -> Workload:
    return Workload(name=name, source="timm", spec={"name": name}, takes=tuple(factors), factors=factors)


def sweep(*workloads: Workload, compilers=("identity", "openvino"), batch_sizes=(1, 4), **more) -> Sweep:
    return Sweep(list(workloads) or [network("net")], compilers, batch_sizes, repeats=10, **more)


def drawn(data: datasets.Data) -> dict:
    """The specification; altair checks it against Vega-Lite's schema."""
    return overview(data).to_dict()


def titles(spec: dict) -> list[str]:
    """The title of each row, the last layer of its first panel."""
    layers = [panels(spec, row)[0]["layer"][-1] for row in range(len(spec["concat"]))]
    return [read(spec["datasets"][layer["data"]["name"]])[0]["network"] for layer in layers]


def panels(spec: dict, row: int = 0) -> list[dict]:
    return spec["concat"][row]["hconcat"]


def rows(spec: dict, layer: int) -> list[dict]:
    """The data of a layer of the first panel; altair hoists data that layers share."""
    panel = panels(spec)[0]
    panel = {**panel, "layer": panel["layer"][:-1]}  # without its title
    owner = next(part for part in (panel["layer"][layer], panel, spec["concat"][0], spec) if "data" in part)
    return read(spec["datasets"][owner["data"]["name"]])


def test_a_row_a_network_with_the_speedup_beside():
    """Each network has a row of two panels with axis titles."""
    spec = drawn(synthetic.make_dataset(sweep(network("a"), network("b"))))

    assert ["a", "b"] == titles(spec)
    for row in (0, 1):
        axes = [panel["layer"][0]["encoding"]["y"]["title"] for panel in panels(spec, row)]
        assert ["throughput (samples/s)", "speed-up over identity"] == axes


def test_every_trial_is_in_its_panel():
    """The lines have every compiler at every batch size, with the dataset's own numbers."""
    data = synthetic.make_dataset(sweep())
    spec = drawn(data)

    throughputs = {(row["compiler"], row["batch_size"]): row["value"] for row in rows(spec, 0)}

    expected = data["throughput"].sel(device="cpu", workload="net").to_series().to_dict()
    assert expected == pytest.approx(throughputs)


def test_colours_are_those_of_the_theme():
    """The scale maps each compiler to its fixed colour."""
    scale = panels(drawn(synthetic.make_dataset(sweep())))[0]["layer"][0]["encoding"]["color"]["scale"]

    assert ["identity", "openvino"] == scale["domain"]
    assert [theme.adapt(theme.COLOURS[name]) for name in ("identity", "openvino")] == scale["range"]


@pytest.fixture
def crashed() -> datasets.Data:
    """openvino crashed at batch size 4."""
    grid = sweep(batch_sizes=(1, 4, 8))
    trial = next(trial for trial in grid.trials() if (trial.compiler, trial.batch_size) == ("openvino", 4))
    failure = Failure(trial_id=trial.id, status="crashed", stage="measure", error="signal 11")
    return datasets.assemble(grid, [*synthetic.make_records(grid), failure])


def test_a_failed_trial_is_marked(crashed):
    """A failure is a mark at its batch size inside the panel, whose shape is in the legend, and breaks its line."""
    spec = drawn(crashed)
    failed = panels(spec)[0]["layer"][-2]

    (mark,) = [row for row in rows(spec, 0) if row["value"] is None]
    assert ("openvino", 4, "crashed", "signal 11") == tuple(
        mark[name] for name in ("compiler", "batch_size", "status", "error")
    )
    assert ["crashed"] == failed["encoding"]["shape"]["scale"]["domain"]


def test_failures_of_one_batch_size_do_not_cover_each_other():
    """Marks at one position of the x axis differ on the y axis."""
    compilers = ["identity", "openvino", "tvm"]
    spec = drawn(synthetic.make_dataset(sweep(compilers=compilers), failures=1.0))

    assert 6 == len({(row["batch_size"], row["place"]) for row in rows(spec, 0)})


def test_one_batch_size_is_bars():
    """A single batch size has no lines: compilers are bars, and failures are texts."""
    spec = drawn(synthetic.make_dataset(sweep(batch_sizes=[8]), failures=1.0))
    layers = panels(spec)[0]["layer"][:-1]

    assert ["bar", "rule", "text", "text"] == [layer["mark"]["type"] for layer in layers]
    assert {row["why"] for row in rows(spec, -1)} <= set(theme.STATUS_SHAPES)
    assert "batch size 8" in spec["title"]["subtitle"]


def test_throughput_starts_at_zero_unless_it_spans_much():
    """The axis is linear from zero; where values differ 50-fold it is logarithmic."""
    near = panels(drawn(synthetic.make_dataset(sweep())))[0]["layer"][0]["encoding"]["y"]["scale"]
    far = drawn(synthetic.make_dataset(sweep(network("b", width=(8, 512)), batch_sizes=(1, 256, 4096))))

    assert near["zero"]
    assert "type" not in near
    assert "log" == panels(far)[0]["layer"][0]["encoding"]["y"]["scale"]["type"]


def test_without_identity_there_is_no_speedup():
    """The figure omits the panel and explains why."""
    spec = drawn(synthetic.make_dataset(sweep(compilers=["openvino"])))

    assert 1 == len(panels(spec))
    assert any("no speed-up" in line for line in spec["title"]["subtitle"])


def test_unlike_columns_are_named():
    """A column of another contract has a throughput but no speed-up, and the subtitle explains why."""
    grid = sweep(compilers=["identity", "openvino"])
    records = [
        replace(record, contract=replace(record.contract, precision="bf16")) if trial.compiler == "openvino" else record
        for trial, record in zip(grid.trials(), synthetic.make_records(grid), strict=True)
    ]

    spec = drawn(datasets.assemble(grid, records))

    assert "openvino: not compared, precision bf16 instead of f32" in spec["title"]["subtitle"]
    assert not any("no speed-up" in line for line in spec["title"]["subtitle"])
    assert {True} == {row["value"] is not None for row in rows(spec, 0)}


def test_the_subtitle_says_where_it_comes_from():
    """The subtitle names samples, device and run, and marks synthetic data."""
    data = synthetic.make_dataset(sweep(), run_id="r42")

    assert [
        "median of 10 samples per trial · device cpu · run r42",
        "bars: 95 % intervals",
        "synthetic: nothing was measured",
    ] == drawn(data)["title"]["subtitle"]


def test_pending_trials_are_counted():
    """A figure of a live run counts the pending trials."""
    grid = sweep()
    half = datasets.assemble(grid, synthetic.make_records(grid)[:1])

    assert "3 trials are pending" in drawn(half)["title"]["subtitle"]


def test_nothing_measured_yet_is_drawn_too():
    """A dataset of pending trials yields an empty figure, not an error."""
    assert ["net"] == titles(drawn(datasets.assemble(sweep(), [])))


def test_factors_are_drawn_at_their_extremes():
    """The overview draws the smallest and the largest value of a factor, and its subtitle says so."""
    spec = drawn(synthetic.make_dataset(sweep(network("c", width=(8, 16), depth=(2, 1, 6)))))

    assert {f"c, width {width}, depth {depth}" for width in (8, 16) for depth in (1, 6)} == set(titles(spec))
    assert "only the smallest and the largest depth are drawn" in spec["title"]["subtitle"]


def test_a_width_sweep_at_one_batch_size_is_one_row_of_lines():
    """Every width is along the axis of one row, in which a line of each compiler runs."""
    spec = drawn(synthetic.make_dataset(sweep(network("c", width=(8, 16, 32)), batch_sizes=[1])))

    assert ["c"] == titles(spec)
    assert ["width", "width"] == [panel["layer"][0]["encoding"]["x"]["title"] for panel in panels(spec)]
    assert "batch size 1" in spec["title"]["subtitle"]
    assert not any("smallest" in line for line in spec["title"]["subtitle"])


def test_devices_and_nodes_have_rows_of_their_own():
    """All nodes of a tree are drawn, and titles name the device if there are several."""
    grid = sweep(network("a"), network("c", depth=(1, 2)), devices=["cpu", "orin"])

    assert [
        "a on cpu",
        "a on orin",
        "c, depth 1 on cpu",
        "c, depth 2 on cpu",
        "c, depth 1 on orin",
        "c, depth 2 on orin",
    ] == sorted(titles(drawn(synthetic.make_dataset(grid))), key=lambda title: (title[0], title[-4:] != " cpu", title))


def test_a_figure_does_not_grow_without_end():
    """Networks beyond the sixteenth are not drawn, and the subtitle says so."""
    spec = drawn(synthetic.make_dataset(sweep(*[network(f"n{number}") for number in range(18)])))

    assert NETWORKS == len(titles(spec))
    assert "2 more networks are not drawn, starting with n16" in spec["title"]["subtitle"]


def test_the_data_is_inside():
    """The chart embeds its data and refers to no file or address."""
    chart = overview(synthetic.make_dataset(sweep()))

    assert isinstance(chart, alt.ConcatChart)
    assert '"url"' not in chart.to_json()
