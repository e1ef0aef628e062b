"""The gap between two columns along their network, a bar for each block, with the pieces of a block below."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from ngbkit.device.timing.normal import LEVEL
from ngbkit.figures import captions, lines, marks
from ngbkit.why.explanation import Explanation
from ngbkit.why.pieces import fold

_WIDTH, _ROW, _NAMES, _LETTERS, _MOST_ROWS = 420, 18, 250, 100, 40
_GUIDE = "#888888"
# Blue and orange of Okabe and Ito's palette, light enough for dark pages; and the colour of what chance may explain.
_FIRST, _SECOND, _NEITHER = "#2E8BC0", "#D55E00", "#8A8A8A"
_CHANCE = "no more than chance"
# A click between the bars would open all blocks.
_ON_BAR = "click[event.item && event.item.datum && event.item.datum.block]"
_MAGNITUDE = "format(abs(datum.value), '~g')"
# Longer names of both columns take a line each below the axis.
_MOST_LETTERS = 60


def explanation(result: Explanation, depth: int | None = 1) -> alt.VConcatChart:
    """The gap of each block of the network, from its input to its output, with its interval.

    Where the first column is faster, a bar is blue and points to the right; where the second is, it is orange and
    points to the left. What chance may explain is grey. A click on a block shows its pieces below; at first, these are
    those of the block with the largest gap. Beyond 40 rows, those with the largest gaps are drawn.

    Parameters
    ----------
    result
        The result of ``ds.ngb.explain(first, second)``.
    depth
        Blocks are modules of that depth; None draws all pieces at once.
    """
    rows = _build_rows(result, depth)
    blocks, hidden = _keep_largest(rows), max(0, len(rows) - _MOST_ROWS)
    panels = [_draw(result, blocks)]
    pieces = _build_rows(result, None).assign(block=_list_blocks(result, depth))
    pieces = pieces[pieces["block"].isin(blocks.loc[blocks["pieces"] > 1, "part"])]
    if len(pieces):
        largest = pieces["block"].iloc[int(np.argmax(pieces["block"].map(blocks.set_index("part")["gap_s"]).abs()))]
        click = alt.selection_point(
            name="opened", fields=["block"], value=[{"block": str(largest)}], on=_ON_BAR, clear=False, toggle=False
        )
        opened = _draw(result, pieces.groupby("block", sort=False, group_keys=False)[[*pieces]].apply(_keep_largest))
        panels = [
            _draw(result, blocks.assign(block=blocks["part"])).add_params(click),
            opened.transform_filter(click),
        ]
    # Another block has another number of pieces.
    chart = alt.vconcat(*panels, spacing=14, autosize=alt.AutoSizeParams(type="pad", resize=True))
    first, second = result.names
    remarks = [
        str(result),
        f"blue: {first} is faster; orange: {second} is faster; grey: {_CHANCE}; bars: {100 * LEVEL:g} % intervals",
        *(["below: the pieces of the block with the largest gap; a click shows another"] if len(panels) > 1 else []),
        *([f"{hidden} more parts, with smaller gaps, are not drawn"] if hidden else []),
        *result.list_notes()[:2],
    ]
    title = f"{second} minus {first}: {result.network}, batch {result.batch_size}"
    return lines.finish(chart, captions.build_heading(title, remarks, _LETTERS))


def _build_rows(result: Explanation, depth: int | None) -> pd.DataFrame:
    """Build the rows of parts, with the place and the texts of each."""
    first, second = result.names
    rows = result.to_frame(depth)
    is_share = bool(rows["share"].notna().all())
    for end in ("", "_low", "_high"):
        share = 100 * np.sign(result.attribution.total) * rows[f"share{end}"]
        rows[f"value{end}"] = share if is_share else 1e3 * rows[f"gap{end}_s"]
    table = result.to_table(len(rows), depth).loc[rows.index]
    texts = {"gap": "gap (ms)", "share": "share (%)"}
    rows = rows.drop(columns="share").assign(
        **{name: table[title].map(str) for name, title in texts.items() if title in table}
    )
    faster = np.where(rows["gap_s"] > 0, first, second)
    rows["faster"] = np.where(rows["guilty"], faster, _CHANCE)
    return rows


def _list_blocks(result: Explanation, depth: int | None) -> list[str]:
    """List the block of each piece; empty without blocks."""
    names = [""] * len(result.pieces)
    for part in fold(result.pieces, depth) if depth is not None else ():
        for index in part.pieces:
            names[index] = part.name
    return names


def _keep_largest(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep the rows with the largest gaps, in their order."""
    order = np.argsort(-rows["gap_s"].abs().to_numpy(), kind="stable")[:_MOST_ROWS]
    return rows.iloc[np.sort(order)]


def _draw(result: Explanation, rows: pd.DataFrame) -> alt.LayerChart:
    """Draw one panel: a bar with its interval for each row, beside a line at no difference."""
    first, second = result.names
    unit = "share of the gap (%)" if "share" in rows else "ms of a call"
    left, right = f"← {second} is faster", f"{first} is faster →"
    title = [unit, *([left, right] if len(left + right) > _MOST_LETTERS else [f"{left}   |   {right}"])]
    # Both sides have positive numbers: a direction is a column, not a sign.
    x = alt.X("value:Q", title=title, axis=alt.Axis(grid=False, tickCount=6, labelExpr=_MAGNITUDE))
    names = rows["part"].tolist()
    y = alt.Y("part:N", title=None, sort=names, axis=marks.build_name_axis(names, _NAMES))
    domain = [first, second, _CHANCE]
    colour = alt.Color(
        "faster:N", title=None, scale=alt.Scale(domain=domain, range=[_FIRST, _SECOND, _NEITHER]), legend=None
    )
    labels = {"part": "part", "computes": "computes", "share": "share of the gap (%)", "gap": "gap (ms)"}
    tooltip: list[Any] = [alt.Tooltip(f"{name}:N", title=label) for name, label in labels.items() if name in rows]
    for side, name in zip(("first", "second"), result.names, strict=True):
        tooltip.append(alt.Tooltip(f"{side}_ms:Q", title=f"{name} (ms)", format=".4~g"))
        tooltip.append(alt.Tooltip(f"{side}_kernels:N", title=f"kernels of {name}"))
    columns = ["part", "value", "value_low", "value_high", "faster", "computes", "first_kernels", "second_kernels"]
    columns += [name for name in ("block", "share", "gap") if name in rows]
    frame = rows.assign(first_ms=1e3 * rows["first_s"], second_ms=1e3 * rows["second_s"])
    base = alt.Chart().encode(y=y)
    guide = alt.Chart(alt.InlineData(values=[{"value": 0}])).mark_rule(color=_GUIDE).encode(x=x)
    layers = [
        guide,
        base.mark_bar(height={"band": 0.7}, cursor="pointer").encode(x=x, color=colour, tooltip=tooltip),
        base.mark_rule(strokeWidth=1.5, color=_GUIDE).encode(x=alt.X("value_low:Q", title=title), x2="value_high:Q"),
    ]
    data = marks.inline(frame[[*columns, "first_ms", "second_ms"]])
    return alt.LayerChart(layer=layers, data=data, width=_WIDTH, height=alt.Step(_ROW))
