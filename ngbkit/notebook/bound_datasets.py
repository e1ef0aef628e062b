"""The datasets that a notebook binds by -o, each compared with the one before, below the results of its run."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ngbkit.errors import NgbkitError
from ngbkit.notebook.objects import count_trials

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ngbkit.dataset.storage import Data
    from ngbkit.metrics.comparison import Comparison

# Comparing more trials takes longer than a display may.
_MOST_TRIALS = 300
_MOST_DATASETS = 4
_bound: WeakKeyDictionary[InteractiveShell, dict[str, Data]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Changes:
    """A comparison below a result, folded if it is long."""

    comparison: Comparison

    def _repr_html_(self) -> str:
        state = "" if self.comparison.is_long else " open"
        heading = escape(f"{self.comparison.runs.title}. {self.comparison}")
        report = replace(self.comparison.to_report(), sentences=())
        return f"<details{state}><summary>{heading}</summary>{report._repr_html_()}</details>"

    def __repr__(self) -> str:
        return f"{self.comparison.title}\n{self.comparison}" if self.comparison.is_long else repr(self.comparison)


def bind(shell: InteractiveShell, name: str, data: Data, beside: str = "") -> Changes | None:
    """Remember a dataset that the notebook binds, and compare it with the latest one that has a trial in common.

    None if there is no such dataset, or if both have the same measurements. With a label of earlier networks that were
    measured `beside` the new ones, these are compared, and are no part of what is remembered.
    """
    if beside:
        from ngbkit.metrics.beside import split_sides
        from ngbkit.metrics.pairing import compare_sides

        if name:
            bind(shell, name, split_sides(data, beside)[1])
        with suppress(NgbkitError):  # nothing of them was measured
            return Changes(compare_sides(data, beside, *filter(None, [name])))
        return None
    earlier = _bound.setdefault(shell, {})
    previous = list(reversed(earlier.items()))
    earlier.pop(name, None)
    is_small = count_trials(data) <= _MOST_TRIALS
    if is_small:
        earlier[name] = data
    while len(earlier) > _MOST_DATASETS:
        del earlier[next(iter(earlier))]
    if not is_small:
        return None
    for label, dataset in previous:
        if (changes := _compare(dataset, data, label, name)) is not None:
            return changes
    return None


def _compare(first: Data, second: Data, before: str, after: str) -> Changes | None:
    """Compare two datasets, if they have a network and a trial in common that was measured twice."""
    from ngbkit.dataset.assembly import nodes
    from ngbkit.metrics.pairing import compare

    try:
        names = [
            {str(name) for node in nodes(data).values() for name in node["workload"].values} for data in (first, second)
        ]
        if not names[0] & names[1]:
            return None
        # The name of an earlier dataset that the new one replaced leads to the new one.
        again = {"beside": before} if after != before else {}
        comparison = compare(first, second, names=(before, after if after != before else f"the new {after}"), **again)
        return Changes(comparison) if comparison.is_remeasured else None
    except Exception:  # noqa: BLE001  what is below a result must not fail it
        return None
