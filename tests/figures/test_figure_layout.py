"""Figures fit on a page: widths, titles, ticks, legends and notes."""

import json

import pytest
import vl_convert
from drawn import (
    OF_COSTS,
    Spec,
    add_costs,
    draw_example,
    draw_figure,
    flipping,
    list_charts,
    measured,
    network,
    roofed,
)

from ngbkit import figures


def test_a_figure_with_bars_says_what_they_are():
    """The subtitle explains the bars of intervals or quantiles, if there are any."""
    data = flipping()

    for draw in (figures.throughput, figures.speedup, figures.break_even, figures.reversals):
        assert "bars: 90 % intervals" in Spec(draw(data, ci=0.9)).subtitle
        assert "bars" not in Spec(draw(data, ci=None)).subtitle
    assert "bars: the middle half" in Spec(figures.latency(data)).subtitle


def test_three_columns_of_rounds_fit_on_the_page_of_a_notebook():
    """Nothing is cut off in a window of 1,400 pixels."""
    spec = Spec(figures.traces(measured(*map(network, "abc"), batch_sizes=[1])))

    assert vl_convert.vegalite_to_scenegraph(spec.spec)["width"] < 1000


def test_ticks_of_the_roofline_have_labels_of_their_own():
    """Rates within a factor of ten do not round to one number."""
    data = roofed()
    trial = {"compiler": "openvino", "batch_size": 1, "workload": "a"}
    rates = data.ngb.roofline().sel(trial).squeeze()
    peaks = {"flops": 1.1 * float(rates["flops"]), "bytes_per_s": 1.1 * float(rates["flops"] / rates["intensity"])}
    near = data.assign_attrs(environments=json.dumps({"cpu": {"peaks": peaks}}))
    spec = Spec(figures.roofline(near, **trial, ci=None))
    labels = [item["text"] for item in spec.items("text") if str(item.get("text", "")).endswith(("G", "T"))]

    assert len(labels) > 1
    assert len(labels) == len(set(labels))


@pytest.mark.parametrize("draw", [figures.throughput, figures.traces])
def test_the_titles_of_a_row_of_panels_stand_on_one_line(draw):
    """The titles of a row of panels have the same height, whatever their axes."""
    spec = Spec(draw(measured(*map(network, "abc"), batch_sizes=[1])))
    titles = {item["text"]: item for item in spec.items("text") if item.get("fontWeight") == "bold"}

    assert {"a", "b", "c"} <= set(titles)
    assert 1 == len({titles[name]["y"] for name in "abc"})


@pytest.mark.parametrize("name", list_charts())
def test_every_figure_fits_on_the_page_of_a_notebook(name):
    """Nothing is cut off in a window of 1,400 pixels, whatever the number of networks, compilers and batch sizes."""
    names = ["deit3_medium_patch16_224", "swin_s3_small_224", "efficientnet_b3", "resnet50", "convnext_base", "f"]
    compilers = ["identity", "torchscript", "onnxruntime", "openvino", "tvm"]
    factors = {"width": (8, 16)} if name == "heatmap" else {"depth": (1, 2)} if name == "depth" else {}
    batch_sizes = [1] if name == "latency" else [1, 2, 4, 8, 16, 32]
    data = measured(*(network(label, **factors) for label in names), compilers=compilers, batch_sizes=batch_sizes)
    data = add_costs(data.assign_coords(input_bytes=2.0, output_bytes=1.0))
    is_special = name in ("roofline", "changes", *OF_COSTS)
    chart = draw_example(name) if is_special else draw_figure(name, data)

    assert vl_convert.vegalite_to_scenegraph(chart.to_dict())["width"] < 1000


@pytest.mark.parametrize("name", ["speedup", "overview"])
def test_a_network_without_a_name_is_drawn(name):
    """The panel of a network without a name has an empty title."""
    data = measured(network("a")).assign_coords(workload=[""])
    spec = Spec(draw_figure(name, data))

    assert "openvino" in spec.texts()


def test_a_legend_of_many_networks_is_below_its_panels():
    """The legend of many networks is below the panels, in columns."""
    few, many = (
        figures.throughput(
            measured(*(network(f"{'abcd'[number % 4] * 3}{number}") for number in range(count))), by="compiler"
        )
        for count in (4, 20)
    )
    heights = [vl_convert.vegalite_to_scenegraph(chart.to_dict())["height"] for chart in (few, many)]

    assert "bottom" not in json.dumps(few.to_dict()["spec"]["layer"][0]["encoding"]["color"])
    assert heights[1] < heights[0] + 140
