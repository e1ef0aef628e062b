"""A graph as a figure: its operators from top to bottom, coloured by category or by cost."""

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

# Rows in a column of the figure, and the size of one operator in pixels.
_LINES, _WIDTH, _HEIGHT = 40, 104, 22
# In widths of an operator: the space between columns, and how far an edge bends around operators.
_GAP, _BOW = 0.35, 0.62

_SORTS: Mapping[str, tuple[str, ...]] = {
    "products": ("Conv", "FusedConv", "ConvTranspose", "Gemm", "MatMul", "FusedMatMul", "Einsum", "Attention"),
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
        *("Reorder", "ReorderInput", "ReorderOutput"),
    ),
}
_BY_ELEMENT = "by element"
_COLOURS = ("#0072B2", "#009E73", "#E69F00", "#999999", "#CC79A7")


def draw(graph: Graph, cost: Sequence[float] | None = None, *, unit: str = "ms", title: str = "") -> alt.LayerChart:
    """A figure of the graph; a deep graph continues in further columns.

    Parameters
    ----------
    graph
        The graph to draw.
    cost
        One cost per operator, shown as its colour; by default the colour shows the category of the operator.
    unit
        The unit of the cost.
    title
        The title of the figure. Default: the number of operators, the MACs and the size of the weights.

    Raises
    ------
    UsageError
        The number of costs differs from the number of operators.
    """
    import altair as alt

    if cost is not None and len(cost) != len(graph.operators):
        raise UsageError(
            f"invalid cost: got {len(cost)} costs for {len(graph.operators)} operators; expected one per operator, in "
            "the order of graph.operators."
        )
    boxes, edge_points = _build_boxes(graph, cost), _build_edge_points(graph)
    scale, down = alt.Scale(zero=False, nice=False), alt.Scale(zero=False, nice=False, reverse=True)
    x, y = alt.X("x:Q", axis=None, scale=scale), alt.Y("y:Q", axis=None, scale=down)
    tooltip = ["operator:N", "kind:N", "inputs:N", "outputs:N", "weights:N", "MACs:N", "attributes:N"]
    if cost is None:
        sorts = [*_SORTS, _BY_ELEMENT]
        colour = alt.Color("sort:N", title=None, scale=alt.Scale(domain=sorts, range=list(_COLOURS)))
        ink: Any = alt.value(theme.WHITE)
    else:
        most = max([float(np.nanmax(cost)) if len(cost) else 0.0, 1e-12])
        colour = alt.Color("cost:Q", title=unit, scale=alt.Scale(scheme="viridis", domain=[0, most]))
        ink = alt.condition(f"datum.cost < {0.7 * most}", alt.value(theme.WHITE), alt.value(theme.BLACK))
        tooltip.append("cost:Q")
    lines = alt.Chart(marks.inline(edge_points)).mark_line(
        color="#888888", strokeWidth=1, opacity=0.6, interpolate="basis"
    )
    box = alt.Chart(marks.inline(boxes)).encode(tooltip=tooltip)
    rectangles = box.mark_rect(cornerRadius=3).encode(x, y, alt.X2("right:Q"), alt.Y2("foot:Q"), colour)
    labels = box.mark_text(fontSize=9).encode(
        alt.X("middle:Q", axis=None, scale=scale), alt.Y("centre:Q"), text="text:N", color=ink
    )
    height = int(_HEIGHT * 1.25 * (min(_LINES, max(graph.depths, default=1)) + 1))
    chart: alt.LayerChart = alt.layer(  # type: ignore[assignment]  # altair's type allows faceted charts
        lines.encode(x, y, alt.Detail("edge:N"), alt.Order("order:Q")),
        rectangles,
        labels,
        width=int(_WIDTH * (boxes["right"].max() - boxes["x"].min())) if len(boxes) else _WIDTH,
        height=height,
    )
    macs = "" if graph.macs is None else f", {format_number(graph.macs / 1e9)} G MACs"
    summary = f"{len(graph.operators)} operators{macs}, {format_number(graph.weight_bytes / 1e6)} MB of weights"
    chart.title = alt.TitleParams(title or summary, subtitle=[summary] if title else [], fontSize=16, offset=12)
    chart.config = theme.CONFIG
    return chart


