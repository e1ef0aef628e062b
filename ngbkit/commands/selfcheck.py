"""The arguments of a self-check, for the shell and the magic, and the call that they ask for."""

from __future__ import annotations

import argparse
from typing import Any

from ngbkit.errors import UsageError
from ngbkit.runs.selfcheck.check import GROUPS, ROUNDS
from ngbkit.runs.selfcheck.limits import PARTNERS
from ngbkit.sweep.argument import Argument, argument
from ngbkit.sweep.parsing import parse_compilers

REPORT = "ngbkit selfcheck --run {run}"
"""The command that reports on a self-check that was stopped, and resumed."""

TABLE: tuple[Argument, ...] = (
    argument(
        "--groups",
        metavar="N",
        type=int,
        help=f"pairs of processes that run the same block: {GROUPS} for a look (the default), 200 for a coverage",
    ),
    argument(
        "-c",
        "--compilers",
        metavar="NAME,…",
        completes="compiler",
        help=f"compilers to compare with identity, beside its copy (default: {','.join(PARTNERS)}; identity for none)",
    ),
    argument("--hog", action="store_true", help="run a busy process beside every other group, and report both"),
    argument("-r", "--repeats", metavar="N", type=int, help="timed samples a column (default: 100)"),
    argument(
        "--precision",
        metavar="SHARE",
        help="instead of --repeats: measure until the interval is this narrow on either side, such as 1%%",
    ),
    argument("--threads", metavar="N", type=int, help="worker threads (default: one a core)"),
    argument(
        "--full",
        action="store_true",
        help="also measure the bias against the vendors' own tools, which takes some minutes",
    ),
    argument(
        "--disturbances",
        action="store_true",
        help="instead: measure how each precaution of ngbkit changes the numbers when it is left out",
    ),
    argument("--rounds", metavar="N", type=int, help=f"rounds of those (default: {ROUNDS})"),
    argument(
        "--run",
        metavar="ID",
        completes="run",
        help="report on the earlier self-check with this id, and measure no group",
    ),
    argument(
        "--history",
        action="store_true",
        help="instead: compare the stored runs of each sweep with each other, and measure nothing",
    ),
)
_MEASURED = ("groups", "compilers", "hog", "repeats", "precision")


def to_call(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of `ngbkit.runs.selfcheck.run`."""
    measuring = [name for name in _MEASURED if getattr(args, name)]
    if args.run is not None and measuring:
        raise UsageError(
            f"--run {args.run} reports on an earlier self-check, and --{measuring[0]} is about measuring. Give one of "
            "them."
        )
    if args.rounds is not None and not args.full:
        raise UsageError("--rounds is about the vendors' tools and disturbances. Add --full or --disturbances.")
    names = ("groups", "hog", "repeats", "precision", "threads", "full", "rounds")
    compilers = None if args.compilers is None else parse_compilers(args.compilers)
    keywords = {**{name: getattr(args, name) for name in names}, "compilers": compilers, "run_id": args.run}
    return {name: value for name, value in keywords.items() if value is not None}


def to_disturbances(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of `ngbkit.runs.selfcheck.disturbances.measure`."""
    others = ("groups", "compilers", "hog", "precision", "full", "run", "history")
    conflicting = [name for name in others if getattr(args, name)]
    if conflicting:
        raise UsageError(f"--disturbances excludes --{conflicting[0]}: each is a measurement of its own. Give one.")
    return {name: getattr(args, name) for name in ("rounds", "repeats", "threads") if getattr(args, name) is not None}


def check_history(args: argparse.Namespace) -> None:
    """Reject arguments that are about measuring beside `--history`."""
    others = ("groups", "compilers", "hog", "repeats", "precision", "threads", "full", "disturbances", "rounds", "run")
    conflicting = [name for name in others if getattr(args, name)]
    if conflicting:
        raise UsageError(
            f"--history compares stored runs, and --{conflicting[0]} is about measuring. Give one of them."
        )
