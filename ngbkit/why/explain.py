"""Explains the gap between two columns of a dataset by the profiles of their trials."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_factors, list_labels, to_frame
from ngbkit.dataset.selection import LABELS, match_labels, select, select_rows
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import MetricError, UsageError
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.rankings.candidates import list_candidates
from ngbkit.metrics.rankings.networks import compare_candidates
from ngbkit.sweep.column import Column
from ngbkit.sweep.json_values import to_json_value
from ngbkit.user_text import format_network
from ngbkit.why.attribution import attribute
from ngbkit.why.explanation import Explanation
from ngbkit.why.pieces import cut
from ngbkit.why.trial_profile import TrialProfile, parse_profile

PROFILE = "profile"
"""The variable with the profile of each trial."""

_MOST_CELLS = 6


def explain(data: Data, first: str, second: str, **labels: Any) -> Explanation:
    """Explain the gap between two columns, operator by operator.

    Parameters
    ----------
    data
        The dataset or tree of a run with profiles (``--profile``).
    first, second
        The labels of two compilers; or of two networks, such as a version before and a version after a change.
    **labels
        By dim, the trial to explain, where both were profiled in more than one: ``workload="resnet18",
        batch_size=8``.

    Returns
    -------
    Explanation
        It prints as a sentence, and has `to_frame` and, as `ds.ngb.explain`, `plot`.

    Raises
    ------
    UnknownNameError
        There is no such column, dim or label.
    UsageError
        The labels leave more than one trial.
    MetricError
        A column has no profile; the message has the options that measure them.

    Notes
    -----
    Nodes of the network that either side computes in one kernel are one piece. The time of a piece is that of its
    kernels, from profiled calls in turns with calls without the profiler, whose cost is taken out; what a call takes
    beyond its kernels is a piece too, so that pieces sum to the gap. Intervals are of rounds in pairs, with an
    allowance for what two processes of one program differ by (`ngbkit.why.attribution`).

    Examples
    --------
    >>> ds.ngb.explain("openvino", "onnxruntime", workload="efficientnet_b3")  # doctest: +SKIP
    openvino is 1.61 ± 0.03 times as fast as onnxruntime on efficientnet_b3 (batch 1, cpu): 71 ± 6 % of the gap is
    depthwise convolutions with SiLU, which openvino fuses and onnxruntime does not.
    """
    compilers, networks = ({*list_labels(data, dim)} for dim in ("compiler", "workload"))
    dim = "workload" if {first, second} & networks and not {first, second} <= compilers else "compiler"
    matched = match_labels(dim, [first, second], list_labels(data, dim))
    columns = matched[0], matched[1]
    if columns[0] == columns[1]:
        raise UsageError(f"invalid pair: got {first!r} twice; expected two columns. Name another.")
    cell, profiles = _find_cell(data, dim, columns, labels)
    part = select(data, **{name: [label] for name, label in cell.items()}, **{dim: list(columns)})
    pieces = cut(profiles)
    candidates = {
        str(getattr(each, dim)): each
        for listed in list_candidates(part, "explain", "allow", untuned=True).values()
        for each in listed
    }
    candidate, other = (candidates[name] for name in columns)
    speedup = compare_candidates(candidate, other, LEVEL).estimate  # as verdicts estimate it
    # The second's latency minus the first's: as many times the first's as the speed-up is over one.
    latency = float(np.median(list(candidate.rounds.values())))
    gap, low, high = (latency * (factor - 1) for factor in (speedup, speedup.low, speedup.high))
    factors = {name: label for name, label in cell.items() if name not in (*LABELS, "workload")}
    network = format_network(str(cell.get("workload", " and ".join(columns))), factors)
    differences = Column.read(columns[0]).differs_from(Column.read(columns[1]))
    return Explanation(
        network=network if "compiler" not in cell else f"{network} with {cell['compiler']}",
        device=str(cell["device"]),
        batch_size=int(cell["batch_size"]),
        names=columns,
        speedup=speedup,
        timed_gap=Estimate(gap, low, high, speedup.conclusive),
        profiles=profiles,
        pieces=tuple(pieces),
        attribution=attribute(profiles, pieces, are_versions=dim == "workload" or {*differences} <= {"release"}),
    )


def list_profiles(data: Data) -> pd.DataFrame:
    """List the trials with a profile: their labels, and the text of the profile."""
    parts = [to_frame(node[[PROFILE]]) for node in nodes(data).values() if PROFILE in node]
    if not parts:
        return pd.DataFrame(columns=["workload", *list_factors(data), *LABELS, PROFILE])
    frame = pd.concat(parts, ignore_index=True)
    return frame[frame[PROFILE].fillna("") != ""].reset_index(drop=True)


def _find_cell(
    data: Data, dim: str, columns: tuple[str, str], labels: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[TrialProfile, TrialProfile]]:
    """Find the only cell that both columns have a profile of: its labels, and the two profiles."""
    frame = list_profiles(data)
    dims = ["workload", *list_factors(data), *LABELS]
    missing = [name for name in columns if frame.empty or name not in set(frame[dim])]
    if missing:
        raise MetricError(_ask_for_profiles(dim, columns, missing))
    if dim in labels:
        raise UsageError(f"invalid selection: got {dim}, along which trials are compared. Leave it out.")
    chosen = select_rows(frame, labels, dims)
    others = [name for name in dims if name != dim and name in chosen]
    cells: list[dict[str, Any]] = []
    texts: dict[str, str] = {}
    for _, members in chosen.groupby(others, sort=False, dropna=False):
        if set(columns) <= set(members[dim]):
            row = members.iloc[0]
            cells.append({name: row[name] for name in others if row[name] == row[name]})
            texts = texts or dict(zip(members[dim], members[PROFILE], strict=True))
    if not cells:
        raise MetricError(_ask_for_profiles(dim, columns, []))
    varying = [name for name in others if len({str(cell.get(name)) for cell in cells}) > 1]
    if varying:
        listed = [
            ", ".join(f"{name}={to_json_value(cell[name])!r}" for name in varying if name in cell) for cell in cells
        ]
        listed = list(dict.fromkeys(listed))
        more = f" and {len(listed) - _MOST_CELLS} more" if len(listed) > _MOST_CELLS else ""
        raise UsageError(
            f"invalid selection: {columns[0]} and {columns[1]} were profiled in {len(listed)} trials each; expected "
            f"one. Select it: {'; '.join(listed[:_MOST_CELLS])}{more}."
        )
    return cells[0], (parse_profile(texts[columns[0]]), parse_profile(texts[columns[1]]))


def _ask_for_profiles(dim: str, columns: Sequence[str], missing: Sequence[str]) -> str:
    """Ask for the profiles that a dataset lacks, with the options that measure them."""
    lack = f"no profile of {' and '.join(missing)}" if missing else "no trial that both were profiled in"
    options = ["-c", ",".join(columns), "--profile"] if dim == "compiler" else ["--profile"]
    return (
        f"missing profile: this dataset has {lack}; expected one of each column. Measure its networks again with "
        f"`{shlex.join(options)}`, or profile=True."
    )
