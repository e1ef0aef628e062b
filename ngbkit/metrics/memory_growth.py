"""Trials whose memory grew from call to call, in sentences: each longer run needs more of it, until none is left."""

from __future__ import annotations

import json
from typing import Any

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_factors, to_frame
from ngbkit.dataset.storage import Data
from ngbkit.metrics.trial_names import name_places, name_trial

_FACT = "memory_growth"


def describe_growth(data: Data) -> list[str]:
    """Describe in a note each trial whose memory grew from call to call."""
    factors, notes = list_factors(data), []
    for node in nodes(data).values():
        if "facts" not in node or "status" not in node:
            continue
        frame = to_frame(node[["status", "facts"]])
        frame = frame[frame["facts"].astype(str).str.contains(f'"{_FACT}"')]
        if frame.empty:
            continue
        frame["where"] = name_places(data, frame)
        for row in frame.to_dict("records"):
            notes.append(f"{name_trial(row, factors)}: {_describe(json.loads(str(row['facts']))[_FACT])}")
    return notes


def _describe(growth: dict[str, Any]) -> str:
    a_call_mb, total_mb = (1e-6 * float(growth[name]) for name in ("bytes_a_call", "bytes"))
    text = f"its memory grows by {a_call_mb:.2g} MB a call" if a_call_mb else f"its memory grew by {total_mb:,.0f} MB"
    return f"{text}; its rounds ended early, after {total_mb:,.0f} MB" if growth["ended"] else text
