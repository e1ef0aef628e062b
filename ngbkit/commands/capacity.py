"""``ngbkit capacity`` and ``%ngcapacity``: the highest rate of requests that keeps a deadline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ngbkit.commands.answer import Answer
from ngbkit.commands.arguments import DATA, SOURCE
from ngbkit.commands.command import CLIENT_SIDE, JSON, QUIET, Call, Command, Magic
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
    argument(
        "-b, --batch-sizes N,…", "batch sizes of the server (default: the measured ones whose calls keep the deadline)"
    ),
    argument("-c, --compilers NAME,…", "compilers to measure (default: all of the run)", completes="compiler"),
    argument("--seconds N", "shortest duration of a test of LoadGen (default: 10)", type=float),
    argument("--again", "measure again what is measured already"),
)


def measure_capacities(call: Call) -> Answer:
    """Measure the capacities that a call asks for."""
    from ngbkit.metrics.serving.capacities import SECONDS
    from ngbkit.runs.capacity import capacity

    args = call.args
    select: dict[str, Any] = {} if args.compilers is None else {"compiler": list(parse_compilers(args.compilers))}
    sizes = None if args.batch_sizes is None else parse_numbers("batch sizes", args.batch_sizes)
    capacities = capacity(
        call.read(args.source),
        args.deadline,
        quantile=args.quantile,
        batch_sizes=cast(Sequence[int] | None, sizes),
        seconds=SECONDS if args.seconds is None else args.seconds,
        again=args.again,
        report=call.report or str,
        **select,
    )
    return Answer(json=capacities.to_json(), report=capacities.to_report(), value=capacities)


DETAILS = """
::

    %ngcapacity ds --deadline 50ms
    %ngcapacity ds --deadline 50ms -c openvino --seconds 60
"""
COMMAND = Command(
    name="capacity",
    help="Measure the highest rate of requests that each network serves within a deadline, by MLPerf's LoadGen.",
    arguments=OPTIONS,
    run=measure_capacities,
    shell=(SOURCE, JSON, QUIET),
    magic=Magic(name="ngcapacity", arguments=(DATA,), details=DETAILS),
    needs=CLIENT_SIDE,
)
