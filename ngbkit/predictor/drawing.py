"""A graph as a figure: its operators from the top down, coloured by what they are or by what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.errors import UsageError
from ngbkit.figures import marks, theme
from ngbkit.metrics.tables import format_number
from ngbkit.predictor.graphs import Graph, Operator, Tensor

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

# Operators in a column before the next one begins, and pixels of one.
_LINES, _WIDTH, _HEIGHT = 40, 104, 22
# In those units: the space between two columns, and how far an edge that jumps bows out.
_GAP, _BOW = 0.35, 0.62

_SORTS: Mapping[str, tuple[str, ...]] = {
    "products": ("Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum", "Attention"),
    "normalisation": (
        *("BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization"),
        *("LpNormalization", "Softmax", "SkipLayerNormalization"),
    ),
    "pooling, reduction": (
        *("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceSum", "ReduceMax"),
    ),
    "movement": (
        *("Concat", "Split", "Slice", "Gather", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Expand"),
        *("Pad", "Resize", "Cast", "Tile", "DepthToSpace", "SpaceToDepth", "Identity"),
    ),
}
_BY_ELEMENT = "by element"
_COLOURS = ("#0072B2", "#009E73", "#E69F00", "#999999", "#CC79A7")


def draw(graph: Graph, cost: Sequence[float] | None = None, *, unit: str = "ms", title: str = "") -> alt.LayerChart:
    """The graph, long ones in several columns.

    Parameters
    ----------
    graph
        What to draw.
    cost
        Of each operator, for the colour; without it the colour says what sort of work an operator does.
    unit
        Of the cost.
    title
        What the figure is called. Default: how large the graph is.

    Raises
    ------
    UsageError
        There is not one cost an operator.
    """
    import altair as alt

    if cost is not None and len(cost) != len(graph.operators):
        raise UsageError(
            f"draw() came with {len(cost)} costs for {len(graph.operators)} operators. Give one an operator, in the "
            "order of graph.operators."
        )
    boxes, bends = _boxes(graph, cost), _bends(graph)
    scale, down = alt.Scale(zero=False, nice=False), alt.Scale(zero=False, nice=False, reverse=True)
    x, y = alt.X("x:Q", axis=None, scale=scale), alt.Y("y:Q", axis=None, scale=down)
    told = ["operator:N", "kind:N", "takes:N", "gives:N", "weights:N", "MACs:N", "attributes:N"]
    if cost is None:
        sorts = [*_SORTS, _BY_ELEMENT]
        colour = alt.Color("sort:N", title=None, scale=alt.Scale(domain=sorts, range=list(_COLOURS)))
        ink: Any = alt.value(theme.WHITE)
    else:
        most = max([float(np.nanmax(cost)) if len(cost) else 0.0, 1e-12])
        colour = alt.Color("cost:Q", title=unit, scale=alt.Scale(scheme="viridis", domain=[0, most]))
        ink = alt.condition(f"datum.cost < {0.7 * most}", alt.value(theme.WHITE), alt.value(theme.BLACK))
        told.append("cost:Q")
    lines = alt.Chart(marks.inline(bends)).mark_line(color="#888888", strokeWidth=1, opacity=0.6, interpolate="basis")
    box = alt.Chart(marks.inline(boxes)).encode(tooltip=told)
    rectangles = box.mark_rect(cornerRadius=3).encode(x, y, alt.X2("right:Q"), alt.Y2("foot:Q"), colour)
    written = box.mark_text(fontSize=9).encode(
        alt.X("middle:Q", axis=None, scale=scale), alt.Y("centre:Q"), text="text:N", color=ink
    )
    height = int(_HEIGHT * 1.25 * (min(_LINES, max(graph.depths, default=1)) + 1))
    chart: alt.LayerChart = alt.layer(  # type: ignore[assignment]  # of charts without facets, which altair cannot say
        lines.encode(x, y, alt.Detail("edge:N"), alt.Order("order:Q")),
        rectangles,
        written,
        width=int(_WIDTH * (boxes["right"].max() - boxes["x"].min())) if len(boxes) else _WIDTH,
        height=height,
    )
    macs = "" if graph.macs is None else f", {format_number(graph.macs / 1e9)} G MACs"
    said = f"{len(graph.operators)} operators{macs}, {format_number(graph.weight_bytes / 1e6)} MB of weights"
    chart.title = alt.TitleParams(title or said, subtitle=[said] if title else [], fontSize=16, offset=12)
    chart.config = theme.CONFIG
    return chart


def layout(graph: Graph) -> list[tuple[float, int]]:
    """By operator, how far to the right it stands and how far down.

    Operators of one depth stand beside each other, each as near as there is room to the middle of those that it takes
    values from.
    """
    above: list[list[int]] = [[] for _ in graph.operators]
    for start, end in graph.edges:
        above[end].append(start)
    levels: dict[int, list[int]] = {}
    for at, depth in enumerate(graph.depths):
        levels.setdefault(depth - 1, []).append(at)
    place = [0.0] * len(graph.operators)
    for level in sorted(levels):
        wanted = {at: float(np.mean([place[one] for one in above[at]] or [0.0])) for at in levels[level]}
        ordered = sorted(levels[level], key=lambda at: (wanted[at], at))
        row: list[float] = []
        for at in ordered:
            row.append(max(wanted[at], row[-1] + 1) if row else wanted[at])
        shift = float(np.mean(row) - np.mean(list(wanted.values())))
        for at, x in zip(ordered, row, strict=True):
            place[at] = x - shift
    return [(place[at], depth - 1) for at, depth in enumerate(graph.depths)]


def _placed(graph: Graph) -> list[tuple[float, float]]:
    """The left upper corner of each operator: long graphs go on in the next column."""
    where = layout(graph)
    columns: dict[int, list[float]] = {}
    for x, y in where:
        columns.setdefault(y // _LINES, []).append(x)
    left, start = {}, 0.0
    for column, places in sorted(columns.items()):
        left[column] = start - min(places)
        start += max(places) - min(places) + 1 + _GAP + _BOW
    return [(x + left[y // _LINES], float(y % _LINES) * 1.25) for x, y in where]


def _boxes(graph: Graph, cost: Sequence[float] | None) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for at, ((x, y), one) in enumerate(zip(_placed(graph), graph.operators, strict=True)):
        row = {"x": x, "y": y, "right": x + 0.92, "foot": y + 0.9, "middle": x + 0.46, "centre": y + 0.45}
        rows.append(row | _described(one) | ({} if cost is None else {"cost": float(cost[at])}))
    return pd.DataFrame(rows)


def _described(one: Operator) -> dict[str, Any]:
    window = one.attributes.get("kernel_shape")
    sides = "×".join(map(str, window)) if isinstance(window, tuple) else ""
    return {
        "operator": one.name,
        "kind": one.kind,
        "text": f"{one.kind.rpartition('.')[2][:16]} {sides}".strip(),
        "sort": next((name for name, kinds in _SORTS.items() if one.kind in kinds), _BY_ELEMENT),
        "takes": _shapes(one.inputs),
        "gives": _shapes(one.outputs),
        "weights": _shapes(one.weights),
        "MACs": "not known" if one.macs is None else f"{one.macs:,}",
        "attributes": ", ".join(f"{name} {_short(value)}" for name, value in one.attributes.items()),
    }


def _shapes(tensors: Sequence[Tensor]) -> str:
    return ", ".join("?" if one.shape is None else "×".join(map(str, one.shape)) or "1" for one in tensors)


def _short(value: Any) -> str:
    return "×".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _bends(graph: Graph) -> pd.DataFrame:
    """The points of the lines: straight to the next line, and around what stands between."""
    import pandas as pd

    placed, depths = _placed(graph), graph.depths
    rows = []
    for number, (start, end) in enumerate(graph.edges):
        (x0, y0), (x1, y1) = placed[start], placed[end]
        points = [(x0 + 0.46, y0 + 0.9), (x1 + 0.46, y1)]
        if depths[end] - depths[start] > 1 and y1 > y0:
            aside = max(x0, x1) + 0.46 + _BOW
            points[1:1] = [(aside, y0 + 1.1), (aside, y1 - 0.2)]
        rows += [{"edge": number, "order": order, "x": x, "y": y} for order, (x, y) in enumerate(points)]
    return pd.DataFrame(rows, columns=["edge", "order", "x", "y"])
