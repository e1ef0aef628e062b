"""Two versions of networks in one run, the sides of a gate: how much longer the later one takes, round by round.

Both sides are versions of one program and take turns, so that what a machine does from minute to minute affects both
alike. Beyond their rounds, a ratio deviates as that of two processes of one program does; two different programs would
deviate more on a virtual machine (`ngbkit.metrics.draws.HOSTED_SD`), which no gate could see through.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_trial_dims, to_frame
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.intervals import WIDENING
from ngbkit.errors import UsageError
from ngbkit.metrics.draws import Sampler
from ngbkit.metrics.estimate import LEVEL
from ngbkit.metrics.gates.gate import Gate, build_gate
from ngbkit.metrics.gates.regressions import MARGIN, judge
from ngbkit.metrics.rankings.candidates import Candidate, Cell, compute_lead, list_candidates
from ngbkit.sweep import validation
from ngbkit.workloads.base import Workload

BEFORE, AFTER = " (before)", " (after)"
"""How the labels of the networks of either side end."""

_SEED = 0
_QUANTILE = NormalDist().inv_cdf((1 + LEVEL) / 2)


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

    share = validation.margin(margin)
    sampler = Sampler(level=LEVEL, generator=np.random.default_rng(_SEED))
    outcomes = _list_outcomes(data)
    rows: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    absent: list[dict[str, Any]] = []
    in_turns = True
    for labels, earlier, later in _pair(data):
        if later is None:
            reason = outcomes.get(tuple(labels.values()), "")
            (failed if reason else absent).append({**labels, **({"reason": reason} if reason else {})})
            continue
        row, compared = _compare(earlier, later, sampler)
        in_turns = in_turns and compared == "side by side"
        rows.append({**labels, **row})
    if not rows and not failed:
        raise UsageError(
            f"no trial to judge: a gate needs networks whose names end in {BEFORE!r} and {AFTER!r}, measured at the "
            "same batch size. `ngbkit gate` measures both."
        )
    judged = pd.DataFrame(rows)
    if rows:
        columns = {name: judged[name] for name in ("rounds", "settled")}
        bounds = (judged[name] for name in ("slowdown", "low", "high"))
        judged["verdict"] = judge(*bounds, level=LEVEL, margin=share, **columns)
        judged["reason"] = ""
    return build_gate(
        judged,
        failed=pd.DataFrame(failed),
        absent=pd.DataFrame(absent),
        margin=share,
        compared="latency, measured in turns" if in_turns else "latency",
        warnings=()
        if in_turns
        else (
            "some trials did not take turns, since memory did not hold both sides, or since the run was interrupted: "
            "their intervals allow for what a machine does from minute to minute.",
        ),
    )


def _pair(data: Data) -> Iterator[tuple[dict[str, Any], Candidate, Candidate | None]]:
    """Every trial that the earlier side measured: its labels, and the trials of both sides."""
    for cell, candidates in list_candidates(data, "gate", "allow", untuned=True).items():
        later = {_label(cell, each, AFTER): each for each in candidates if each.workload.endswith(AFTER)}
        for earlier in candidates:
            if earlier.workload.endswith(BEFORE):
                key = _label(cell, earlier, BEFORE)
                yield dict(key), earlier, later.get(key)


def _label(cell: Cell, candidate: Candidate, side: str) -> tuple[tuple[str, Any], ...]:
    """The labels of a trial, in the order of the columns of every table, its network without the side."""
    labels: Mapping[str, Any] = {
        "workload": candidate.workload.removesuffix(side),
        **candidate.factors,
        "device": cell[0],
        "compiler": candidate.compiler,
        "batch_size": cell[1],
    }
    return tuple(labels.items())


def _compare(earlier: Candidate, later: Candidate, sampler: Sampler) -> tuple[dict[str, Any], str]:
    lead = compute_lead(earlier, later, sampler)
    deviation = math.hypot(lead.rounds_sd, later.copies_sd, lead.between_sd)
    if earlier.stopped or later.stopped:
        deviation *= WIDENING
    medians = [float(np.median(list(each.rounds.values()))) for each in (earlier, later)]
    half = _QUANTILE * deviation
    row = {
        "before": medians[0],
        "after": medians[1],
        "slowdown": math.exp(lead.log_ratio),
        "low": math.exp(lead.log_ratio - half),
        "high": math.exp(lead.log_ratio + half),
        "rounds": lead.rounds,
        "settled": earlier.settled and later.settled,
    }
    return row, lead.compared


def _list_outcomes(data: Data) -> dict[tuple[Any, ...], str]:
    """Why trials of the later side failed, by their labels."""
    reasons: dict[tuple[Any, ...], str] = {}
    for node in nodes(data).values():
        frame = to_frame(node[["status", "error"]])
        labels = [name for name in list_trial_dims(node) if name in frame]
        for row in frame.to_dict("records"):
            name = str(row["workload"])
            if name.endswith(AFTER) and row["status"] not in ("ok", "pending", "predicted"):
                key = (name.removesuffix(AFTER), *(row[label] for label in labels[1:]))
                reasons[key] = f"{row['status']}: {row['error']}"
    return reasons
