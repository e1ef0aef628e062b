"""The report of a gate: its table as text, Markdown or JSON, its warnings, and the exit code."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ngbkit import validation
from ngbkit.commands.answer import FAILED, OK, Answer
from ngbkit.commands.shell import print_progress
from ngbkit.errors import UsageError
from ngbkit.sweep.argument import Argument, argument

if TYPE_CHECKING:
    from ngbkit.metrics.gates.gate import Gate

FAIL_ON = argument(
    "--fail-on CAUSES",
    "exit with 1 if a trial is slower by more than the margin and beyond chance, or no longer runs: slower; also if "
    "one is not conclusive: slower,inconclusive",
)
MARGIN = argument("--margin SHARE", "the slowdown that is accepted, with --fail-on (default: 1%%)")
MARKDOWN = argument("--markdown", "print Markdown, such as for a summary of GitHub Actions")
VERDICT: tuple[Argument, ...] = (FAIL_ON, MARGIN, MARKDOWN)


def check_formats(args: argparse.Namespace) -> None:
    """Refuse, before anything is measured or read, options that are invalid or that nothing would use."""
    from ngbkit.metrics.gates.gate import parse_fail_on

    if args.json and args.markdown:
        raise UsageError("invalid options: got --json and --markdown, which exclude each other. Give one of them.")
    if args.margin is not None:
        validation.check("margin", validation.Margin, args.margin)
        if args.fail_on is None:
            raise UsageError(
                "invalid options: got --margin without --fail-on, which it belongs to. Add --fail-on slower."
            )
    if args.fail_on is not None:
        parse_fail_on(args.fail_on)


def answer_gate(gate: Gate, args: argparse.Namespace, notes: Sequence[str] = ()) -> Answer:
    """Answer with a gate, its warnings, notes on its sides, and the exit code that ``--fail-on`` asks for."""
    from ngbkit.metrics.gates.gate import parse_fail_on

    fail_on = parse_fail_on(args.fail_on)
    passes, outcome = gate.passes(fail_on), gate.describe_outcome(fail_on)
    for warning in gate.warnings:
        print_progress(f"ngbkit: warning: {warning}")
    if passes and gate.count("not conclusive"):
        print_progress(
            f"ngbkit: warning: {gate.count('not conclusive')} of {len(gate.trials)} trials are not conclusive: they "
            "may be slower by more than the margin or not. More repeats settle more; --fail-on slower,inconclusive "
            "fails on them."
        )
    facts = {"notes": list(notes), "passes": passes, "unjudged": gate.list_unjudged_compilers()}
    report = replace(gate.to_report(), notes=[*notes, outcome])
    if args.markdown:
        sign = "❌" if not passes else "✅" if outcome == "passed" else "⚠️"
        report = replace(report, sentences=[f"### {sign} {outcome}: {gate}"], notes=[*gate.warnings, *notes])
    code = OK if passes else FAILED
    return Answer(json={**gate.to_json(), **facts}, report=report, is_markdown=bool(args.markdown), code=code)
