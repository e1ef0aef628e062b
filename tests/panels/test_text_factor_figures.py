"""Figures over a factor whose values are texts: categories in the order of the sweep, without lines between them."""

from __future__ import annotations

import json
import re

import pytest
import synthetic
from drawn import Spec
from reading import build_reader

from ngbkit import figures
from ngbkit.api import Sweep
from ngbkit.dataset.storage import Data
from ngbkit.workloads.base import Workload

VARIANTS = ["residual", "plain", "dense"]


@pytest.fixture
def data() -> Data:
    """Two networks with the same texts, of which one also has depths: a tree."""
    shallow = Workload(name="shallow", source="cell", spec={"cell": 1}, takes=("variant",))
    deep = Workload(name="deep", source="cell", spec={"cell": 2}, takes=("variant", "depth"))
    factors = {"variant": VARIANTS, "depth": [1, 2, 3]}
    sweep = Sweep([shallow, deep], ["identity", "openvino", "tvm"], [1, 4], factors=factors, repeats=30)
    return synthetic.make_dataset(sweep, failures=0.05)


def test_texts_are_categories_in_the_order_of_the_sweep(data: Data) -> None:
    """No line joins them, which would suggest an order."""
    spec = Spec(figures.depth(data, factor="variant"))
    heatmap = Spec(figures.heatmap(data, factor="variant"))

    assert {*VARIANTS, "deep, depth 3, batch 4"} <= spec.texts()
    assert {*VARIANTS} == {row["variant"] for row in spec.rows if row["variant"]}
    assert all(f'"sort": {json.dumps(VARIANTS)}' in json.dumps(figure.spec) for figure in (spec, heatmap))
    assert "line" not in spec.marks()


def test_the_overview_draws_every_text(data: Data) -> None:
    """The overview draws every text of a factor, and omits only numbers between the extremes."""
    texts = Spec(figures.overview(data)).texts()

    assert {f"shallow, variant {name}" for name in VARIANTS} <= texts
    assert any("only the smallest and the largest depth are drawn" in text for text in texts)


@pytest.mark.parametrize("name", ["throughput", "speedup", "break_even", "status", "heatmap", "depth", "reversals"])
def test_the_panel_selects_texts(data: Data, name: str) -> None:
    """Each figure draws them, and a trial is described with its text."""
    page = build_reader(data, "ds")
    page.act("figure", name)
    page.act("figure-factor", "variant")
    page.act("filter-variant", "none")
    for number, text in enumerate(VARIANTS):
        page.act(f"filter-variant-{number}", text in ("plain", "dense"))
    page.act("open-trial", re.search(r'data-key="(\d+)"', page.parts["table"])[1])

    assert "" == page.parts["figure-error"]
    assert "variant=[&#39;plain&#39;, &#39;dense&#39;]" in page.parts["figure-code"]
    assert "shallow, variant plain, identity, batch 1 on cpu" in page.parts["sheet"]
