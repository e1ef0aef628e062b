"""A graph as a figure."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from drawn import Spec
from onnxgraphs import Builder, graph, residual

from ngbkit import predictor
from ngbkit.errors import UsageError
from ngbkit.figures.pictures import converter
from ngbkit.predictor.drawing import layout


def rows(chart: Any, column: str) -> list[dict[str, Any]]:
    """The rows of the figure that have such a column."""
    return [row for row in Spec(chart).rows if column in row]


def test_every_operator_and_every_edge_is_drawn(tmp_path: Path) -> None:
    """With its shapes and its work to be pointed at; as SVG without a browser."""
    one = predictor.read(residual(tmp_path, blocks=3))
    chart = predictor.draw(one)
    boxes = rows(chart, "kind")

    assert ["Conv 3×3", "Relu", "Add"] * 3 == [row["text"] for row in boxes]
    assert "1×8×16×16" == boxes[0]["gives"]
    assert len(one.edges) == len({row["edge"] for row in rows(chart, "edge")})
    picture = converter().vegalite_to_svg(chart.to_dict())
    assert 3 == picture.count("Conv 3×3</text>")


def test_colour_is_cost_where_there_is_one(tmp_path: Path) -> None:
    """One number an operator; anything else is an error."""
    one = predictor.read(residual(tmp_path, blocks=1))

    drawn = predictor.draw(one, [3.0, 1.0, 0.5], unit="ms")
    assert [3.0, 1.0, 0.5] == [row["cost"] for row in rows(drawn, "cost")]
    with pytest.raises(UsageError, match="2 costs for 3 operators"):
        predictor.draw(one, [1.0, 2.0])


def test_operators_stand_below_what_they_take_from(tmp_path: Path) -> None:
    """And no two of one depth on one another."""
    build = Builder()
    value = build.add("Relu", "x")
    branches = [build.conv(value, 8, kernel) for kernel in (1, 3, 5)]
    one = graph(build.model(build.add("Concat", *branches, axis=1)), tmp_path)
    places = layout(one)

    assert all(places[start][1] < places[end][1] for start, end in one.edges)
    assert len(places) == len(set(places))
    across = sorted(x for x, depth in places if depth == 1)
    assert [1.0, 1.0] == [right - left for left, right in itertools.pairwise(across)]
    assert places[0][0] == pytest.approx(across[1]) == places[-1][0]


def test_a_deep_graph_stands_in_columns(tmp_path: Path) -> None:
    """A hundred lines would be taller than any screen."""
    chart = predictor.draw(predictor.read(residual(tmp_path, blocks=40))).to_dict()

    assert chart["height"] < 1200
    assert chart["width"] > 300
