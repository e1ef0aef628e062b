"""``ngbkit selfcheck`` and ``%ngselfcheck``: check whether this machine is fit to measure on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ngbkit.commands.answer import Answer
from ngbkit.commands.command import CLIENT_SIDE, JSON, QUIET, Call, Command, Magic
from ngbkit.errors import UsageError
from ngbkit.report import Report
from ngbkit.runs.selfcheck.check import GROUPS, PARTNERS
from ngbkit.sweep.argument import argument
from ngbkit.sweep.json_values import to_json_value
from ngbkit.sweep.parsing import parse_compilers

if TYPE_CHECKING:
    from ngbkit.runs.selfcheck import History, SelfCheck

REPORT = "ngbkit selfcheck --run {run}"
"""The command that reports on a self-check that was stopped, and resumed."""

_MEASURED = ("groups", "compilers", "hog", "repeats", "precision")
# What each option does instead of a check, and the options that have no part in it.
_OTHERS = {
    "history": ("--history compares stored runs", (*_MEASURED, "threads", "disturbances", "run")),
    "disturbances": (
        "--disturbances is a measurement of its own",
        ("groups", "compilers", "hog", "precision", "run"),
    ),
    "run": ("--run reports on an earlier self-check", _MEASURED),
}


def check_machine(call: Call) -> Answer:
    """Check this machine, measure the disturbances, or compare the stored runs, as a call says."""
    from ngbkit.metrics.rendering import to_texts
    from ngbkit.runs import selfcheck
    from ngbkit.runs.selfcheck import disturbances

    args = call.args
    _check(args)
    if args.disturbances:
        keywords = {name: getattr(args, name) for name in ("repeats", "threads") if getattr(args, name) is not None}
        effects = disturbances.measure(**keywords, report=call.report)
        table = disturbances.tabulate(effects)
        return Answer(
            json=to_json_value(effects.to_dict("records")), report=Report(frames=[to_texts(table)]), value=table
        )
    result: History | SelfCheck = (
        selfcheck.compare_runs()
        if args.history
        else selfcheck.run(**to_call(args), wait=lambda run: call.wait(run, REPORT))
    )
    return Answer(json=result.to_json(), report=result.to_report(), value=result)


DETAILS = """
The check measures a small block against itself, in two processes a group, as it would measure two compilers,
and beside them other compilers. The result is the value of the magic, and is stored with every later run.

::

    %ngselfcheck
    %ngselfcheck --groups 200 --hog
    %ngselfcheck --history
    %ngselfcheck --disturbances
"""
COMMAND = Command(
    name="selfcheck",
    help="Say whether this machine is fit to measure on: its noise, and the smallest difference that it can show.",
    arguments=(
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
        argument(
            "--disturbances", "instead: measure how each precaution of ngbkit changes the numbers when it is left out"
        ),
        argument("--run ID", "report on the earlier self-check with this id, and measure no group", completes="run"),
        argument("--history", "instead: compare the stored runs of each sweep with each other, and measure nothing"),
    ),
    run=check_machine,
    shell=(JSON, QUIET),
    magic=Magic(name="ngselfcheck", details=DETAILS),
    needs=CLIENT_SIDE,
    in_python={"": "ngbkit.runs.selfcheck.run()"},
)


def to_call(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of `ngbkit.runs.selfcheck.run`."""
    compilers = None if args.compilers is None else parse_compilers(args.compilers)
    names = ("groups", "hog", "repeats", "precision", "threads")
    keywords = {**{name: getattr(args, name) for name in names}, "compilers": compilers, "run_id": args.run}
    return {name: value for name, value in keywords.items() if value is not None}


def _check(args: argparse.Namespace) -> None:
    """Reject options that do not belong to what another one does instead of a check."""
    for other, (purpose, names) in _OTHERS.items():
        option = next((name for name in names if getattr(args, name)), None)
        if getattr(args, other) and option is not None:
            raise UsageError(f"{purpose}, and --{option} is about measuring. Give one of them.")
