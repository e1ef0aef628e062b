"""Names of trials in sentences, and the sentences on those whose outputs could not be compared."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.contention import find_conclusive_anchors, find_unchecked, find_uncontended
from ngbkit.dataset.long_form import list_factors, list_labels, to_frame
from ngbkit.dataset.selection import Select, list_selected
from ngbkit.dataset.storage import Data
from ngbkit.metrics.estimate import INCONCLUSIVE
from ngbkit.sweep.records import MEASURED, NOT_CHECKED
from ngbkit.user_text import format_network, join_names

if TYPE_CHECKING:
    import pandas as pd

# The fact of a trial whose memory grew: each longer run needs more of it, until none is left.
_GROWTH = "memory_growth"


def name_rows(data: Data, frames: Iterable[pd.DataFrame]) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Iterate over the rows of frames with the name of each trial: ``inductor on net width=64 batch 1``."""
    factors, has_devices = list_factors(data), len(list_labels(data, "device")) > 1
    for row in (row for frame in frames for row in frame.to_dict("records")):
        values = {name: row[name] for name in factors if name in row and row[name] == row[name]}
        place = f" on {row['device']}" if has_devices else ""
        yield f"{row['compiler']} on {format_network(row['workload'], values)}{place} batch {row['batch_size']}", row


def describe_status(status: str, error: str) -> str:
    """Describe what became of a trial in a phrase: its status, and why."""
    return ": ".join(filter(None, [status.replace(NOT_CHECKED, "not checked"), error]))


def count_measured(data: Data) -> int:
    """Count the trials with samples."""
    parts = [node["status"] for node in nodes(data).values() if "status" in node]
    return sum(int(status.isin(MEASURED).sum()) for status in parts)


def list_unchecked(data: Data, select: Select | None = None) -> dict[str, list[str]]:
    """List the trials whose outputs were not compared, by name, under the reason; of the selected labels."""
    names: dict[str, list[str]] = {}
    frames = []
    for node in nodes(data).values():
        if bool(find_unchecked(node).any()):
            frame = to_frame(node[["status", "error"]])
            for dim, selection in (select or {}).items():
                frame = frame[frame[dim].isin(list_selected(selection))] if dim in frame else frame
            frames.append(frame[frame["status"] == NOT_CHECKED])
    for trial, row in name_rows(data, frames):
        names.setdefault(str(row["error"]), []).append(trial)
    return names


def describe_unchecked(data: Data, select: Select | None = None) -> list[str]:
    """Describe in notes of a table the trials that were not checked, by reason, and those whose memory grew."""
    total = count_measured(data)
    notes = [
        f"{INCONCLUSIVE} not checked: {'all trials' if len(names) == total else join_names(names)}: {reason}"
        for reason, names in list_unchecked(data, select).items()
    ]
    frames = [to_frame(node[["facts"]]) for node in nodes(data).values() if "facts" in node]
    grown = [frame[frame["facts"].astype(str).str.contains(f'"{_GROWTH}"')] for frame in frames]
    for trial, row in name_rows(data, grown):
        growth = json.loads(str(row["facts"]))[_GROWTH]
        a_call_mb, total_mb = (1e-6 * float(growth[name]) for name in ("bytes_a_call", "bytes"))
        rate = f"grows by {a_call_mb:.2g} MB a call" if a_call_mb else f"grew by {total_mb:,.0f} MB"
        end = f"; its rounds ended early, after {total_mb:,.0f} MB" if growth["ended"] else ""
        notes.append(f"{trial}: its memory {rate}{end}")
    return notes


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
