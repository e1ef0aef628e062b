"""Trials whose outputs could not be compared: which they are, and the sentences that say so beside their numbers."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.contention import find_conclusive_anchors, find_unchecked, find_uncontended
from ngbkit.dataset.long_form import list_factors, to_frame
from ngbkit.dataset.selection import Select, list_selected
from ngbkit.dataset.storage import Data
from ngbkit.metrics.estimate import INCONCLUSIVE
from ngbkit.metrics.trial_names import name_places, name_trial
from ngbkit.sweep.records import MEASURED, NOT_CHECKED
from ngbkit.user_text import join_names

if TYPE_CHECKING:
    import pandas as pd

# The fact of a trial whose memory grew: each longer run needs more of it, until none is left.
_GROWTH = "memory_growth"


def describe_status(status: str, error: str) -> str:
    """Describe what became of a trial in a phrase: its status, and why."""
    return ": ".join(filter(None, [status.replace(NOT_CHECKED, "not checked"), error]))


def count_measured(data: Data) -> int:
    """Count the trials with samples."""
    parts = [node["status"] for node in nodes(data).values() if "status" in node]
    return sum(int(status.isin(MEASURED).sum()) for status in parts)


def list_unchecked(data: Data, select: Select | None = None) -> dict[str, list[str]]:
    """List the trials whose outputs were not compared, by name, under the reason; of the selected labels."""
    factors = list_factors(data)
    names: dict[str, list[str]] = {}
    for node in nodes(data).values():
        if not bool(find_unchecked(node).any()):
            continue
        frame = to_frame(node[["status", "error"]])
        for dim, selection in (select or {}).items():
            frame = frame[frame[dim].isin(list_selected(selection))] if dim in frame else frame
        frame["where"] = name_places(data, frame)
        for row in frame[frame["status"] == NOT_CHECKED].to_dict("records"):
            names.setdefault(str(row["error"]), []).append(name_trial(row, factors))
    return names


def describe_unchecked(data: Data, select: Select | None = None) -> list[str]:
    """Describe in notes of a table the trials that were not checked, by reason, and those whose memory grew."""
    total = count_measured(data)
    unchecked = [
        f"{INCONCLUSIVE} not checked: {'all trials' if len(names) == total else join_names(names)}: {reason}"
        for reason, names in list_unchecked(data, select).items()
    ]
    return [*unchecked, *_describe_growths(data)]


def _describe_growths(data: Data) -> list[str]:
    """Describe in a note each trial whose memory grew from call to call."""
    factors, notes = list_factors(data), []
    for node in nodes(data).values():
        if "facts" not in node or "status" not in node:
            continue
        frame = to_frame(node[["status", "facts"]])
        frame = frame[frame["facts"].astype(str).str.contains(f'"{_GROWTH}"')]
        if frame.empty:
            continue
        frame["where"] = name_places(data, frame)
        for row in frame.to_dict("records"):
            notes.append(f"{name_trial(row, factors)}: {_describe_growth(json.loads(str(row['facts']))[_GROWTH])}")
    return notes


def _describe_growth(growth: dict[str, Any]) -> str:
    a_call_mb, total_mb = (1e-6 * float(growth[name]) for name in ("bytes_a_call", "bytes"))
    text = f"its memory grows by {a_call_mb:.2g} MB a call" if a_call_mb else f"its memory grew by {total_mb:,.0f} MB"
    return f"{text}; its rounds ended early, after {total_mb:,.0f} MB" if growth["ended"] else text


def count_unchecked(frame: pd.DataFrame, look: str) -> list[str]:
    """Count the rows of a figure that were not checked in its remarks, by reason and with the look of their marks."""
    reasons = Counter(frame["error"][frame["status"] == NOT_CHECKED] if "error" in frame else ())
    return [
        f"{count} {'trial was' if count == 1 else 'trials were'} not checked{look}: {reason}"
        for reason, count in reasons.items()
    ]


def explain_inconclusive(data: Data, *, plural: bool = False) -> str:
    """Explain why a number of a dataset, or several numbers, may be inconclusive."""
    contended = f"too few of {'their' if plural else 'its'} rounds were uncontended"
    unchecked = f"a trial behind {'them' if plural else 'it'} was not checked"
    parts = list(nodes(data).values())
    is_quiet = all(bool(find_uncontended(node).all()) and bool(find_conclusive_anchors(node).all()) for node in parts)
    has_unchecked = any(bool(find_unchecked(node).any()) for node in parts)
    return ", or ".join([*([] if is_quiet and has_unchecked else [contended]), *([unchecked] if has_unchecked else [])])
