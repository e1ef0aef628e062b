"""``ngbkit verify``: check a site against its data."""

from __future__ import annotations

from dataclasses import asdict

from ngbkit.commands.answer import FAILED, OK, Answer
from ngbkit.commands.command import CLIENT_SIDE, Call, Command
from ngbkit.report import Report
from ngbkit.sweep.argument import argument
from ngbkit.tabular import Texts


def verify(call: Call) -> Answer:
    """Answer with the kinds of items that were checked, and with those that do not agree with their origin."""
    from ngbkit import publish

    args = call.args
    result = publish.verify(args.site, signer=args.signer)
    findings = [asdict(finding) for finding in result.findings]
    summary = [
        {"kind": check.name, "checked": check.checked, "differ": len(check.findings), "compared with": check.binds}
        for check in result.checks
        if check.checked
    ]
    obstacles = [
        f"not checked: {count} {check.name}: {reason}"
        for check in result.checks
        for reason, count in check.obstacles.items()
    ]
    checks = [
        {
            "name": check.name,
            "binds": check.binds,
            "checked": check.checked,
            "differences": len(check.findings),
            "obstacles": dict(check.obstacles),
        }
        for check in result.checks
    ]
    count = sum(check.checked for check in result.checks)
    frames = [Texts.of_rows(summary), Texts.of_rows(findings, f"All {count} items agree.")]
    return Answer(
        json={"checks": checks, "findings": findings, "signature": result.signature, "is_signed": result.is_signed},
        report=Report(frames=frames, notes=[*obstacles, result.signature]),
        code=FAILED if findings else OK,
    )


COMMAND = Command(
    name="verify",
    help="Check every file, figure, table and number of a site against its data.",
    arguments=(
        argument("site SITE", "the folder of a site, or its archive.zip", completes="path"),
        argument("--signer FILE", "the author's public SSH keys, such as key.pub: the site must be signed by one"),
    ),
    run=verify,
    needs=(*CLIENT_SIDE, "altair", "vl_convert"),
)
