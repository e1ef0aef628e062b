"""``ngbkit verify``: check the figures of a site."""

from __future__ import annotations

from ngbkit.commands.answer import FAILED, OK, Answer
from ngbkit.commands.command import CLIENT_SIDE, Call, Command
from ngbkit.sweep.argument import argument


def verify(call: Call) -> Answer:
    """Answer with the figures of a site that do not agree with their sources."""
    from ngbkit import publish

    count, findings = publish.verify(call.args.site, call.args.notebooks)
    rows = [{"figure": finding.figure, "what": finding.what, "said": finding.said} for finding in findings]
    return Answer(
        json={"figures": count, "findings": rows},
        rows=rows,
        empty=f"All {count} figures agree with their data, sweeps and code.",
        code=FAILED if findings else OK,
    )


COMMAND = Command(
    name="verify",
    help="Say which figures of a site do not agree with their data, their sweep or their code.",
    arguments=(
        argument("site SITE", "the folder of a site"),
        argument("--notebooks DIR", "the notebooks that it was built from (default: its own copies)"),
    ),
    run=verify,
    needs=CLIENT_SIDE,
)
