"""Two versions of networks or of a compiler in one run, the sides of a gate: how much slower the later one is.

The ratio is taken round by round.

Both sides are versions of one program and take turns, so that what a machine does from minute to minute affects both
alike. Beyond their rounds, a ratio deviates as that of two processes of one program does; two different programs would
deviate more on a virtual machine (`ngbkit.metrics.draws.HOSTED_SD`), which no gate could see through.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ngbkit import validation
from ngbkit.dataset.long_form import list_factors, list_labels
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.metrics.beside import compare_sides, iterate_outcomes
from ngbkit.metrics.gates.gate import MARGIN, Gate, build_gate, judge_lost
from ngbkit.metrics.metric import name_regression
from ngbkit.metrics.rankings.candidates import RankingCandidate
from ngbkit.metrics.statistics import bound_ratio
from ngbkit.sweep.column import Column
from ngbkit.sweep.records import OPEN
from ngbkit.workloads.base import Workload

BEFORE, AFTER = " (before)", " (after)"
"""The endings of the labels of the networks of either side."""

Outcomes = dict[tuple[tuple[str, Any], ...], "RankingCandidate | str"]
"""The trials of a side by their labels: measured, or why they failed."""


def name_sides(before: Sequence[Workload], after: Sequence[Workload]) -> list[Workload]:
    """Name the networks of both sides in pairs, each by its name before and its side; UsageError if not as many."""
    if len(before) != len(after):
        raise UsageError(
            f"invalid sides: got {len(before)} networks before and {len(after)} after; expected as many, in pairs."
        )
    pairs = zip(before, after, strict=True)
    return [
        replace(workload, name=earlier.name + side)
        for earlier, later in pairs
        for workload, side in ((earlier, BEFORE), (later, AFTER))
    ]


def judge_sides(data: Data, margin: float | str = MARGIN) -> Gate:
    """Judge the trials of a run of two sides: the networks of `name_sides`, or two releases of one compiler.

    UsageError: it has not both sides, or no trial that the earlier one measured; or the margin is no share.
    """
    import pandas as pd

    share = validation.check("margin", validation.Margin, margin)
    columns = find_releases(data)
    before, after = _list_outcomes(data, columns)
    if not before:
        raise UsageError(
            f"no trial to judge: a gate needs networks whose names end in {BEFORE!r} and {AFTER!r}, or two releases of "
            "a compiler, measured at the same batch size. `ngbkit gate` measures both."
        )
    judged: list[dict[str, Any]] = []
    lost: list[dict[str, Any]] = []
    in_turns = True
    for labels, earlier in before.items():
        later = after.get(labels, "")
        if isinstance(earlier, str) or isinstance(later, str):
            failed = [outcome if isinstance(outcome, str) else "" for outcome in (earlier, later)]
            lost.append({**dict(labels), **judge_lost(failed[0], failed[1])})
            continue
        row, is_paired = _compare(earlier, later)
        judged.append({**dict(labels), **row})
        in_turns = in_turns and is_paired
    gate = build_gate(
        pd.DataFrame(judged),
        pd.DataFrame(lost),
        margin=share,
        compared="latency, measured in turns" if in_turns else "latency",
        warnings=()
        if in_turns
        else (
            "some trials did not take turns, since memory did not hold both sides, or since the run was interrupted: "
            "their intervals allow for what a machine does from minute to minute.",
        ),
    )
    reasons = [_find_reason(data, row, columns) for row in gate.trials.to_dict("records")]
    return replace(gate, trials=gate.trials.assign(reason=reasons))


def _find_reason(data: Data, row: Mapping[Hashable, Any], columns: tuple[str, str] | None) -> str:
    """Find the piece of the network that made a trial slower, where both sides were profiled; or why it is unsure."""
    if row["reason"] or row["verdict"] != "slower":
        return str(row["reason"])
    dim, shared = ("workload", "compiler") if columns is None else ("compiler", "workload")
    names = [*list_factors(data), "device", "batch_size", shared]
    cell = {name: row[name] for name in names if name in row and row[name] == row[name]}
    return name_regression(data, columns or (f"{row[dim]}{BEFORE}", f"{row[dim]}{AFTER}"), cell)


def find_releases(data: Data) -> tuple[str, str] | None:
    """Find the two columns of one compiler that a dataset compares; None if it has other columns, or two networks."""
    compilers = list_labels(data, "compiler")
    names = {Column.read(label).compiler for label in compilers}
    has_sides = any(label.endswith(BEFORE) for label in list_labels(data, "workload"))
    if len(compilers) != 2 or len(names) > 1 or has_sides:
        return None
    before, after = compilers
    return before, after


def _list_outcomes(data: Data, columns: tuple[str, str] | None) -> tuple[Outcomes, Outcomes]:
    """List the trials of both sides, those that failed last."""
    sides: dict[str, Outcomes] = {BEFORE: {}, AFTER: {}}
    for labels, outcome in iterate_outcomes(data):
        workload, compiler = str(labels["workload"]), str(labels["compiler"])
        if columns is not None:
            side, compiler = BEFORE if compiler == columns[0] else AFTER, " to ".join(columns)
        else:
            side = next((each for each in sides if workload.endswith(each)), "")
            workload = workload.removesuffix(side)
        is_open = isinstance(outcome, str) and outcome.partition(":")[0] in OPEN
        if side and not is_open:
            sides[side][tuple({**labels, "workload": workload, "compiler": compiler}.items())] = outcome
    return sides[BEFORE], sides[AFTER]


def _compare(earlier: RankingCandidate, later: RankingCandidate) -> tuple[dict[str, Any], bool]:
    """Compare a trial of both sides, and return whether these took turns."""
    lead, deviation = compare_sides(earlier, later, are_versions=True)
    before, after = (float(np.median(list(each.rounds.values()))) for each in (earlier, later))
    sides = [side for side, trial in (("before", earlier), ("after", later)) if not trial.checked]
    row = {
        "before": before,
        "after": after,
        **dict(zip(("slowdown", "low", "high"), bound_ratio(lead.log_ratio, deviation), strict=True)),
        "rounds": lead.rounds,
        "conclusive": earlier.conclusive and later.conclusive,
        "reason": f"not checked {' and '.join(sides)}: {earlier.reason or later.reason}" if sides else "",
    }
    return row, lead.compared == "side by side"
