"""Rankings: the fastest compiler of each group, the fastest network, and its probability."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ngbkit import validation
from ngbkit.dataset.long_form import list_factors
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.metrics.contracts import Unlike
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.rankings.candidates import list_candidates
from ngbkit.metrics.rankings.contests import Contest, hold_contests, iterate_groups
from ngbkit.metrics.rankings.networks import By, list_cells, select_rivals
from ngbkit.user_text import join_names

if TYPE_CHECKING:
    import pandas as pd


def ranking(data: Data, *, unlike: Unlike = "error", untuned: bool = False) -> pd.DataFrame:
    """The compilers of each group, the one that is most probably the fastest first.

    They are compared as the verdict of a run compares them: round by round, so that drift affects all alike, and with
    the noise of each column's rounds and process once. Equally probable ones are ordered by speed. Those whose outputs
    were not checked are the last of their group, however fast they are.

    Parameters
    ----------
    data
        A dataset or a tree.
    unlike
        As for `speedup`.
    untuned
        Whether to rank columns whose contract marks them as untuned, although their compiler supports tuning.

    Returns
    -------
    pandas.DataFrame
        ``workload, <factors>, batch_size, device, rank, compiler``; ``of_best``, its speed over the highest that was
        checked; ``probability``, the share of replicates in which it is the fastest of its group, of those that were
        checked: NaN with too few rounds for an interval; and ``checked``, whether its outputs were compared. Trials
        without a measurement are excluded.

    Raises
    ------
    MetricError
        Contracts differ.
    UsageError
        `unlike` is invalid.
    """
    import pandas as pd

    rows = [row for contest in _hold_contests(data, unlike, untuned) for row in _rank(contest)]
    names = ["workload", *list_factors(data), "batch_size", "device", "rank", "compiler", "of_best", "probability"]
    return pd.DataFrame(rows, columns=[*names, "checked"]).astype({"checked": bool})


def winners(data: Data, *, unlike: Unlike = "error", untuned: bool = False) -> pd.DataFrame:
    """The compiler of each group that is most probably the fastest, and the one after it, of those that were checked.

    Parameters
    ----------
    data, unlike, untuned
        As for `ranking`.

    Returns
    -------
    pandas.DataFrame
        One row per group: ``workload, <factors>, batch_size, device, compiler``, empty where none was checked;
        ``probability``, that it is the fastest; ``conclusive``, whether it surely is, of enough uncontended rounds and
        beyond what chance shows in as many groups (Benjamini and Hochberg, 1995);
        ``second``, the next compiler, empty where there is none; ``second_of_best``, its speed over the highest; and
        ``unchecked``, the faster compilers whose outputs were not checked, with commas.

    Raises
    ------
    MetricError, UsageError
        As for `ranking`.
    """
    import pandas as pd

    rows = map(_find_winner, _hold_contests(data, unlike, untuned))
    names = ["workload", *list_factors(data), "batch_size", "device", "compiler", "probability", "conclusive"]
    return pd.DataFrame(rows, columns=[*names, "second", "second_of_best", "unchecked"])


def network_ranking(
    data: Data, by: By = "best", *, ci: float = LEVEL, unlike: Unlike = "error", untuned: bool = False
) -> pd.DataFrame:
    """The networks of each device and batch size, the one that is most probably the fastest first.

    Networks at several values of their factors, such as blocks of several depths, are ranked only where no two others
    are: as in the verdict.

    Parameters
    ----------
    data, ci, unlike, untuned
        As for `compare_networks`.
    by
        ``"best"`` ranks each network with its best compiler; ``"compiler"`` ranks them for each compiler.

    Returns
    -------
    pandas.DataFrame
        ``device, batch_size, rank, network, compiler``; ``of_best``, its throughput over the highest, with ``ci_low``
        and ``ci_high``; ``probability``, that it is the fastest, which is 1 in total: NaN with too few rounds;
        ``compared``, how it was compared with the first; and ``conclusive``, whether it was checked in enough
        uncontended rounds. The interval is of its throughput over that of the first. ``attrs["notes"]`` names the
        networks that are not ranked.

    Raises
    ------
    MetricError, UsageError
        As for `compare_networks`; `by` is invalid.
    """
    import pandas as pd

    validation.check("ci", validation.Probability, ci)
    validation.check("by", By, by)
    groups, left_out = [], set()
    for cell, candidates in list_cells(data, "network_ranking", None, unlike, untuned).items():
        compilers = dict.fromkeys(candidate.compiler for candidate in candidates) if by == "compiler" else [None]
        for compiler in compilers:
            members = [candidate for candidate in candidates if compiler in (None, candidate.compiler)]
            groups.append((cell, rivals := select_rivals(members)))
            left_out |= {member.workload for member in members} - {rival.workload for rival in rivals}
    names = ["device", "batch_size", "rank", "network", "compiler", "of_best", "ci_low", "ci_high", "probability"]
    rows = [row for contest in hold_contests("network", groups, ci) for row in _rank(contest)]
    frame = pd.DataFrame(rows, columns=[*names, "compared", "conclusive"])
    note = f"Not ranked beside networks, since their factors have several values: {join_names(sorted(left_out))}."
    frame.attrs["notes"] = [note] if left_out else []
    return frame


def _hold_contests(data: Data, unlike: Unlike, untuned: bool) -> list[Contest]:
    """Hold the contests of compilers, of each network those of all batch sizes and devices together."""
    groups = list(iterate_groups(list_candidates(data, "ranking", unlike, untuned)))
    networks = list(dict.fromkeys(members[0].network for _, members in groups))
    devices = list(dict.fromkeys(device for (device, _), _ in groups))
    groups.sort(key=lambda group: (networks.index(group[1][0].network), group[0][1], devices.index(group[0][0])))
    return hold_contests("compiler", groups)


def _find_winner(contest: Contest) -> dict[str, Any]:
    """The row of a contest: its first and second of those that were checked, and faster ones that were not."""
    rows = list(_rank(contest))
    checked = [row for row in rows if row["checked"]]
    first, second = [*checked, *[{"compiler": "", "probability": math.nan, "of_best": math.nan}] * 2][:2]
    return {
        **rows[0],
        "compiler": first["compiler"],
        "probability": first["probability"],
        "conclusive": contest.conclusive,
        "second": second["compiler"],
        "second_of_best": second["of_best"],
        "unchecked": ",".join(row["compiler"] for row in rows if not row["checked"] and row["of_best"] >= 1),
    }


def _rank(contest: Contest) -> Iterator[dict[str, Any]]:
    """The rows of a contest, the most probable column first, and those that were not checked last."""
    leads = [Estimate(1.0, 1.0, 1.0), *(comparison.estimate for comparison in contest.comparisons)]
    compared = ["side by side", *(comparison.lead.compared for comparison in contest.comparisons)]
    rows = list(zip(contest.columns, leads, compared, strict=True))
    least = min([lead for column, lead, _ in rows if column.checked] or leads)
    rows.sort(key=lambda row: (not row[0].checked, -contest.probabilities[id(row[0])], row[1]))
    for rank, (column, lead, manner) in enumerate(rows, start=1):
        yield {
            "workload": column.workload,
            **column.factors,
            "batch_size": contest.batch_size,
            "device": contest.device,
            "network": column.network,
            "rank": rank,
            "compiler": column.compiler,
            "of_best": least / lead,
            "ci_low": least / lead.high,
            "ci_high": least / lead.low,
            "probability": contest.probabilities[id(column)],
            "compared": manner,
            "conclusive": column.conclusive,
            "checked": column.checked,
        }