def compute_layout(graph: Graph) -> list[tuple[float, int]]:
    """Return the column, near the mean of its inputs' columns, and the row, by its depth, of each operator."""
    sources: list[list[int]] = [[] for _ in graph.operators]
    for start, end in graph.edges:
        sources[end].append(start)
    levels: dict[int, list[int]] = {}
    for index, depth in enumerate(graph.depths):
        levels.setdefault(depth - 1, []).append(index)
    positions = [0.0] * len(graph.operators)
    for level in sorted(levels):
        targets = {
            index: float(np.mean([positions[source] for source in sources[index]] or [0.0])) for index in levels[level]
        }
        ordered = sorted(levels[level], key=lambda index: (targets[index], index))
        row: list[float] = []
        for index in ordered:
            row.append(max(targets[index], row[-1] + 1) if row else targets[index])
        shift = float(np.mean(row) - np.mean(list(targets.values())))
        for index, x in zip(ordered, row, strict=True):
            positions[index] = x - shift
    return [(positions[index], depth - 1) for index, depth in enumerate(graph.depths)]


def _compute_corners(graph: Graph) -> list[tuple[float, float]]:
    """Return the upper left corner of each operator; a deep graph continues in the next column."""
    positions = compute_layout(graph)
    columns: dict[int, list[float]] = {}
    for x, y in positions:
        columns.setdefault(y // _LINES, []).append(x)
    offsets, start = {}, 0.0
    for column, xs in sorted(columns.items()):
        offsets[column] = start - min(xs)
        start += max(xs) - min(xs) + 1 + _GAP + _BOW
    return [(x + offsets[y // _LINES], float(y % _LINES) * 1.25) for x, y in positions]


def _build_boxes(graph: Graph, cost: Sequence[float] | None) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for index, ((x, y), operator) in enumerate(zip(_compute_corners(graph), graph.operators, strict=True)):
        row = {"x": x, "y": y, "right": x + 0.92, "foot": y + 0.9, "middle": x + 0.46, "centre": y + 0.45}
        rows.append(row | _describe_operator(operator) | ({} if cost is None else {"cost": float(cost[index])}))
    return pd.DataFrame(rows)


def _describe_operator(operator: Operator) -> dict[str, Any]:
    # The domain of a runtime's own operator says nothing about its work.
    kind = operator.kind.rpartition(".")[2]
    window = operator.attributes.get("kernel_shape")
    sides = "×".join(map(str, window)) if isinstance(window, tuple) else ""
    return {
        "operator": operator.name,
        "kind": operator.kind,
        "text": f"{kind[:16]} {sides}".strip(),
        "sort": next((name for name, kinds in _SORTS.items() if kind in kinds), _BY_ELEMENT),
        "inputs": _format_shapes(operator.inputs),
        "outputs": _format_shapes(operator.outputs),
        "weights": _format_shapes(operator.weights),
        "MACs": "unknown" if operator.macs is None else f"{operator.macs:,}",
        "attributes": ", ".join(f"{name} {_format_value(value)}" for name, value in operator.attributes.items()),
    }


def _format_shapes(tensors: Sequence[Tensor]) -> str:
    return ", ".join("?" if tensor.shape is None else "×".join(map(str, tensor.shape)) or "1" for tensor in tensors)


def _format_value(value: Any) -> str:
    return "×".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _build_edge_points(graph: Graph) -> pd.DataFrame:
    """Return the points of the edges: straight to the next row, and around the operators between distant rows."""
    import pandas as pd

    corners, depths = _compute_corners(graph), graph.depths
    rows = []
    for number, (start, end) in enumerate(graph.edges):
        (x0, y0), (x1, y1) = corners[start], corners[end]
        points = [(x0 + 0.46, y0 + 0.9), (x1 + 0.46, y1)]
        if depths[end] - depths[start] > 1 and y1 > y0:
            detour = max(x0, x1) + 0.46 + _BOW
            points[1:1] = [(detour, y0 + 1.1), (detour, y1 - 0.2)]
        rows += [{"edge": number, "order": order, "x": x, "y": y} for order, (x, y) in enumerate(points)]
    return pd.DataFrame(rows, columns=["edge", "order", "x", "y"])
