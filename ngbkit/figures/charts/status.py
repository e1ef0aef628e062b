"""What became of every trial: a grid to find the holes in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import xarray as xr

from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, marks, provenance, rows, theme

if TYPE_CHECKING:
    import altair as alt

_WIDTH, _HEIGHT, _LEAST = 42, 18, 5
# A figure of more trials has smaller cells, so that it stays a figure.
_MOST_WIDTH, _MOST_HEIGHT = 1600, 1400
# A cell that is narrower or lower than this has no room for its word.
_WORD_WIDTH, _WORD_HEIGHT = 36, 12


@provenance.traced
def status(data: Data, **select: Any) -> alt.FacetChart:
    """The status of every trial: a line a network, a column a batch size, a block a compiler.

    Each cell says its status in a word as well as in a colour, and its tooltip why there is no result.

    Parameters
    ----------
    data
        What `ngbkit.dataset.assembly.assemble` gave, of a run that has ended or that has not.
    **select
        As for `throughput`.

    Raises
    ------
    UnknownNameError, UsageError
        As for `throughput`.
    """
    import altair as alt

    frame = rows.rows(data, _nothing, select)
    frame["word"] = [theme.STATUS_WORDS.get(one, one) for one in frame["status"]]
    frame["batch_size"] = frame["batch_size"].astype(int)
    there = [name for name in theme.STATUS_COLOURS if (frame["status"] == name).any()]
    scale = alt.Scale(domain=there, range=[theme.STATUS_COLOURS[name] for name in there])
    colour = alt.Color("status:N", scale=scale, title="status", legend=alt.Legend(symbolType="square"))
    compilers = list(dict.fromkeys(frame["compiler"]))
    networks = list(dict.fromkeys(frame["network"]))
    base = alt.Chart().encode(
        alt.X("batch_size:O", title=None, axis=alt.Axis(labelAngle=0, labelOverlap="greedy", ticks=False)),
        alt.Y("network:N", title=None, sort=networks, axis=alt.Axis(labelLimit=260, ticks=False)),
        tooltip=["network:N", "compiler:N", "batch_size:O", "status:N", "error:N"],
    )
    width = _fitted(_WIDTH, _MOST_WIDTH, frame["batch_size"].nunique() * len(compilers))
    height = _fitted(_HEIGHT, _MOST_HEIGHT, len(networks))
    layers = [base.mark_rect(stroke="white", strokeWidth=1 if min(width, height) >= _WORD_HEIGHT else 0).encode(colour)]
    if width >= _WORD_WIDTH and height >= _WORD_HEIGHT:
        dark = [name for name in there if theme.ink(theme.STATUS_COLOURS[name]) == theme.WHITE]
        is_dark = f"indexof({json.dumps(dark)}, datum.status) >= 0"
        ink = alt.condition(is_dark, alt.value(theme.WHITE), alt.value(theme.BLACK))
        layers.append(base.mark_text(fontSize=9).encode(text="word:N", color=ink))
    kept = frame[["network", "compiler", "batch_size", "status", "error", "word"]]
    header = {**lines.HEADER, "labelLimit": max(width * frame["batch_size"].nunique(), 80), "labelAnchor": "middle"}
    chart = alt.layer(*layers, data=marks.inline(kept), width=alt.Step(width), height=alt.Step(height))
    grid: alt.FacetChart = chart.facet(
        column=alt.Column("compiler:N", title=None, sort=compilers, header=header), spacing=6
    )
    counts = frame["status"].value_counts()
    said = ", ".join(f"{counts[name]} {name}" for name in there)
    title = captions.title("What became of the trials", data, frame, [f"{len(frame)} trials: {said}; by batch size"])
    return lines.finished(grid, title)


def _fitted(wanted: int, most: int, count: int) -> int:
    return max(_LEAST, min(wanted, most // count))


def _nothing(node: xr.Dataset) -> xr.Dataset:
    return xr.Dataset({"value": xr.full_like(node["status"], float("nan"), dtype=float)})
