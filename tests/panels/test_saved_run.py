"""The static page of a finished run, which a saved notebook shows without a kernel."""

from __future__ import annotations

import re

import pytest
from drawn import crashing, measured, network, sweep

from ngbkit.panels import panel
from ngbkit.panels.panel import render_saved


def test_a_saved_run_has_all_of_it() -> None:
    """The line, the tables, the verdict, the picture, and the command that opens the run are there, and no script."""
    html = render_saved(measured(network("a")), "20260101-1", "%ngbench a -c openvino -o ds")
    text = re.sub(r"<.*?>", "", html)

    assert str is type(html)
    assert "<code>%ngbench a -c openvino -o ds</code>" in html
    assert "<caption" in html
    assert "<svg" in html
    assert "openvino" in text
    assert "%ngruns --open 20260101-1 -o ds" in text
    assert not {"<script", "<link", "http-equiv"} & {*re.findall(r"<[\w-]+", html)}


def test_a_large_picture_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook stays small: beyond a size the tables stand alone."""
    monkeypatch.setattr(panel, "_MOST_PICTURE_BYTES", 1000)
    html = render_saved(measured(), "r1", "%ngbench net")

    assert "<svg" not in html
    assert "<table" in html


def test_a_run_without_results_is_rendered() -> None:
    """A run whose trials failed has their statuses."""
    html = render_saved(crashing(sweep(compilers=("openvino",), batch_sizes=(1,)), "openvino", 1), "r1", "%ngbench net")

    assert "crashed" in html


def test_a_line_cannot_add_elements() -> None:
    """The text of a line is escaped."""
    assert "<b>" not in render_saved(measured(), "r1", "%ngbench '<b>'")
