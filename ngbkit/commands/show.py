"""``ngbkit show``: print the results of a file or of a run."""

from __future__ import annotations

from ngbkit import registry
from ngbkit.commands.answer import Answer
from ngbkit.commands.arguments import SOURCE, UNLIKE
from ngbkit.commands.command import CLIENT_SIDE, Call, Command
from ngbkit.commands.shell import answer_data
from ngbkit.sweep.argument import argument


def show(call: Call) -> Answer:
    """Answer with the dataset of a call."""
    data = call.read(call.args.source)
    if call.args.unlike == "allow":
        from ngbkit.metrics.contracts import allow_unlike

        data = allow_unlike(data)
    return answer_data(data, call.args, source=call.args.source)


_METRICS = ", ".join(registry.list_names(registry.METRICS))
COMMAND = Command(
    name="show",
    help="Print the results of a file or of a run.",
    arguments=(
        SOURCE,
        argument(
            "--figure NAME",
            f"{_METRICS}, latency, or a variable such as compile_time (default: speedup, then throughput)",
            completes="figure",
        ),
        UNLIKE,
        argument("--all", "print all tables with all rows, each group of the verdict, and all notes"),
    ),
    run=show,
    needs=CLIENT_SIDE,
    in_magic="%ngruns --open",
)
