"""Two versions of networks or of a compiler in one run, the sides of a gate: how much slower the later one is.

The ratio is taken round by round.

Both sides are versions of one program and take turns, so that what a machine does from minute to minute affects both
alike. Beyond their rounds, a ratio deviates as that of two processes of one program does; two different programs would
deviate more on a virtual machine (`ngbkit.metrics.draws.HOSTED_SD`), which no gate could see through.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ngbkit import validation
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_factors, list_labels, list_trial_dims, to_frame
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.intervals import WIDENING
from ngbkit.device.timing.normal import LEVEL, find_quantile
from ngbkit.errors import UsageError
from ngbkit.metrics.draws import SEED, Sampler
from ngbkit.metrics.explanation.explain import name_regression
from ngbkit.metrics.gates.gate import Gate, build_gate, describe_lost
from ngbkit.metrics.gates.regressions import MARGIN, judge
from ngbkit.metrics.rankings.candidates import Cell, Lead, RankingCandidate, compute_lead, list_candidates
from ngbkit.sweep.column import Column
from ngbkit.sweep.records import MEASURED, OPEN
from ngbkit.workloads.base import Workload

BEFORE, AFTER = " (before)", " (after)"
"""The endings of the labels of the networks of either side."""


def name_sides(before: Sequence[Workload], after: Sequence[Workload]) -> list[Workload]:
    """The networks of both sides, in pairs, each labelled by the name before and by its side.

    UsageError: they are not as many.
    """
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

    Parameters
    ----------
    data
        The dataset of the run.
    margin
        The slowdown that is accepted: 0.02, or ``"2%"``.

    Raises
    ------
    UsageError
        The dataset has not both sides, or no trial that the earlier one measured; or the margin is no share.
    """
    import pandas as pd

    share = validation.check("margin", validation.Margin, margin)
    sampler = Sampler(level=LEVEL, generator=np.random.default_rng(SEED))
    columns = find_releases(data)
    before, after = (_list_outcomes(data, side, columns) for side in (BEFORE, AFTER))
    rows: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    absent: list[dict[str, Any]] = []
    in_turns = True
    for labels, earlier, later in _pair(data, columns):
        if later is None:
            reason = after.get(tuple(labels.values()), ({}, ""))[1]
            (failed if reason else absent).append({**labels, **({"reason": reason} if reason else {})})
            continue
        row, compared = _compare(earlier, later, sampler)
        in_turns = in_turns and compared == "side by side"
        rows.append({**labels, **row})
    unjudged = [
        {**labels, "reason": describe_lost(reason, after.get(key, ({}, ""))[1])}
        for key, (labels, reason) in before.items()
    ]
    if not rows and not failed and not unjudged:
        raise UsageError(
            f"no trial to judge: a gate needs networks whose names end in {BEFORE!r} and {AFTER!r}, or two releases of "
            "a compiler, measured at the same batch size. `ngbkit gate` measures both."
        )
    judged = pd.DataFrame(rows)
    if rows:
        settings = {name: judged[name] for name in ("rounds", "conclusive")}
        bounds = (judged[name] for name in ("slowdown", "low", "high"))
        judged["verdict"] = judge(*bounds, level=LEVEL, margin=share, **settings)
        judged["reason"] = [_find_reason(data, row, columns) for row in judged.to_dict("records")]
    return build_gate(
        judged,
        failed=pd.DataFrame(failed),
        absent=pd.DataFrame(absent),
        unjudged=pd.DataFrame(unjudged),
        margin=share,
        compared="latency, measured in turns" if in_turns else "latency",
        warnings=()
        if in_turns
        else (
            "some trials did not take turns, since memory did not hold both sides, or since the run was interrupted: "
            "their intervals allow for what a machine does from minute to minute.",
        ),
    )


def _find_reason(data: Data, row: Mapping[Hashable, Any], columns: tuple[str, str] | None) -> str:
    """Find the piece of the network that made a trial slower, where both sides were profiled; or why it is unsure."""
    reason = str(row["reason"])
    if reason or row["verdict"] != "slower":
        return reason
    names = [*list_factors(data), "device", "batch_size", "compiler" if columns is None else "workload"]
    cell = {name: row[name] for name in names if name in row and row[name] == row[name]}
    dim = "workload" if columns is None else "compiler"
    sides = columns or (f"{row['workload']}{BEFORE}", f"{row['workload']}{AFTER}")
    return name_regression(data, dim, sides, cell)


