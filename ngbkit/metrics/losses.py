"""The losses of accuracy that chance hardly explains, in a sentence."""

from __future__ import annotations

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import to_frame
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.metrics.paired_accuracy import ACCURACY_CHANCE, ACCURACY_CHANGE

SIGNIFICANCE = 0.05
"""A change that chance explains less often is a loss."""

_MOST = 3


def describe_losses(data: Data) -> str:
    """Describe which columns answer significantly fewer samples right than f32, as `accuracy_change`; empty without."""
    texts: dict[str, str] = {}
    for node in nodes(data).values():
        if not ACCURACY_CHANGE.is_in(node):
            continue
        try:
            change = ACCURACY_CHANGE(node, ci=0.95).drop_vars("conclusive")
            chance = ACCURACY_CHANCE(node)
        except MetricError:  # no column of a lower precision
            continue
        frame = to_frame(change.assign(chance=chance))
        lost = frame[(frame["chance"] < SIGNIFICANCE) & (frame["accuracy_change"] < 0)].sort_values("chance")
        for row in lost.to_dict("records"):
            loss, low, high = (-100 * row[name] for name in ("accuracy_change", "ci_high", "ci_low"))
            text = f"{row['compiler']} on {row['workload']}, {loss:.1f} points ({low:.1f} to {high:.1f})"
            # Of several batch sizes or devices, the surest.
            texts.setdefault(f"{row['compiler']} on {row['workload']}", f"{text}, p = {row['chance']:.2g}")
    listed = [*list(texts.values())[:_MOST], *([f"{len(texts) - _MOST} more"] if len(texts) > _MOST else [])]
    return f"Loses accuracy: {'; '.join(listed)}." if listed else ""
