"""The words of a self-check: one table for the shell and the magic, and the call that they ask for."""

from __future__ import annotations

import argparse
from typing import Any

from ngbkit.commands.arguments import Argument, argument
from ngbkit.errors import UsageError
from ngbkit.runs.selfcheck.check import GROUPS, ROUNDS

TABLE: tuple[Argument, ...] = (
    argument(
        "--groups",
        metavar="N",
        type=int,
        help=f"pairs of processes that run the same block: {GROUPS} for a look (the default), 200 for a coverage",
    ),
    argument("--hog", action="store_true", help="have a busy process beside every other group, and tell them apart"),
    argument("-r", "--repeats", metavar="N", type=int, help="timed samples a column (default: 100)"),
    argument(
        "--precision",
        metavar="SHARE",
        help="in the place of --repeats: measure until the interval is this narrow on either side, such as 1%%",
    ),
    argument("--threads", metavar="N", type=int, help="worker threads (default: one a core)"),
    argument(
        "--full", action="store_true", help="measure the bias against the vendors' own tools too, some minutes more"
    ),
    argument(
        "--disturbances",
        action="store_true",
        help="in the place of all that: measure what each thing that ngbkit takes care of would do to the numbers",
    ),
    argument("--rounds", metavar="N", type=int, help=f"how often those take turns (default: {ROUNDS})"),
    argument(
        "--run",
        metavar="ID",
        completes="run",
        help="report on this earlier self-check, its id or how that begins, and measure no group",
    ),
)
_MEASURED = ("groups", "hog", "repeats", "precision")


def to_call(asked: argparse.Namespace) -> dict[str, Any]:
    """The keywords of `ngbkit.runs.selfcheck.run` that parsed arguments ask for.

    Raises
    ------
    UsageError
        An earlier run is asked for, and to measure something.
    """
    given = [name for name in _MEASURED if getattr(asked, name)]
    if asked.run is not None and given:
        raise UsageError(
            f"--run {asked.run} reports on what was measured, and --{given[0]} is about measuring; give one of them."
        )
    if asked.rounds is not None and not asked.full:
        raise UsageError("--rounds is about the vendors' tools and disturbances; add --full or --disturbances.")
    names = ("groups", "hog", "repeats", "precision", "threads", "full", "rounds")
    wanted = {**{name: getattr(asked, name) for name in names}, "run_id": asked.run}
    return {name: value for name, value in wanted.items() if value is not None}


def to_disturbances(asked: argparse.Namespace) -> dict[str, Any]:
    """The keywords of `ngbkit.runs.selfcheck.disturbances.measure` that parsed arguments ask for.

    Raises
    ------
    UsageError
        Something else is asked for too.
    """
    others = ("groups", "hog", "precision", "full", "run")
    given = [name for name in others if getattr(asked, name)]
    if given:
        raise UsageError(f"--disturbances is a measurement of its own, and so is --{given[0]}; give one of them.")
    return {name: getattr(asked, name) for name in ("rounds", "repeats", "threads") if getattr(asked, name) is not None}
