"""``ngbkit compare`` and ``%ngcompare``: say what changed from one run of a sweep to another."""

from __future__ import annotations

from dataclasses import replace

from ngbkit.commands.answer import Answer
from ngbkit.commands.arguments import UNLIKE, to_label
from ngbkit.commands.command import CLIENT_SIDE, JSON, Call, Command, Magic
from ngbkit.commands.gate import VERDICT, answer_gate, check_formats
from ngbkit.sweep.argument import argument


def compare(call: Call) -> Answer:
    """Compare the two runs of a call, and judge them where --fail-on says so."""
    from ngbkit.metrics import pairing
    from ngbkit.metrics.beside import has_side
    from ngbkit.metrics.contracts import allow_unlike

    args, fail_on = call.args, vars(call.args).get("fail_on")
    if "fail_on" in vars(args):
        check_formats(args)
    first, second = (call.read(source) for source in (args.first, args.second))
    if args.unlike == "allow":
        first, second = map(allow_unlike, (first, second))
    # A gate is of the speed-ups, which a slower machine does not change.
    metric = args.metric or (None if fail_on is None else "speedup")
    names = [to_label(source) for source in (args.first, args.second)]
    if has_side(second, names[0]):
        comparison = pairing.compare_sides(second, names[0], names[1], metric)
    else:
        comparison = pairing.compare(first, second, metric, names=names, beside=args.first)
    chart = comparison.plot() if args.figure is not None else None
    if chart is not None and args.figure:
        from ngbkit import figures

        figures.save(chart, args.figure)
    if fail_on is not None:
        gate = comparison.gate(*filter(None, [args.margin]))
        return answer_gate(gate, args, comparison.unlike)
    report = comparison.to_report(changed=not args.all, most=None)
    # The difference of the cells and the notes of the table.
    report = replace(report, notes=comparison.list_notes(), more=report.more if args.all else None)
    if chart is not None and not args.figure:
        return Answer(value=chart, previous=comparison)
    return Answer(json=comparison.to_json(), report=report, value=comparison)


DETAILS = """
A dataset is named by its variable, a file or a run. Networks are matched by their names, and those without a namesake
by their place. `-o it3` after `-o it2` shows the same below its results. Where `%%ngbench --beside it2 -o it3` measured
both in turns, that is compared.

::

    %ngcompare it2 it3
    %ngcompare it2 it3 --metric speedup --figure
"""
COMMAND = Command(
    name="compare",
    help="Say what changed from one run of a sweep to another, on this machine or on two.",
    arguments=(
        argument("first A", "a file that `run -o` wrote, or the id of a run", completes="result"),
        argument("second B", "another of the same sweep", completes="result"),
        argument(
            "--metric NAME",
            "a metric with a number for each trial, such as throughput, rtr or accuracy; Tab lists all (default: "
            "speedup; throughput where a network changed)",
            completes="metric",
        ),
        UNLIKE,
        argument("--all", "every trial, and not only those that changed, and how the cells differ"),
        argument(
            "--figure FILE",
            "write the two runs as a figure: .html, .svg, .png, .pdf or .tex; without a file, a notebook displays it",
            nargs="?",
            const="",
            completes="path",
        ),
    ),
    run=compare,
    shell=(*VERDICT, JSON),
    magic=Magic(name="ngcompare", details=DETAILS),
    needs=CLIENT_SIDE,
    in_python={"": "ngbkit.load({}).ngb.compare(ngbkit.load({}))"},
)
