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
from ngbkit.figures.converter import convert
from ngbkit.predictor.drawing import compute_layout


def list_rows(chart: Any, column: str) -> list[dict[str, Any]]:
    """Return the rows of the figure that have such a column."""
    return [row for row in Spec(chart).rows if column in row]


def test_every_operator_and_every_edge_is_drawn(tmp_path: Path) -> None:
    """The figure has the shapes and the work of each operator, and renders as SVG without a browser."""
    graph_ = predictor.read(residual(tmp_path, blocks=3))
    chart = predictor.draw(graph_)
    boxes = list_rows(chart, "kind")

    assert ["Conv 3×3", "Relu", "Add"] * 3 == [row["text"] for row in boxes]
    assert "1×8×16×16" == boxes[0]["outputs"]
    assert len(graph_.edges) == len({row["edge"] for row in list_rows(chart, "edge")})
    picture = convert("vegalite_to_svg", chart.to_dict())
    assert 3 == picture.count("Conv 3×3</text>")


def test_colour_is_cost_where_there_is_one(tmp_path: Path) -> None:
    """The figure takes one cost per operator, and rejects any other number."""
    graph_ = predictor.read(residual(tmp_path, blocks=1))

    figure = predictor.draw(graph_, [3.0, 1.0, 0.5], unit="ms")
    assert [3.0, 1.0, 0.5] == [row["cost"] for row in list_rows(figure, "cost")]
    with pytest.raises(UsageError, match="2 costs for 3 operators"):
        predictor.draw(graph_, [1.0, 2.0])


def test_operators_are_below_their_inputs(tmp_path: Path) -> None:
    """No two operators of one depth overlap."""
    build = Builder()
    value = build.add("Relu", "x")
    branches = [build.conv(value, 8, kernel) for kernel in (1, 3, 5)]
    graph_ = graph(build.model(build.add("Concat", *branches, axis=1)), tmp_path)
    places = compute_layout(graph_)

    assert all(places[start][1] < places[end][1] for start, end in graph_.edges)
    assert len(places) == len(set(places))
    across = sorted(x for x, depth in places if depth == 1)
    assert [1.0, 1.0] == [right - left for left, right in itertools.pairwise(across)]
    assert places[0][0] == pytest.approx(across[1]) == places[-1][0]


def test_a_deep_graph_continues_in_columns(tmp_path: Path) -> None:
    """A single column of a hundred rows would exceed any screen."""
    chart = predictor.draw(predictor.read(residual(tmp_path, blocks=40))).to_dict()

    assert chart["height"] < 1200
    assert chart["width"] > 300
