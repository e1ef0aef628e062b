"""``ngbkit selfcheck`` and ``%ngselfcheck``: check whether this machine is fit to measure on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ngbkit.commands.answer import Answer
from ngbkit.commands.command import CLIENT_SIDE, JSON, QUIET, Call, Command, Magic
from ngbkit.errors import UsageError
from ngbkit.runs.selfcheck.check import GROUPS, PARTNERS
from ngbkit.sweep.argument import argument
from ngbkit.sweep.parsing import parse_compilers

if TYPE_CHECKING:
    from ngbkit.runs.selfcheck import History, SelfCheck

REPORT = "ngbkit selfcheck {run}"
"""The command that reports on a self-check that was stopped, and resumed."""

# Options of a check, which have no part in a report.
_MEASURED = ("groups", "compilers", "hog", "repeats", "precision", "threads")


def check_machine(call: Call) -> Answer:
    """Check this machine, report on an earlier check, or compare the stored runs, as a call says."""
    from ngbkit.runs import selfcheck

    args = call.args
    _check(args)
    options = {name: value for name in _MEASURED if (value := getattr(args, name)) is not None}
    if args.compilers is not None:
        options["compilers"] = parse_compilers(args.compilers)
    result: History | SelfCheck = (
        selfcheck.compare_runs()
        if args.history
        else selfcheck.run(**options, run_id=args.run, wait=lambda run: call.wait(run, REPORT))
    )
    return Answer(json=result.to_json(), report=result.to_report(), value=result)


DETAILS = """
The check measures a small block against itself, in two processes a group, as it would measure two compilers,
and beside them other compilers. The result is the value of the magic, and is stored with every later run.

::

    %ngselfcheck
    %ngselfcheck --groups 200 --hog
    %ngselfcheck --history
    %ngselfcheck 20300101
"""
COMMAND = Command(
    name="selfcheck",
    help="Say whether this machine is fit to measure on: its noise, and the smallest difference that it can show.",
    arguments=(
        argument(
            "run ID", "report on the earlier self-check with this id, and measure no group", nargs="?", completes="run"
        ),
        argument(
            "--groups N",
            f"pairs of processes that run the same block: {GROUPS} for a look (the default), 200 for a coverage",
            type=int,
        ),
        argument(
            "-c, --compilers NAME,…",
            f"compilers to compare with identity, beside its copy (default: {','.join(PARTNERS)}; identity for none)",
            completes="compiler",
        ),
        argument("--hog", "run a busy process beside every other group, and report both"),
        argument("-r, --repeats N", "timed samples a column (default: 100)", type=int),
        argument(
            "--precision SHARE",
            "instead of --repeats: measure until the interval is this narrow on either side, such as 1%%",
        ),
        argument("--threads N", "worker threads (default: one a core)", type=int),
        argument("--history", "instead: compare the stored runs of each sweep with each other, and measure nothing"),
    ),
    run=check_machine,
    shell=(JSON, QUIET),
    magic=Magic(name="ngselfcheck", details=DETAILS),
    needs=CLIENT_SIDE,
    in_python={"": "ngbkit.runs.selfcheck.run()"},
)


def _check(args: argparse.Namespace) -> None:
    """Reject options that measure where nothing is measured."""
    if args.history and args.run:
        raise UsageError("--history compares stored runs and measures nothing. Leave out the id.")
    option = next((name for name in _MEASURED if getattr(args, name)), None)
    if option and (args.history or args.run):
        purpose = "--history compares stored runs" if args.history else "an id reports on an earlier self-check"
        raise UsageError(f"{purpose}, and --{option} is about measuring. Give one of them.")
