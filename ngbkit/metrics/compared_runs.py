"""The two runs of a comparison: their titles, their networks in pairs, and the difference of their cells."""

from __future__ import annotations

import ast
import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from ngbkit.dataset.environments import read_environments
from ngbkit.dataset.long_form import list_labels
from ngbkit.dataset.storage import Data

_TIME = "%Y%m%d-%H%M%S"  # the beginning of the id of a run
_CONTENT = ("source", "spec", "values", "batch_axis", "python")
_CONTEXT_LINES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """The two runs of a comparison."""

    names: tuple[str, str]  # of the variables, of the files or of the runs that hold them
    is_single: bool  # both are parts of one run
    times: tuple[datetime | None, datetime | None]  # of their beginning; None where a dataset does not say
    renamed: Mapping[str, str]  # the networks that were matched by their place, from the first run to the second
    changes: tuple[str, ...]  # of networks, in sentences
    difference: str  # of their cells, as `diff -u` prints it; empty for the same cell
    is_changed: bool  # a network of the first run is another one in the second
    beside: str  # the word of --beside that measures the networks of the first run again; empty where it is unknown

    @property
    def title(self) -> str:
        """Both runs in a phrase, the second one first: ``it3 (18:35) against it2 (18:31)``."""
        first, second = self.times
        if self.is_single and first is not None:
            return f"{self.names[1]} against {self.names[0]}, in one run ({first:%H:%M})"
        layout = "%d %b %H:%M" if first and second and first.date() != second.date() else "%H:%M"
        if first and second and first != second and f"{first:{layout}}" == f"{second:{layout}}":
            layout = "%H:%M:%S"
        titles = [
            name if time is None else f"{name} ({time:{layout}})"
            for name, time in zip(self.names, self.times, strict=True)
        ]
        return f"{titles[1]} against {titles[0]}"


def pair_runs(first: Data, second: Data, names: Sequence[str] = (), beside: str = "") -> ComparedRuns:
    """Pair the networks of two runs by name, and the others by their place, and describe what changed in each."""
    networks = [dict.fromkeys(map(str, list_labels(data, "workload"))) for data in (first, second)]
    renamed = match_by_place(*map(list, networks))
    descriptions = [_read_networks(data) for data in (first, second)]
    pairs = [
        (before, after, descriptions[0][before], descriptions[1][after])
        for before in networks[0]
        if before in descriptions[0] and (after := renamed.get(before, before)) in descriptions[1]
    ]
    changed = [(before, _describe_change(earlier, later)) for before, _, earlier, later in pairs]
    changes = [
        *(f"{before} is compared with {after}, which has its place" for before, after in renamed.items()),
        *(f"{before}: {change}" for before, change in changed if change and before not in renamed),
    ]
    labels = tuple(names) if names else ("before", "after")
    # Several networks may be of one cell.
    cells = dict.fromkeys((_read_cell(earlier), _read_cell(later)) for _, _, earlier, later in pairs)
    lines: list[str] = []
    for before, after in cells:
        if before and after:
            texts = [cell.strip().splitlines() for cell in (before, after)]
            lines += difflib.unified_diff(texts[0], texts[1], labels[0], labels[1], lineterm="", n=_CONTEXT_LINES)
    run_ids = [str(data.attrs.get("run_id", "")) for data in (first, second)]
    return ComparedRuns(
        names=(labels[0], labels[1]),
        is_single=bool(names) and run_ids[0] == run_ids[1] != "",
        times=(find_time(first), find_time(second)),
        renamed=renamed,
        changes=tuple(changes),
        difference="\n".join(lines),
        is_changed=bool(renamed) or any(change not in ("", _SAME_CODE) for _, change in changed),
        beside=beside or ("" if ", " in run_ids[0] else run_ids[0]),
    )


def find_time(data: Data) -> datetime | None:
    """Find when the latest run of a dataset began, in the time of this machine; None where its id does not say."""
    try:
        text = max(str(data.attrs.get("run_id", "")).split(", "))[:15]
        return datetime.strptime(text, _TIME).replace(tzinfo=timezone.utc).astimezone()
    except ValueError:
        return None


def match_by_place(first: Sequence[str], second: Sequence[str]) -> dict[str, str]:
    """Match the networks without a namesake by their place, if both runs have as many of them."""
    earlier = [name for name in first if name not in second]
    later = [name for name in second if name not in first]
    return dict(zip(earlier, later, strict=True)) if len(earlier) == len(later) else {}


def _read_networks(data: Data) -> dict[str, Mapping[str, Any]]:
    """Read the descriptions of the networks of a dataset; empty where it has none."""
    try:
        workloads = json.loads(data.attrs.get("sweep") or "{}")["workloads"]
        return {str(workload["name"]): workload for workload in workloads}
    except (ValueError, TypeError, LookupError):
        return {}


_SAME_CODE = "its cell has other comments or another layout, and the same code"


def _describe_change(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> str:
    """Describe how a network differs from another one; empty where it does not."""
    if all(earlier.get(name) == later.get(name) for name in _CONTENT):
        return ""
    cells = [_read_cell(network) for network in (earlier, later)]
    if not all(cells):
        return "another network of the same name"
    return _SAME_CODE if _parse(cells[0]) == _parse(cells[1]) else "its cell changed"


def _read_cell(network: Mapping[str, Any]) -> str:
    """Read the cell that defines a network; empty for another kind of network."""
    return str(network["spec"].get("source", "")) if network.get("source") == "cell" else ""


def _parse(cell: str) -> str:
    """Parse a cell to a text that comments and layout do not change."""
    try:
        return ast.dump(ast.parse(cell))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return cell


def list_differences(first: Data, second: Data, find: Callable[..., list[str]]) -> list[str]:
    """List the differences between the machines of one label, or between the only ones."""
    before, after = read_environments(first), read_environments(second)
    if len(before) == len(after) == 1:
        return find(*before.values(), *after.values())
    shared = [label for label in before if label in after]
    return [f"{label}: {line}" for label in shared for line in find(before[label], after[label])]
