"""``ngbkit show``: print the results of a file or of a run, or write its trials or samples."""

from __future__ import annotations

from ngbkit import registry
from ngbkit.commands.answer import Answer
from ngbkit.commands.arguments import SOURCE, UNLIKE
from ngbkit.commands.command import CLIENT_SIDE, JSON, OVERWRITE, Call, Command
from ngbkit.commands.shell import answer_data
from ngbkit.errors import UsageError
from ngbkit.report import Report
from ngbkit.sweep.argument import argument
from ngbkit.sweep.json_values import to_json_value


def show(call: Call) -> Answer:
    """Answer with the dataset of a call, or write its rows."""
    args = call.args
    if args.out is not None and args.rows is None:
        raise UsageError("unexpected argument --out without --rows. Name the rows to write, such as --rows trials.")
    data = call.read(args.source)
    if args.unlike == "allow":
        from ngbkit.metrics.contracts import allow_unlike

        data = allow_unlike(data)
    if args.rows is None:
        return answer_data(data, args, source=args.source)
    from ngbkit.metrics import frames

    frame = frames.BUILDERS[args.rows](data)
    if args.out is not None:
        frames.write(frame, args.out, overwrite=args.overwrite)
    text = frame.to_csv(index=False).rstrip() if args.out is None else ""
    rows = to_json_value(frame.to_dict(orient="records")) if args.json else None
    return Answer(report=Report(sentences=[text]), json=rows)


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
        argument(
            "--rows ROWS",
            "print as CSV, or write: trials, one per row with all that was measured; or samples, every one",
            choices=("trials", "samples"),
        ),
        argument("-o, --out FILE", "write these rows to a .csv or .parquet file"),
    ),
    run=show,
    shell=(OVERWRITE, JSON),
    needs=CLIENT_SIDE,
    in_magic="%ngruns --open",
)
