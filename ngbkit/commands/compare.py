"""``ngbkit compare``: say what changed from one run of a sweep to another."""

from __future__ import annotations

from ngbkit import registry
from ngbkit.commands import gate_report
from ngbkit.commands.answer import Answer
from ngbkit.commands.command import CLIENT_SIDE, Call, Command
from ngbkit.sweep.argument import argument


def compare(call: Call) -> Answer:
    """Compare the two runs of a call, and judge them where --fail-on says so."""
    from ngbkit.figures import comparison as comparisons

    args = call.args
    gate_report.check_formats(args)
    comparison = comparisons.compare(call.read(args.first), call.read(args.second), args.metric)
    if args.figure:
        from ngbkit import figures

        figures.save(comparison.plot(), args.figure)
    if args.fail_on is not None:
        gate = comparison.gate(*filter(None, [args.margin]), across_devices=args.across_devices)
        return gate_report.answer_gate(gate, args, comparison.unlike)
    trials = comparison.trials if args.all else comparison.trials[comparison.trials["is"] != "same"]
    return Answer(
        json=comparison.to_json(),
        text=str(comparison),
        rows=comparison.rows(trials),
        empty="Nothing changed beyond uncertainty.",
        form="markdown" if args.markdown else "table",
        notes=comparison.unlike,
    )


COMMAND = Command(
    name="compare",
    help="Say what changed from one run of a sweep to another, on this machine or on two.",
    arguments=(
        argument("first A", "a file that `run -o` wrote, or the id of a run", completes="result"),
        argument("second B", "another of the same sweep", completes="result"),
        argument(
            "--metric NAME",
            f"a metric with a number for each trial, of {', '.join(registry.list_names(registry.METRICS))} "
            "(default: speedup)",
            completes="metric",
            default="speedup",
        ),
        *gate_report.VERDICT,
        argument("--all", "every trial, and not only those that changed"),
        argument("--figure FILE", "write the two runs as a figure: .html, .svg, .png or .pdf"),
    ),
    run=compare,
    needs=CLIENT_SIDE,
)
