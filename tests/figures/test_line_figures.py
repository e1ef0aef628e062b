"""Figures with one panel per network and one line per compiler: throughput, speed-up, ASE, BSR, depth, CPU use."""

import pandas as pd
import pytest
import synthetic
import vl_convert
from drawn import Spec, crashing, measured, network, sweep, unlike

from ngbkit import figures
from ngbkit.errors import MetricError, UsageError
from ngbkit.figures import lines, theme

FIGURES = {"throughput": figures.throughput, "speedup": figures.speedup, "ase": figures.ase, "bsr": figures.bsr}


@pytest.mark.parametrize("name", FIGURES)
def test_values_are_those_of_the_metric(name):
    """Each mark has the value and the interval that `ds.ngb` computes for its trial."""
    data = measured(network("a"), network("b"))
    expected = getattr(data.ngb, name)(ci=0.95).squeeze("device")

    rows = [row for row in Spec(FIGURES[name](data)).rows if row["value"] is not None]

    assert rows
    for row in rows:
        trial = expected.sel(workload=row["network"], compiler=row["compiler"], batch_size=row["batch_size"])
        assert float(trial[name]) == pytest.approx(row["value"], rel=1e-5)
        assert float(trial["ci_low"]) == pytest.approx(row["low"], rel=1e-5)


@pytest.mark.parametrize("name", FIGURES)
def test_an_svg_shows_the_networks_and_the_compilers(name):
    """The picture is rendered without a browser, and labels its content."""
    texts = Spec(FIGURES[name](measured(network("a"), network("b"), compilers=["identity", "openvino", "tvm"]))).texts()

    assert {"a", "b", "batch size", "openvino", "tvm"} <= texts


def test_the_baseline_has_no_line_where_it_is_one():
    """Figures relative to identity omit it; ASE and throughput draw it."""
    compilers = {
        name: {row["compiler"] for row in Spec(figure(measured())).rows if row["compiler"]}
        for name, figure in FIGURES.items()
    }

    assert {"openvino"} == compilers["speedup"] == compilers["bsr"]
    assert {"identity", "openvino"} == compilers["throughput"] == compilers["ase"]


def test_a_failed_trial_is_marked_at_the_foot():
    """A failed trial breaks its line, and its shape is in the legend."""
    spec = Spec(figures.speedup(crashing(sweep(batch_sizes=(1, 4, 8)), "openvino", 4)))

    (failed,) = [row for row in spec.rows if row["status"] == "crashed"]
    assert (None, 4.0, 0.0, "signal 11") == tuple(failed[name] for name in ("value", "batch_size", "place", "error"))
    assert [theme.STATUS_SHAPES["crashed"]] == spec.scales("shape")[0]["range"]
    assert {"no result", "crashed"} <= spec.texts()


def test_two_failures_of_one_place_stand_on_each_other():
    """Failures at the same place are stacked, so that no mark covers another."""
    spec = Spec(figures.throughput(measured(compilers=["identity", "openvino", "tvm"], batch_sizes=[1])))
    assert {-1.0} == {row["place"] for row in spec.rows}

    grid = sweep(compilers=["identity", "openvino", "tvm"])
    spec = Spec(figures.throughput(synthetic.make_dataset(grid, failures=1.0)))
    assert {0.0, 1.0, 2.0} == {row["place"] for row in spec.rows}


def test_colours_are_those_of_the_theme():
    """Each compiler has one colour in every figure."""
    (scale, *others) = Spec(figures.throughput(measured())).scales("color")

    assert [theme.adapt(theme.COLOURS[name]) for name in ("identity", "openvino")] == scale["range"]
    assert all(other == scale for other in others)


def test_a_factor_that_varies_most_is_along_the_axis():
    """A line figure of a sweep over widths has one panel per batch size, and a line over the widths."""
    wide = network("net", width=(16, 32, 64, 128))
    figure, panels = (Spec(figures.speedup(measured(wide, batch_sizes=sizes))) for sizes in ([1], [1, 8]))

    assert {"net"} == {row["network"] for row in figure.rows}
    assert {"net, batch 1", "net, batch 8"} == {row["network"] for row in panels.rows}
    assert {16, 32, 64, 128} == {row["width"] for row in panels.rows}
    assert "Speed-up over identity by width" == panels.spec["title"]["text"]
    assert {"log"} == {scale["type"] for scale in panels.scales("x")}


