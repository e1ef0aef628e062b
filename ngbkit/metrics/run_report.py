"""The report of a run: its verdict, its first table, and the rest behind `more`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_labels
from ngbkit.dataset.storage import Data
from ngbkit.metrics.conclusions import conclude
from ngbkit.metrics.originals import PRECISION_GAIN, find_originals
from ngbkit.metrics.rendering import to_texts
from ngbkit.metrics.tables import compact
from ngbkit.report import Report


def build_report(
    data: Data,
    figures: Sequence[str],
    most: int | None = None,
    *,
    remarks: Sequence[str] = (),
    with_verdict: bool = True,
) -> Report:
    """Build the report of a run: its verdict, the table of the first figure, and the rest behind `more`."""
    verdict = conclude(data) if with_verdict else Report()
    labels = [str(label) for node in nodes(data).values() for label in list_labels(node, "compiler")]
    if figures[:1] == ["speedup"] and find_originals(labels):
        figures = ["speedup", PRECISION_GAIN.name, *figures[1:]]
    frames = [to_texts(compact(data, figure, most=most)) for figure in figures]
    notes = verdict.more.notes if verdict.more else ()
    first = 1 + (PRECISION_GAIN.name in figures[:2])
    return replace(verdict, frames=frames[:first], more=Report(frames=frames[first:], notes=[*notes, *remarks]))
