"""Sentences on facts of trials: changed constants, the precision of a runtime's own, and the cost of page faults."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_labels, to_frame
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.originals import PRECISION_GAIN
from ngbkit.metrics.rendering import format_number
from ngbkit.metrics.trials import compute_fault_share
from ngbkit.sweep.column import Column
from ngbkit.sweep.memory import KEPT, MEMORY, SYSTEM
from ngbkit.user_text import format_share

# The share of the CPU time of a call that page faults may cost without a word.
_NOTABLE = 0.05
# By this factor what a fault costs differs between minutes: 1.7 to 2.7 µs on one virtual machine.
_SPREAD = 1.3
_CLAMPED, _UNASKED = '"clamped"', '"default_precision"'


def describe_clamped(data: Data) -> list[str]:
    """Describe each column whose quantiser clamped constants of a network in a sentence, whatever its batch size."""
    sentences: dict[str, None] = {}
    for row, facts in _iterate_facts(data, _CLAMPED):
        if clauses := (facts.get("quantised") or {}).get("clamped"):
            sentences[f"Changed by {row['compiler']} on {row['workload']}: {'; '.join(map(str, clauses))}."] = None
    return list(sentences)


def describe_unasked_precision(data: Data) -> list[str]:
    """Describe which columns their runtime, left alone, computes in a lower precision, and the column of that."""
    present = {label for node in nodes(data).values() for label in list_labels(node, "compiler")}
    sentences: dict[str, None] = {}
    for row, facts in _iterate_facts(data, _UNASKED):
        column, precision = Column.read(row["compiler"]), str(facts["default_precision"])
        if column.precision or precision == json.loads(row.get("contract") or "{}").get("precision"):
            continue
        lower = replace(column, precision=precision).label
        gains = [str(gain) for gain in _list_gains(data, lower)] if lower in present else []
        lead = " to ".join(dict.fromkeys([str(gains[0]), str(gains[-1])])) if gains else ""
        remedy = f"add it by -c '{lower}'" if lower not in present else f"as {lower}"
        remedy += f", {lead} times as fast" if lead else ""
        sentences[f"{column.compiler}, left alone, computes in {precision} on this chip: {remedy}."] = None
    return list(sentences)


def describe_faults(data: Data) -> list[str]:
    """Describe which columns spend a notable share of their CPU time on page faults, each by the worst trial."""
    most: dict[str, dict[Any, Any]] = {}
    for node in nodes(data).values():
        if "minor_faults" not in node or "latency" not in node:
            continue
        frame = to_frame(node[["minor_faults", "contract"]].assign(share=compute_fault_share(node)))
        for row in frame[frame["share"] >= _NOTABLE].sort_values("share").to_dict("records"):
            most[row["compiler"]] = row
    return [
        f"{format_number(row['minor_faults'])} page faults a call cost {label} {_format_range(row['share'])} of "
        f"its CPU time ({row['workload']}, batch {row['batch_size']}): its memory is {_read_memory(row)}."
        for label, row in most.items()
    ]


def _format_range(share: float) -> str:
    low, high = share / _SPREAD, min(1.0, share * _SPREAD)
    return f"about {100 * low:.0f} to {format_share(high, '.0f')}"


def _read_memory(row: Mapping[Any, Any]) -> str:
    memory = json.loads(row["contract"] or "{}").get(MEMORY, SYSTEM)
    return f"{memory}, and {KEPT} returns no page" if memory == SYSTEM else str(memory)


def _list_gains(data: Data, label: str) -> list[Estimate]:
    """List the gains of a column over its f32, from the least."""
    gains: list[Estimate] = []
    for node in nodes(data).values():
        if label in list_labels(node, "compiler") and "round" in node:
            gain = PRECISION_GAIN.compute_masked(node, ci=LEVEL).sel(compiler=[label])
            frame = to_frame(gain.to_dataset() if isinstance(gain, xr.DataArray) else gain)
            columns = [frame[name] for name in ("precision_gain", "ci_low", "ci_high", "conclusive")]
            gains += [Estimate(*cells) for cells in zip(*columns, strict=True)]
    return sorted(gain for gain in gains if math.isfinite(gain))


def _iterate_facts(data: Data, key: str) -> Iterator[tuple[dict[Any, Any], dict[str, Any]]]:
    """Iterate over the trials whose facts have a key, with their facts."""
    for node in nodes(data).values():
        if "facts" in node and any(key in str(text) for text in node["facts"].values.ravel()):
            frame = to_frame(xr.Dataset({name: node[name] for name in ("facts", "contract") if name in node}))
            for row in frame[frame["facts"].str.contains(key)].to_dict("records"):
                yield row, json.loads(row["facts"])
