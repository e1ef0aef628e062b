"""Two versions of networks in one run, the sides of a gate: how much longer the later one takes, round by round.

Both sides are versions of one program and take turns, so that what a machine does from minute to minute affects both
alike. Beyond their rounds, a ratio deviates as that of two processes of one program does; two different programs would
deviate more on a virtual machine (`ngbkit.metrics.draws.HOSTED_SD`), which no gate could see through.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ngbkit import validation
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_trial_dims, to_frame
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.intervals import WIDENING
from ngbkit.device.timing.normal import LEVEL, find_quantile
from ngbkit.errors import UsageError
from ngbkit.metrics.draws import SEED, Sampler
from ngbkit.metrics.gates.gate import Gate, build_gate, describe_lost
from ngbkit.metrics.gates.regressions import MARGIN, judge
from ngbkit.metrics.rankings.candidates import Cell, RankingCandidate, compute_lead, list_candidates
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
    """Judge the trials of a run of two sides, of `name_sides`.

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
    before, after = (_list_outcomes(data, side) for side in (BEFORE, AFTER))
    rows: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    absent: list[dict[str, Any]] = []
    in_turns = True
    for labels, earlier, later in _pair(data):
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
            f"no trial to judge: a gate needs networks whose names end in {BEFORE!r} and {AFTER!r}, measured at the "
            "same batch size. `ngbkit gate` measures both."
        )
    judged = pd.DataFrame(rows)
    if rows:
        columns = {name: judged[name] for name in ("rounds", "conclusive")}
        bounds = (judged[name] for name in ("slowdown", "low", "high"))
        judged["verdict"] = judge(*bounds, level=LEVEL, margin=share, **columns)
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


def _pair(data: Data) -> Iterator[tuple[dict[str, Any], RankingCandidate, RankingCandidate | None]]:
    """Every trial that the earlier side measured: its labels, and the trials of both sides."""
    for cell, candidates in list_candidates(data, "gate", "allow", untuned=True).items():
        later = {_label(cell, each, AFTER): each for each in candidates if each.workload.endswith(AFTER)}
        for earlier in candidates:
            if earlier.workload.endswith(BEFORE):
                key = _label(cell, earlier, BEFORE)
                yield dict(key), earlier, later.get(key)


def _label(cell: Cell, candidate: RankingCandidate, side: str) -> tuple[tuple[str, Any], ...]:
    """The labels of a trial, in the order of the columns of every table, its network without the side."""
    labels: Mapping[str, Any] = {
        "workload": candidate.workload.removesuffix(side),
        **candidate.factors,
        "device": cell[0],
        "compiler": candidate.compiler,
        "batch_size": cell[1],
    }
    return tuple(labels.items())


def _compare(earlier: RankingCandidate, later: RankingCandidate, sampler: Sampler) -> tuple[dict[str, Any], str]:
    lead = compute_lead(earlier, later, sampler)
    deviation = math.hypot(lead.rounds_sd, later.copies_sd, lead.between_sd)
    if earlier.stopped or later.stopped:
        deviation *= WIDENING
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


def _describe_unchecked(earlier: RankingCandidate, later: RankingCandidate) -> str:
    """Describe which sides of a trial were not checked; empty where both were."""
    sides = [side for side, trial in (("before", earlier), ("after", later)) if not trial.checked]
    reason = earlier.reason or later.reason
    return f"not checked {' and '.join(sides)}: {reason}" if sides else ""


def _list_outcomes(data: Data, side: str) -> dict[tuple[Any, ...], tuple[dict[str, Any], str]]:
    """The labels of the trials of a side that failed, and why, by the values of their labels."""
    outcomes: dict[tuple[Any, ...], tuple[dict[str, Any], str]] = {}
    for node in nodes(data).values():
        frame = to_frame(node[["status", "error"]])
        names = [name for name in list_trial_dims(node) if name in frame]
        for row in frame[~frame["status"].isin(["", *MEASURED, *OPEN])].to_dict("records"):
            if str(row["workload"]).endswith(side):
                labels = {name: row[name] for name in names} | {"workload": str(row["workload"]).removesuffix(side)}
                outcomes[tuple(labels.values())] = (labels, f"{row['status']}: {row['error']}")
    return outcomes
