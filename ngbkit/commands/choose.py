"""``ngbkit choose``: choose the configuration to serve a network with under a deadline."""

from __future__ import annotations

from ngbkit.commands.answer import Answer
from ngbkit.commands.arguments import SOURCE
from ngbkit.commands.command import CLIENT_SIDE, Call, Command
from ngbkit.sweep.argument import argument


def choose(call: Call) -> Answer:
    """Choose from the dataset of a call."""
    from ngbkit.metrics.serving.choices import choose as choose_configuration

    args = call.args
    data = call.read(args.source)
    choices = choose_configuration(data, args.deadline, args.quantile, accept=args.accept)
    if args.figure:
        from ngbkit import figures

        figures.save(figures.frontier(data, deadline=args.deadline, quantile=args.quantile), args.figure)
    return Answer(json=choices.to_json(), report=choices.to_report())


COMMAND = Command(
    name="choose",
    help="Choose the compiler, batch size and device of the highest throughput whose latency keeps a deadline.",
    arguments=(
        SOURCE,
        argument(
            "--deadline TIME", "longest latency of a call with the whole batch, such as 50ms or 2s", required=True
        ),
        argument("--quantile SHARE", "share of the calls that must keep it (default: 0.99)", type=float, default=0.99),
        argument(
            "--accept BOUND",
            "exclude columns of lower precision that cost more: agreement>=0.99, accuracy>=0.95",
            action="append",
            default=[],
        ),
        argument("--figure FILE", "write latency against throughput as a figure: .html, .svg, .png, .pdf or .tex"),
    ),
    run=choose,
    needs=CLIENT_SIDE,
)
