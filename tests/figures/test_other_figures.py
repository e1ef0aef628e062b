"""Figures of other kinds: heat maps, reversals, break-even, samples, rounds, statuses, rooflines."""

from xml.etree import ElementTree

import numpy as np
import pytest
import synthetic
import vl_convert
import xarray as xr
from drawn import (
    Spec,
    crashing,
    flipping,
    measured,
    network,
    roofed,
    sweep,
)

from ngbkit import figures
from ngbkit.errors import MetricError, UsageError
from ngbkit.figures import theme


def test_a_cell_of_the_heatmap_is_an_ase():
    """Cells are by batch and width, with their number as text."""
    data = measured(network("block", width=(8, 16)), batch_sizes=[1, 4])
    spec = Spec(figures.heatmap(data))

    expected = data.ngb.ase().sel(device="cpu", workload="block")
    for row in spec.rows:
        value = float(expected.sel(width=row["width"], compiler=row["compiler"], batch_size=row["batch_size"]))
        assert value == pytest.approx(row["value"], rel=1e-5)
        assert f"{value:.2f}" == f"{float(row['mark']):.2f}"
    assert {"block · identity", "block · openvino", "width", "1.00"} <= spec.texts()


def test_a_failed_cell_says_how():
    """A word replaces the number."""
    spec = Spec(figures.heatmap(crashing(sweep(network("block", width=(8, 16))), "openvino", 4)))

    assert {"crash"} == {row["mark"] for row in spec.rows if row["status"] == "crashed"}
    assert "crash" in spec.texts()


def test_a_heatmap_needs_widths():
    """The error reports the factors of the sweep."""
    with pytest.raises(MetricError, match="the sweep varies depth"):
        figures.heatmap(measured(network("block", depth=(1, 2))))


def test_pairs_that_change_places_are_drawn_with_both_ends():
    """There is one panel per pair: two networks in two columns, at their throughputs."""
    data = flipping()
    spec = Spec(figures.reversals(data))

    assert {("a", "identity"), ("a", "openvino"), ("b", "identity"), ("b", "openvino")} == {
        (row["network"], row["column"]) for row in spec.rows
    }
    for row in spec.rows:
        throughput = data["throughput"].sel(workload=row["network"], compiler=row["column"], batch_size=1, device="cpu")
        assert float(throughput) == pytest.approx(row["value"], rel=1e-4)
    assert {"a", "b", "a / b", "batch 1, 100% sure"} <= spec.texts()


def test_no_reversal_is_an_empty_panel_that_says_so():
    """An order that holds everywhere is a result: Run All goes on."""
    spec = Spec(figures.reversals(flipping(), workload=["a", "c"]))

    assert "No two of these networks reverse their order with a probability of at least 0.95." in spec.texts()
    assert "no reversal" in spec.texts()
    assert "device cpu" in spec.subtitle


def test_break_even_is_where_the_metric_has_it():
    """The seconds of a mark over its savings per call equal the calls of `ds.ngb.break_even`."""
    data = measured(*map(network, "ab"), compilers=["identity", "openvino", "tvm"])
    spec = Spec(figures.break_even(data))

    expected = data.ngb.break_even().sel(device="cpu")
    rows = [row for row in spec.rows if row["kind"] == "trial" and row["value"] > 0]
    assert rows
    for row in rows:
        trial = {"workload": row["network"], "compiler": row["compiler"], "batch_size": int(row["panel"].split()[1])}
        calls = float(expected.sel(trial))
        assert calls == pytest.approx(row["calls"], rel=1e-4)
        assert calls == pytest.approx(1e3 * row["seconds"] / row["value"], rel=1e-4)


def test_a_diagonal_is_of_one_number_of_calls():
    """Seconds over savings equal the number of the label along a diagonal."""
    spec = Spec(figures.break_even(measured(*map(network, "ab"))))

    ends = [row for row in spec.rows if row["kind"] == "diagonal"]
    assert ends
    for row in ends:
        calls = float(row["label"].split()[0].replace(",", ""))
        assert calls == pytest.approx(1e3 * row["seconds"] / row["value"], rel=1e-4)


def test_what_saves_nothing_lies_at_the_foot():
    """The subtitle counts the trials that save nothing."""
    data = flipping()
    data["compile_time"] = data["throughput"].copy(data=np.full(data["throughput"].shape, 2.0))

    spec = Spec(figures.break_even(data))

    assert [("a", True), ("b", False), ("c", False)] == [
        (row["network"], row["value"] <= 0) for row in spec.rows if row["kind"] == "trial"
    ]


def test_every_sample_is_a_stroke():
    """There is one stroke per sample, at its milliseconds, and the quantiles of each trial."""
    data = measured(batch_sizes=[1])
    spec = Spec(figures.latency(data))

    strokes = sorted(row["ms"] for row in spec.rows if row["kind"] == "sample")
    assert sorted((data["latency"].values.ravel() * 1e3).tolist()) == pytest.approx(strokes, rel=1e-4)
    (trial,) = [row for row in spec.rows if row["kind"] == "trial" and row["compiler"] == "openvino"]
    values = data["latency"].sel(compiler="openvino").values * 1e3
    assert np.quantile(values, [0.05, 0.5, 0.95]).tolist() == pytest.approx(
        [trial[name] for name in ("p5", "median", "p95")], rel=1e-4
    )


