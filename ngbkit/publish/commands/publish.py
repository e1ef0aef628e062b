"""``ngbkit publish``: build a site of notebooks."""

from __future__ import annotations

import argparse
from typing import Any

from ngbkit.commands.answer import Answer
from ngbkit.commands.command import CLIENT_SIDE, QUIET, Call, Command
from ngbkit.report import Report
from ngbkit.sweep.argument import argument
from ngbkit.user_text import format_size


def publish(call: Call) -> Answer:
    """Build the site of a call."""
    from ngbkit import publish as publishing

    site = publishing.publish(**to_call(call.args), report=call.report)
    executed = ", ".join(site.executed) or "no notebook: none changed"
    summary = f"{site.site}: {site.figures} figures, {format_size(site.bytes)}; executed {executed}"
    return Answer(report=Report(sentences=[summary]))


COMMAND = Command(
    name="publish",
    help="Build a site of notebooks whose figures others can check.",
    arguments=(
        argument(
            "notebooks NOTEBOOKS", "a folder of notebooks, or notebooks of one folder", nargs="*", completes="path"
        ),
        argument("-o, --out DIR", "the folder of the site (default: site)", default="site"),
        argument(
            "--measure never|missing|always",
            "which sweeps to measure and record: none, since they are read from data/recorded beside the notebooks, or "
            "from the runs that their cells made on this machine; those without a recording and without a run; or all "
            "of them again (default: never)",
        ),
        argument("--sign KEY", "sign the site with this private SSH key, such as ~/.ssh/id_ed25519"),
    ),
    run=publish,
    shell=(QUIET,),
    needs=(*CLIENT_SIDE, "altair", "vl_convert"),
)


def to_call(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of `ngbkit.publish.publish`."""
    notebooks = args.notebooks or ["notebooks"]
    return {
        "notebooks": notebooks[0] if len(notebooks) == 1 else notebooks,
        "out": args.out,
        "measure": args.measure,
        "sign": args.sign,
    }
