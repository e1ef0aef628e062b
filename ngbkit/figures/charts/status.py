"""The status of every trial, as a grid."""

from __future__ import annotations

import json
from typing import Any

import altair as alt
import xarray as xr

from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, marks, provenance, rows, theme

_WIDTH, _HEIGHT, _LEAST = 42, 18, 5
# The cells of larger sweeps are smaller, so that the figure is not wider than a page, nor higher.
_MOST_HEIGHT, _LABEL_WIDTH, _SPACING = 1400, 260, 6
# Cells that are smaller than the longest word have none.
_LETTER_WIDTH, _WORD_HEIGHT = 5, 12


@provenance.traced
def status(data: Data, **select: Any) -> alt.FacetChart:
    """The status of every trial: one row per network, one column per batch size, one block per compiler.

    Each cell shows its status as a word and a colour; the tooltip explains a missing result.

    Parameters
    ----------
    data
        The dataset or tree of a run, finished or not.
    **select
        As for `throughput`.

    Raises
    ------
    UnknownNameError, UsageError
        As for `throughput`.
    """
    frame = rows.build_rows(data, _fill_missing, select)
    frame["word"] = [theme.STATUS_WORDS.get(name, name) for name in frame["status"]]
    frame["batch_size"] = frame["batch_size"].astype(int)
    statuses = [name for name in theme.STATUS_COLOURS if (frame["status"] == name).any()]
    scale = alt.Scale(domain=statuses, range=[theme.STATUS_COLOURS[name] for name in statuses])
    colour = alt.Color("status:N", scale=scale, title="status", legend=alt.Legend(symbolType="square"))
    compilers = list(dict.fromkeys(frame["compiler"]))
    networks = list(dict.fromkeys(frame["network"]))
    explained = ["error:N"] if (frame["error"].fillna("") != "").any() else []
    base = alt.Chart().encode(
        alt.X("batch_size:O", title=None, axis=alt.Axis(labelAngle=0, labelOverlap="greedy", ticks=False)),
        alt.Y("network:N", title=None, sort=networks, axis=marks.build_name_axis(networks, _LABEL_WIDTH)),
        tooltip=["network:N", "compiler:N", alt.Tooltip("batch_size:O", title="batch size"), "status:N", *explained],
    )
    names_width = min(_LABEL_WIDTH, int(marks.LETTER * max(map(len, networks))))
    cells_width = lines.PAGE_WIDTH - names_width - _SPACING * len(compilers)
    width = _fit_cell(_WIDTH, cells_width, frame["batch_size"].nunique() * len(compilers))
    height = _fit_cell(_HEIGHT, _MOST_HEIGHT, len(networks))
    layers = [
        base.mark_rect(stroke=theme.BACKGROUND, strokeWidth=1 if min(width, height) >= _WORD_HEIGHT else 0).encode(
            colour
        )
    ]
    if width > _LETTER_WIDTH * int(frame["word"].str.len().max()) and height >= _WORD_HEIGHT:
        dark = [name for name in statuses if theme.choose_ink(theme.STATUS_COLOURS[name]) == theme.WHITE]
        is_dark = f"indexof({json.dumps(dark)}, datum.status) >= 0"
        ink = alt.condition(is_dark, alt.value(theme.WHITE), alt.value(theme.BLACK))
        layers.append(base.mark_text(fontSize=9).encode(text="word:N", color=ink))
    cells = frame[["network", "compiler", "batch_size", "status", "error", "word"]]
    header = {**lines.HEADER, "labelLimit": max(width * frame["batch_size"].nunique(), 80), "labelAnchor": "middle"}
    chart = alt.layer(*layers, data=marks.inline(cells), width=alt.Step(width), height=alt.Step(height))
    grid: alt.FacetChart = chart.facet(
        column=alt.Column("compiler:N", title=None, sort=compilers, header=header), spacing=_SPACING
    )
    counts = frame["status"].value_counts()
    summary = ", ".join(f"{counts[name]} {name}" for name in statuses)
    remark = f"{len(frame)} trials: {summary}; by batch size"
    return lines.finish(grid, captions.build_title("Status of every trial", data, frame, [remark]))


def _fit_cell(preferred: int, most: int, count: int) -> int:
    return max(_LEAST, min(preferred, most // count))


def _fill_missing(node: xr.Dataset) -> xr.Dataset:
    return xr.Dataset({"value": xr.full_like(node["status"], float("nan"), dtype=float)})
