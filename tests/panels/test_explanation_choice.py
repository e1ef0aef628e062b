"""The panel of a run explains the gap between two compilers."""

from __future__ import annotations

from drawn import measured, network
from profiled import FUSED, SPLIT, make_explained
from test_read_panel import show


def test_a_gap_is_explained() -> None:
    """Two compilers with profiles have a button: the figure, the sentence, the table and the code that draws them."""
    page = show(make_explained(), "mine")[0]
    assert "Explain" in page.parts["explain-choice"]

    page.act("explain-first", SPLIT)
    page.act("explain-second", FUSED)
    page.act("explain")

    assert "which openvino fuses and onnxruntime does not" in page.parts["explanation"]
    assert "mine.ngb.explain(&#39;onnxruntime&#39;, &#39;openvino&#39;)" in page.parts["explanation"]
    assert page.chart is not None

    page.act("explain-second", SPLIT)
    page.act("explain")

    assert "twice" in page.parts["explanation"]
    assert page.chart is None


def test_a_run_without_profiles_says_how_to_measure_them() -> None:
    """The button is replaced by the option that measures profiles."""
    page = show(measured(network("a")))[0]

    assert "--profile" in page.parts["explain-choice"]
    assert "Explain" not in page.parts["explain-choice"]
