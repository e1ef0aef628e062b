"""Formats the cells of frames for reports."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ngbkit.metrics.estimate import INCONCLUSIVE, Estimate, Uncertain
from ngbkit.sweep.column import MARK
from ngbkit.sweep.records import MEASURED, OPEN, STATUSES
from ngbkit.tabular import Texts

if TYPE_CHECKING:
    import pandas as pd

_FAILED = frozenset(STATUSES).difference(MEASURED, OPEN)


def format_number(value: float) -> str:
    """Format a number with four significant digits, and NaN as ``–``."""
    if math.isnan(value):
        return "–"
    if value == 0 or math.isinf(value):
        return f"{value:g}"
    if not 1e-3 <= abs(value) < 1e7:
        return f"{value:.3e}"
    digits = 3 - math.floor(math.log10(abs(float(f"{value:.3e}"))))
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def to_texts(frame: pd.DataFrame) -> Texts:
    """Format a frame, with its title and notes; a label that repeats is omitted."""
    labels = [name for name in frame.index.names if name is not None]
    flat = frame.reset_index() if labels else frame
    columns = [flat[name].tolist() for name in flat.columns]
    cells: list[list[str]] = []
    previous: tuple[str, ...] = ()
    for row in zip(*map(_format_column, columns), strict=True):
        repeated = max(len(labels) - 1, 0)
        same = next((place for place in range(repeated) if row[: place + 1] != previous[: place + 1]), repeated)
        cells.append([*[""] * same, *row[same:]])
        previous = row
    return Texts(
        header=[f"{name} {MARK}" if name in frame.attrs.get("marked", ()) else str(name) for name in flat.columns],
        cells=cells,
        numeric=frozenset(index for index, column in enumerate(columns) if any(map(_is_number, column))),
        marked=_FAILED,
        title=frame.attrs.get("title", ""),
        notes=frame.attrs.get("notes", ()),
        is_limited=False,
    )


def _format_column(values: list[Any]) -> list[str]:
    """Format a column: its numbers are all integers, or all have decimals; an estimate knows its own."""
    numbers = [value for value in values if _is_number(value) and not isinstance(value, Estimate)]
    integers = all(value == int(value) for value in numbers if math.isfinite(value))
    texts = []
    for value in values:
        if not _is_number(value) or isinstance(value, Estimate):
            texts.append(str(value))
            continue
        text = f"{value:.0f}" if integers and math.isfinite(value) else format_number(value)
        texts.append(f"{text}{INCONCLUSIVE if isinstance(value, Uncertain) and not math.isnan(value) else ''}")
    return texts


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