def test_the_values_of_a_factor_are_written_whole():
    """An axis has 32, 48 and 64, and no power of ten of as many digits as their steps have."""
    texts = Spec(figures.speedup(measured(network("net", width=(32, 48, 64)), batch_sizes=[1]))).texts()

    assert {"32", "48", "64"} <= texts


def test_a_metric_of_batch_sizes_keeps_them_along_the_axis():
    """The axis of ASE is the batch size, however many widths there are."""
    spec = Spec(figures.ase(measured(network("net", width=(16, 32, 64)), batch_sizes=[1, 8])))

    assert {"net, width 16", "net, width 32", "net, width 64"} == {row["network"] for row in spec.rows}


def test_values_far_apart_have_a_logarithmic_axis():
    """A compiler that is a thousand times slower is still visible."""
    near = Spec(figures.throughput(measured()))
    data = measured()
    slow = data["latency"].where(data["compiler"] == "identity", 1000 * data["latency"])
    far = Spec(figures.throughput(data.assign(latency=slow)))

    assert "log" not in {scale.get("type") for scale in near.scales("y")}
    assert {"log"} == {scale.get("type") for scale in far.scales("y")} - {None}


def test_a_column_of_another_contract_has_no_speedup():
    """The subtitle names the column and the reason."""
    spec = Spec(figures.speedup(unlike(sweep(compilers=["identity", "openvino", "tvm"]), "openvino")))

    assert "openvino: not compared, precision" in spec.subtitle
    assert {"tvm"} == {row["compiler"] for row in spec.rows if row["value"] is not None}


def test_a_column_of_another_contract_is_drawn_with_a_mark_on_request():
    """Its label is marked in the legend, and the subtitle says what differs."""
    data = unlike(sweep(compilers=["identity", "openvino", "tvm"]), "openvino").ngb.allow_unlike()
    note = "openvino †: compared although unlike, precision bf16 instead of f32"

    assert {"identity", "openvino †", "tvm"} == {*data.ngb.ranking()["compiler"]}
    for figure in (data.ngb.plot.speedup(compiler=["openvino", "tvm"]), data.ngb.plot.throughput()):
        spec = Spec(figure)

        assert note in spec.subtitle
        assert {"openvino †", "tvm"} <= {row["compiler"] for row in spec.rows if row["value"] is not None}
        assert {"openvino †", "tvm"} <= spec.texts()


def test_the_bytes_saved_are_drawn():
    """The figure of a codec has bytes per second."""
    data = measured().assign_coords(input_bytes=("workload", [400]), output_bytes=("workload", [100]))
    spec = Spec(figures.tcr(data))
    rates = data["throughput"].sel(workload="net", compiler="openvino", batch_size=4).item()

    assert "TCR/s (MB/s)" in spec.texts()
    assert rates * 300 / 1e6 == pytest.approx(max(row["value"] for row in spec.rows), rel=1e-3)


def test_a_selection_is_drawn():
    """A figure of selected labels draws only these, relative to others."""
    spec = Spec(measured(batch_sizes=[1, 4, 8]).ngb.plot.speedup(batch_size=[4, 8], compiler="openvino"))

    assert {4.0, 8.0} == {row["batch_size"] for row in spec.rows}
    assert all(row["value"] for row in spec.rows)


def test_too_many_networks_are_counted():
    """Omitted networks are counted in a remark."""
    names = [f"{'abcdefghij'[number % 10] * 3}{number}" for number in range(lines.PANELS + 3)]
    spec = Spec(figures.throughput(measured(*map(network, names))))

    assert "3 more networks are not drawn" in spec.subtitle
    assert lines.PANELS == len({row["network"] for row in spec.rows})


def test_depth_is_along_the_axis_and_batch_sizes_are_panels():
    """There is one panel per network, its other factors and batch size."""
    data = measured(network("block", width=(8, 16), depth=(1, 2, 3)))
    spec = Spec(figures.depth(data))

    assert {"block, width 8, batch 1", "block, width 16, batch 4"} < {row["network"] for row in spec.rows}
    assert {1.0, 2.0, 3.0} == {row["depth"] for row in spec.rows}
    assert "depth" in spec.texts()


def test_depth_needs_a_depth():
    """The error reports the factors of the sweep, and the one to add."""
    with pytest.raises(MetricError, match=r"the sweep varies width\. Add --factor depth=1:6"):
        figures.depth(measured(network("block", width=(8, 16))))