def find_releases(data: Data) -> tuple[str, str] | None:
    """Find the two columns of one compiler that a dataset compares; None if it has other columns, or two networks."""
    compilers = list_labels(data, "compiler")
    names = {Column.read(label).compiler for label in compilers}
    has_sides = any(label.endswith(BEFORE) for label in list_labels(data, "workload"))
    if len(compilers) != 2 or len(names) > 1 or has_sides:
        return None
    before, after = compilers
    return before, after


def _find_side(workload: str, compiler: str, columns: tuple[str, str] | None) -> tuple[str, str, str]:
    """Find the side of a trial, and the network and the column that both sides share; the side is empty for neither."""
    if columns is not None:
        return BEFORE if compiler == columns[0] else AFTER, workload, " to ".join(columns)
    side = next((each for each in (BEFORE, AFTER) if workload.endswith(each)), "")
    return side, workload.removesuffix(side), compiler


def _pair(
    data: Data, columns: tuple[str, str] | None
) -> Iterator[tuple[dict[str, Any], RankingCandidate, RankingCandidate | None]]:
    """Every trial that the earlier side measured: its labels, and the trials of both sides."""
    for cell, candidates in list_candidates(data, "gate", "allow", untuned=True).items():
        sides = [_label(cell, each, columns) for each in candidates]
        pairs = list(zip(sides, candidates, strict=True))
        later = {key: each for (side, key), each in pairs if side == AFTER}
        for (side, key), earlier in pairs:
            if side == BEFORE:
                yield dict(key), earlier, later.get(key)


def _label(
    cell: Cell, candidate: RankingCandidate, columns: tuple[str, str] | None
) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """The side of a trial, and its labels without that, in the order of the columns of every table."""
    side, workload, compiler = _find_side(candidate.workload, candidate.compiler, columns)
    labels: Mapping[str, Any] = {
        "workload": workload,
        **candidate.factors,
        "device": cell[0],
        "compiler": compiler,
        "batch_size": cell[1],
    }
    return side, tuple(labels.items())


def _compare(earlier: RankingCandidate, later: RankingCandidate, sampler: Sampler) -> tuple[dict[str, Any], str]:
    lead, deviation = compare_sides(earlier, later, sampler)
    medians = [float(np.median(list(each.rounds.values()))) for each in (earlier, later)]
    half = find_quantile(LEVEL) * deviation
    row = {
        "before": medians[0],
        "after": medians[1],
        "slowdown": math.exp(lead.log_ratio),
        "low": math.exp(lead.log_ratio - half),
        "high": math.exp(lead.log_ratio + half),
        "rounds": lead.rounds,
        "conclusive": earlier.conclusive and later.conclusive,
        "reason": _describe_unchecked(earlier, later),
    }
    return row, lead.compared


def compare_sides(earlier: RankingCandidate, later: RankingCandidate, sampler: Sampler) -> tuple[Lead, float]:
    """Compare two versions of one program: the lead of the earlier one, and the deviation of its logarithm."""
    lead = compute_lead(earlier, later, sampler.level)
    deviation = math.hypot(lead.rounds_sd, later.copies_sd, lead.between_sd)
    return lead, deviation * WIDENING if earlier.stopped or later.stopped else deviation


def _describe_unchecked(earlier: RankingCandidate, later: RankingCandidate) -> str:
    """Describe which sides of a trial were not checked; empty where both were."""
    sides = [side for side, trial in (("before", earlier), ("after", later)) if not trial.checked]
    reason = earlier.reason or later.reason
    return f"not checked {' and '.join(sides)}: {reason}" if sides else ""


def _list_outcomes(
    data: Data, side: str, columns: tuple[str, str] | None
) -> dict[tuple[Any, ...], tuple[dict[str, Any], str]]:
    """The labels of the trials of a side that failed, and why, by the values of their labels."""
    outcomes: dict[tuple[Any, ...], tuple[dict[str, Any], str]] = {}
    for node in nodes(data).values():
        frame = to_frame(node[["status", "error"]])
        names = [name for name in list_trial_dims(node) if name in frame]
        for row in frame[~frame["status"].isin(["", *MEASURED, *OPEN])].to_dict("records"):
            trial_side, workload, compiler = _find_side(str(row["workload"]), str(row["compiler"]), columns)
            if trial_side == side:
                labels = {name: row[name] for name in names} | {"workload": workload, "compiler": compiler}
                outcomes[tuple(labels.values())] = (labels, f"{row['status']}: {row['error']}")
    return outcomes
