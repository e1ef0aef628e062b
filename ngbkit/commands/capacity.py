"""``ngbkit capacity`` and ``%ngcapacity``: the highest rate of requests that keeps a deadline."""

from __future__ import annotations

from typing import Any

from ngbkit.commands.answer import Answer
from ngbkit.commands.arguments import DATA, SOURCE
from ngbkit.commands.command import CLIENT_SIDE, JSON, QUIET, Call, Command, Magic
from ngbkit.errors import UsageError
from ngbkit.sweep.argument import Argument, argument
from ngbkit.sweep.parsing import parse_compilers, parse_numbers

OPTIONS: tuple[Argument, ...] = (
    argument("--deadline TIME", "time from a request to its answer, such as 50ms, 2s", required=True),
    argument(
        "--quantile SHARE",
        "share of the requests that must keep the deadline (default: 0.99)",
        type=float,
        default=0.99,
    ),
    argument("--max-delay TIME", "how long an idle server waits for a fuller batch, such as 5ms (default: not at all)"),
    argument("-b, --batch-sizes N,…", "batch sizes of the server (default: those with which it serves most)"),
    argument("-c, --compilers NAME,…", "compilers to show (default: all of the run)", completes="compiler"),
    argument("--check", "measure it too, by a real load on the device: requests at random times from another process"),
    argument("--seconds N", "with --check: seconds of load for each network and compiler (default: 20)", type=float),
)


def compute_capacities(call: Call) -> Answer:
    """Simulate the capacities that a call asks for, and check them where it says so."""
    from ngbkit.runs import serving

    args = call.args
    if args.seconds is not None and not args.check:
        raise UsageError("--seconds is the duration of a real load. Add --check.")
    select: dict[str, Any] = {} if args.compilers is None else {"compiler": list(parse_compilers(args.compilers))}
    capacities = serving.serve(
        call.read(args.source),
        args.deadline,
        check=args.check,
        seconds=serving.SECONDS if args.seconds is None else args.seconds,
        report=call.report or str,
        quantile=args.quantile,
        max_delay=args.max_delay,
        batch_sizes=None if args.batch_sizes is None else parse_numbers("batch sizes", args.batch_sizes),
        **select,
    )
    return Answer(json=capacities.to_json(), text=str(capacities), value=capacities)


DETAILS = """
::

    %ngcapacity ds --deadline 50ms
    %ngcapacity ds --deadline 50ms -c openvino --check
"""
COMMAND = Command(
    name="capacity",
    help="Say which rate of requests each network serves within a deadline, simulated or also by a real load.",
    arguments=OPTIONS,
    run=compute_capacities,
    shell=(SOURCE, JSON, QUIET),
    magic=Magic(name="ngcapacity", arguments=(DATA,), details=DETAILS),
    needs=CLIENT_SIDE,
)