def test_a_trial_without_samples_says_why():
    """The row of a trial without samples shows its status."""
    assert "crashed" in Spec(figures.latency(crashing(sweep(), "openvino", 4))).texts()


def test_a_dataset_without_samples_has_no_distribution():
    """The error names the dataset to use."""
    with pytest.raises(MetricError, match="draws samples"):
        figures.latency(measured().drop_vars(["latency", "round"]))


def test_traces_are_round_by_round():
    """Each point is the median of a round over the median of these."""
    data = measured(batch_sizes=[1])
    spec = Spec(figures.traces(data))

    rows = [row for row in spec.rows if row["compiler"] == "openvino"]
    trial = data.sel(compiler="openvino", device="cpu", workload="net", batch_size=1)
    medians = [
        float(np.median(trial["latency"].values[trial["round"].values == number])) * 1e3
        for number in np.unique(trial["round"].values)
    ]
    assert medians == pytest.approx([row["ms"] for row in rows], rel=1e-4)
    assert (np.array(medians) / np.median(medians)).tolist() == pytest.approx(
        [row["relative"] for row in rows], rel=1e-3
    )


def test_contended_rounds_are_shaded():
    """The subtitle explains the shade, if there is any."""
    data = measured(batch_sizes=[1])
    shaken = data.assign(contended=data["round"].where(data["round"] == 3, 0) > 0)

    quiet, spec = Spec(figures.traces(data)), Spec(figures.traces(shaken))

    assert {3.0} == {row["round"] for row in spec.rows if row["contended"]}
    assert "shaded" in spec.subtitle
    assert "shaded" not in quiet.subtitle


def test_the_status_of_every_trial_is_in_a_cell():
    """Each status is a colour and a word, and the subtitle counts them."""
    grid = sweep(*map(network, "abcdef"), compilers=["identity", "openvino", "tvm"], batch_sizes=[1, 4, 8])
    data = synthetic.make_dataset(grid, failures=0.7)
    spec = Spec(figures.status(data))

    expected = {
        (workload, compiler, float(size)): str(
            data["status"].sel(workload=workload, compiler=compiler, batch_size=size)[0].item()
        )
        for workload in "abcdef"
        for compiler in ("identity", "openvino", "tvm")
        for size in (1, 4, 8)
    }
    assert expected == {(row["network"], row["compiler"], row["batch_size"]): row["status"] for row in spec.rows}
    assert {theme.STATUS_WORDS[status] for status in expected.values()} <= spec.texts()
    assert f"54 trials: {list(expected.values()).count('ok')} ok" in spec.subtitle


def test_a_status_is_read_on_its_colour():
    """Text is black on light colours and white on dark ones."""
    assert [theme.BLACK, theme.WHITE, theme.BLACK] == [
        theme.choose_ink(colour) for colour in ("#FFFFFF", "#332288", "#E69F00")
    ]
    assert set(theme.STATUS_WORDS) == set(theme.STATUS_COLOURS)


def test_the_roof_is_the_devices_own():
    """The ridge of the roof is at peak over bandwidth, and marks have the values of `ds.ngb.roofline`."""
    data = roofed()
    spec = Spec(figures.roofline(data))

    roof = [(row["intensity"], row["value"]) for row in spec.rows if row["kind"] == "roof"]
    assert (50.0, 1e12) in roof
    assert all(value == pytest.approx(min(1e12, 2e10 * intensity)) for intensity, value in roof)
    expected = data.ngb.roofline().sel(device="cpu")
    for row in spec.rows:
        if row["kind"] == "trial":
            trial = {name: row[name] for name in ("compiler", "batch_size")} | {"workload": row["network"]}
            assert float(expected["flops"].sel(trial)) == pytest.approx(row["value"], rel=1e-4)
            assert row["low"] < row["value"] < row["high"]


def test_every_figure_is_a_method():
    """`ds.ngb.plot` has every figure of `ngbkit.figures`, with its documentation."""
    plots = measured().ngb.plot

    assert figures.list_figures() == [name for name in dir(plots) if not name.startswith("_")]
    for name in figures.list_figures():
        assert getattr(figures, name).__doc__ == getattr(plots, name).__doc__


def test_nothing_left_to_draw_is_an_error():
    """The error for an empty selection repeats the selection."""
    data = measured(network("block", width=(8, 16)))

    with pytest.raises(UsageError, match=r"no trial with batch_size=\[\]"):
        figures.throughput(data, batch_size=[])


def disturb(data, compiler="openvino", batch_size=4):
    """The dataset, with every sample of one compiler at one batch size contended: its trials are not conclusive."""
    marked = (data["compiler"] == compiler) & (data["batch_size"] == batch_size)
    return data.assign(contended=(xr.zeros_like(data["latency"]) + marked).astype(bool))