def test_cpu_use_is_absolute_and_relative():
    """The reduction is relative to the use of identity."""
    data = measured()
    spec = Spec(figures.cpu(data))

    use = data["cpu_percent"].sel(device="cpu", workload="net")
    expected = 100 * (1 - use.sel(compiler="openvino") / use.sel(compiler="identity"))
    below = [row for row in spec.rows if row["compiler"] == "openvino" and abs(row["value"]) < 50]
    assert expected.values.tolist() == pytest.approx([row["value"] for row in below], rel=1e-4)
    assert {"CPU use (%)", "CPU reduction against identity (%)"} <= spec.texts()


def test_cpu_use_that_was_not_measured_is_an_error():
    """The error names the variable."""
    with pytest.raises(MetricError, match="cpu_percent"):
        figures.cpu(measured().drop_vars("cpu_percent"))


def test_another_baseline_is_one():
    """Another baseline has no line, and the title names it."""
    data = measured(compilers=["identity", "openvino", "tvm"])
    spec = Spec(figures.speedup(data, baseline="tvm"))

    assert {"identity", "openvino"} == {row["compiler"] for row in spec.rows}
    assert "Speed-up over tvm by batch size" in spec.texts()
    expected = data.ngb.speedup(baseline="tvm").sel(device="cpu", workload="net", compiler="openvino")
    values = [row["value"] for row in spec.rows if row["compiler"] == "openvino"]
    assert expected.values.tolist() == pytest.approx(values, rel=1e-5)


def test_panels_by_compiler_have_a_line_a_network():
    """A designer compares networks under each compiler."""
    spec = Spec(figures.throughput(measured(*map(network, ("a", "b", "c"))), by="compiler"))

    (scale, *_) = spec.scales("color")
    assert ["a", "b", "c"] == scale["domain"]
    assert not set(map(str, scale["range"])) & set(map(str, map(theme.adapt, theme.COLOURS.values())))
    assert {"identity", "openvino", "network"} <= spec.texts()


def test_panels_are_by_network_or_by_compiler():
    """The error lists the valid values."""
    with pytest.raises(UsageError, match=r'invalid by: got .device.; expected "network" or "compiler"'):
        figures.throughput(measured(), by="device")


def test_panels_by_compiler_share_an_axis():
    """The compilers are what is compared; a panel per network has an axis of its own."""
    data = measured(*map(network, "ab"))
    values = {by: Spec(figures.throughput(data, by=by)).spec["resolve"]["scale"]["y"] for by in ("network", "compiler")}

    assert {"network": "independent", "compiler": "shared"} == values


@pytest.mark.parametrize(
    ("name", "title"),
    [("throughput", "throughput (samples/s)"), ("speedup", "speed-up over identity"), ("ase", "ASE"), ("bsr", "BSR")],
)
def test_the_y_axis_has_a_title(name, title):
    """A panel alone says what it shows."""
    assert title in Spec(FIGURES[name](measured())).texts()


def test_intervals_at_one_x_do_not_cover_each_other():
    """The marks of each compiler are shifted by some pixels of their own, and its interval goes through its mark."""
    spec = Spec(figures.throughput(measured(compilers=["identity", "openvino", "tvm"], batch_sizes=[1])))

    points = {item["x"] for item in spec.items("symbol") if item.get("size") == 34}
    intervals = {item["x"] for item in spec.items("rule") if item.get("opacity") == 0.55}
    assert 3 == len(points)
    assert points == intervals


def test_the_axis_of_positive_values_does_not_go_below_zero():
    """A speed-up cannot be negative, however close to zero it is."""
    data = measured(network("block", depth=(1, 2)), batch_sizes=[1])
    slow = (data["compiler"] == "openvino") & (data["depth"] == 1)
    data = data.assign(latency=data["latency"] * (1 + 30 * slow))

    assert not any(text.startswith(("-", "\N{MINUS SIGN}")) for text in Spec(figures.depth(data)).texts())


def test_a_row_of_panels_fits_on_the_page_of_a_notebook():
    """Five panels are narrower than three, so that nothing is cut off in a window of 1,400 pixels."""
    networks = [network(name * 3) for name in "abcde"]
    spec = Spec(figures.throughput(measured(*networks)))

    assert vl_convert.vegalite_to_scenegraph(spec.spec)["width"] < 1000


def test_no_axis_of_negative_values_is_logarithmic():
    """Positive ones that differ much are."""
    values = pd.DataFrame({"value": [0.01, 8.0], "low": [-5.0, 8.0]})

    assert lines.needs_log_axis(values, None)
    assert not lines.needs_log_axis(values.assign(value=[-0.01, 8.0]), None)
    assert not lines.needs_log_axis(pd.concat([values, values.assign(value=-5.0)]), None)
