"""The representation of a chart in a notebook: a specification with a picture, and small."""

import base64
import json
from pathlib import Path

import altair as alt
import pytest
import synthetic
from drawn import measured, network
from IPython.core.interactiveshell import InteractiveShell
from PIL import Image

from ngbkit import figures
from ngbkit.api import Sweep
from ngbkit.dataset import assembly as datasets
from ngbkit.figures import converter, renderer
from ngbkit.notebook import objects

MOST_BYTES = 1_000_000


@pytest.fixture
def shell():
    shell = InteractiveShell()
    objects.register(shell)
    yield shell
    objects.unregister(shell)


def test_a_chart_is_a_specification_with_a_picture(shell):
    """A chart has a specification for JupyterLab, an SVG and a text, and no page that fetches scripts."""
    chart = figures.throughput(measured())

    bundle, _ = shell.display_formatter.format(chart)

    assert {renderer.MIME, "image/svg+xml", "text/plain"} == set(bundle)
    assert chart.to_dict() == bundle[renderer.MIME]
    assert bundle["image/svg+xml"].startswith("<svg")
    assert "Throughput (samples/s) by batch size" == bundle["text/plain"]


def test_a_chart_of_ones_own_is_shown_so_too(shell):
    """Every altair chart has a picture."""
    chart = alt.Chart(alt.InlineData(values=[{"x": 1}])).mark_point().encode(x="x:Q")

    bundle, _ = shell.display_formatter.format(chart)

    assert {renderer.MIME, "image/svg+xml", "text/plain"} == set(bundle)


def test_a_renderer_of_the_users_choice_stays(shell):
    """A renderer that the user enabled is used."""
    chart = alt.Chart(alt.InlineData(values=[{"x": 1}])).mark_point().encode(x="x:Q")

    with alt.renderers.enable("svg"):
        bundle, _ = shell.display_formatter.format(chart)

    assert {"image/svg+xml"} == set(bundle) - {"text/plain"}


def test_after_unloading_altair_shows_charts_by_itself():
    """Unloading removes ngbkit's renderer."""
    shell = InteractiveShell()
    objects.register(shell)
    objects.unregister(shell)
    chart = alt.Chart(alt.InlineData(values=[{"x": 1}])).mark_point().encode(x="x:Q")

    bundle, _ = shell.display_formatter.format(chart)

    assert renderer.MIME not in bundle


@pytest.mark.parametrize("name", ["latency", "traces", "throughput", "status"])
def test_ten_thousand_points_are_small(name):
    """A chart with many marks becomes a bitmap, and its size is limited."""
    networks = [network(f"{letter * 3}{number}") for letter in "abcde" for number in range(5)]
    if name in ("latency", "traces"):
        data = synthetic.make_dataset(Sweep(networks[:5], ["identity", "openvino"], [1, 4], repeats=500))
    else:
        compilers = ["identity", "openvino", "tvm", "onnxruntime", "inductor", "torchscript", "iree", "executorch"]
        data = measured(*networks, compilers=compilers, batch_sizes=range(1, 51))
    bundle = renderer.to_mimebundle(getattr(figures, name)(data).to_dict())

    pictures = {"image/svg+xml", "image/jpeg"} & set(bundle)
    assert 1 == len(pictures)
    assert len(json.dumps(bundle)) < MOST_BYTES
    if "image/jpeg" in pictures:
        assert base64.b64decode(bundle["image/jpeg"]).startswith(b"\xff\xd8")


@pytest.mark.parametrize("character", ["\x00", "\x07", "\x1b", "\x7f", "\x9b", "\ufffe"])
def test_a_label_may_have_any_character(character: str, tmp_path: Path) -> None:
    """vl-convert aborts the process on some of them, and a terminal obeys others."""
    data = measured(network(f"a{character}b"))

    assert "image/svg+xml" in renderer.to_mimebundle(figures.throughput(data).to_dict())
    if character != "\x00":  # netCDF has none
        loaded = datasets.load(datasets.save(data, tmp_path / "run.nc"))
        assert str(loaded["workload"].item()) in ("a b", "ab")


def test_a_converter_that_dies_costs_a_picture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The chart says so, and the next one is drawn."""
    program = tmp_path / "aborting.py"
    program.write_text("import os, sys; sys.stdin.readline(); os.abort()")
    spec = figures.throughput(measured(network("a"))).to_dict()
    with monkeypatch.context() as patch:
        patch.setattr(converter, "_CHILD", str(program))
        patch.setattr(converter, "_processes", [])
        bundle, page = renderer.to_mimebundle(spec), renderer.to_html(spec)

    assert {renderer.MIME, "text/plain"} == bundle.keys()
    assert "the process that draws charts ended (SIGABRT)" in bundle["text/plain"]
    assert "SIGABRT" in page
    assert "image/svg+xml" in renderer.to_mimebundle(spec)


def test_a_chart_requests_nothing(tmp_path: Path) -> None:
    """A chart whose data are elsewhere is not drawn, and a picture within its picture is not read."""
    elsewhere = {"data": {"url": "http://127.0.0.1:9/data.json"}, "mark": "point"}
    with pytest.raises(converter.RenderError, match="External data url not allowed"):
        converter.convert("vegalite_to_svg", elsewhere)

    dot = tmp_path / "dot.png"
    Image.new("RGB", (4, 4), "red").save(dot)
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4"><image width="4" height="4" href="{}"/></svg>'
    blank, pictured = (converter.convert("svg_to_png", svg.format(address)) for address in ("", dot))

    assert blank == pictured