def test_what_is_not_conclusive_is_marked_in_every_figure_of_estimates():
    """Every figure of estimates marks inconclusive numbers and names them in its subtitle."""
    blocks = measured(network("block", width=(8, 16)))
    cells = [row for row in Spec(figures.heatmap(disturb(blocks))).rows if str(row["mark"]).endswith("?")]
    assert {("openvino", 4.0)} == {(row["compiler"], row["batch_size"]) for row in cells}
    assert not any(str(row["mark"]).endswith("?") for row in Spec(figures.heatmap(blocks)).rows)

    quiet, bent = flipping(), disturb(flipping(), batch_size=1)
    for draw in (figures.break_even, figures.reversals, figures.speedup, figures.latency):
        conclusive, inconclusive = Spec(draw(quiet)), Spec(draw(bent))
        assert "are not conclusive" in inconclusive.subtitle
        assert "conclusive" not in conclusive.subtitle
        if draw is not figures.latency:  # it draws the samples themselves
            assert inconclusive.marks().count("point") == conclusive.marks().count("point") + 1


def test_samples_that_estimates_leave_out_are_pale():
    """The median and the quantiles are of the others; those of a trial that is not conclusive are of all."""
    data = measured(batch_sizes=[1], compilers=["identity", "openvino", "tvm"])
    is_slow = (data["round"] < 3) & (data["compiler"] == "openvino")
    data = data.assign(latency=data["latency"] * xr.where(is_slow, 10, 1), contended=is_slow)
    spec = Spec(figures.latency(data))
    (trial,) = (row for row in spec.rows if row["kind"] == "trial" and row["compiler"] == "openvino")
    samples = data["latency"].sel(compiler="openvino").squeeze() * 1e3

    assert 3 == sum(row["kind"] == "unused" for row in spec.rows)
    others = samples[~is_slow.sel(compiler="openvino").squeeze()]
    assert float(others.median()) == pytest.approx(trial["median"], rel=1e-4)
    assert trial["p95"] < 10 * trial["p5"]
    assert "unused" not in {row["kind"] for row in Spec(figures.latency(disturb(data, batch_size=1))).rows}


def test_a_heatmap_of_one_batch_size_is_an_error():
    """Every cell would be 1 by definition; the error says what to add."""
    with pytest.raises(
        MetricError, match=r"compares batch sizes, and the sweep has only 1\. Add another, such as -b 1,8"
    ):
        figures.heatmap(measured(network("block", width=(8, 16)), batch_sizes=[1]))


@pytest.mark.parametrize(("draw", "data"), [(figures.break_even, flipping), (figures.roofline, roofed)])
def test_a_mark_shows_its_network(draw, data):
    """Colours are of compilers, shapes of networks, and the legend has both."""
    spec = Spec(draw(data()))

    assert {"network", "compiler", "a", "b"} <= spec.texts()
    shapes = spec.scales("shape")[0]
    assert list(theme.NETWORK_SHAPES[: len(shapes["domain"])]) == shapes["range"]


def test_more_networks_than_shapes_are_in_the_tooltips():
    """The subtitle says where the network of a mark is."""
    spec = Spec(figures.break_even(measured(*map(network, "abcdefghi"))))

    assert "9 networks: the tooltip of a mark names its own" in spec.subtitle
    assert "network" not in spec.texts()


def test_a_heatmap_of_a_tree_has_no_empty_rows():
    """Each network has rows of its own widths alone."""
    tree = xr.DataTree.from_dict(
        {
            "/a": measured(network("narrow", width=(8, 16)), compilers=["identity"]),
            "/b": measured(network("wide", width=(64, 96, 128)), compilers=["identity"]),
        }
    )
    spec = Spec(figures.heatmap(tree))

    heights = [item["height"] for item in spec.items("group") if item.get("height") and item.get("width") == 88]
    assert [2, 3] == [round(height / 22) for height in heights]


def test_a_failed_cell_is_not_an_efficiency_of_zero():
    """A failed cell has no colour of the scale."""
    spec = Spec(figures.heatmap(crashing(sweep(network("block", width=(8, 16))), "openvino", 4)))
    root = ElementTree.fromstring(vl_convert.vegalite_to_svg(spec.spec))
    cells = [
        path.get("fill") for path in root.iter("{http://www.w3.org/2000/svg}path") if path.get("stroke") == "white"
    ]

    assert sum(row["value"] is not None for row in spec.rows) == len([fill for fill in cells if fill != "#DDDDDD"])


def test_rounds_of_merged_runs_are_counted_from_zero():
    """A merged dataset numbers the rounds of each run from another million."""
    data = measured(batch_sizes=[1])
    rounds = [Spec(figures.traces(part)).rows for part in (data, data.assign(round=data["round"] + 1_000_000))]

    assert rounds[0] == rounds[1]
    assert 0 == min(row["round"] for row in rounds[1])
