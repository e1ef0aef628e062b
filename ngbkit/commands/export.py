"""``ngbkit export``: write results for other programs."""

from __future__ import annotations

import json

from ngbkit.commands.answer import Answer
from ngbkit.commands.arguments import SOURCE
from ngbkit.commands.command import CLIENT_SIDE, OVERWRITE, Call, Command
from ngbkit.report import Report
from ngbkit.sweep.argument import argument


def export(call: Call) -> Answer:
    """Write the dataset of a call to a file, or answer with it as text."""
    from ngbkit.metrics import frames, profiles

    args = call.args
    data = call.read(args.source)
    build = frames.BUILDERS.get(args.format)
    if args.out is None:
        text = build(data).to_csv(index=False).rstrip() if build else json.dumps(profiles.to_json(data), indent=1)
        return Answer(report=Report(sentences=[text]))
    if build:
        frames.write(build(data), args.out, overwrite=args.overwrite)
    else:
        profiles.write(data, args.out, overwrite=args.overwrite)
    return Answer()


COMMAND = Command(
    name="export",
    help="Write profiles for planners, all trials or all samples, as CSV, Parquet or JSON.",
    arguments=(
        SOURCE,
        argument(
            "--format profiles|trials|samples",
            "what to write: profiles for planners (the default); trials, one per row with all that was measured; or "
            "samples, every one",
        ),
        argument(
            "-o, --out FILE",
            "a .csv or .parquet file, or .json for profiles (default: printed, profiles as JSON and others as CSV)",
        ),
    ),
    run=export,
    shell=(OVERWRITE,),
    needs=CLIENT_SIDE,
)
