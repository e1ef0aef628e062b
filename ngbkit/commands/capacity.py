"""``ngbkit capacity`` and ``%ngcapacity``: the highest rate of requests that keeps a deadline."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ngbkit.errors import UsageError
from ngbkit.sweep.argument import Argument, argument
from ngbkit.sweep.parsing import parse_compilers, parse_numbers

if TYPE_CHECKING:
    from ngbkit.dataset.storage import Data
    from ngbkit.metrics.serving.capacity import Capacities

Report = Callable[[str], None]

OPTIONS: tuple[Argument, ...] = (
    argument("--deadline", metavar="TIME", required=True, help="time from a request to its answer, such as 50ms, 2s"),
    argument(
        "--quantile",
        metavar="SHARE",
        type=float,
        default=0.99,
        help="share of the requests that must keep the deadline (default: 0.99)",
    ),
    argument(
        "--max-delay",
        metavar="TIME",
        help="how long an idle server waits for a fuller batch, such as 5ms (default: not at all)",
    ),
    argument(
        "-b",
        "--batch-sizes",
        metavar="N,…",
        help="batch sizes of the server (default: those with which it serves most)",
    ),
    argument(
        "-c", "--compilers", metavar="NAME,…", completes="compiler", help="compilers to show (default: all of the run)"
    ),
    argument(
        "--check",
        action="store_true",
        help="measure it too, by a real load on the device: requests at random times from another process",
    ),
    argument(
        "--seconds",
        metavar="N",
        type=float,
        help="with --check: seconds of load for each network and compiler (default: 20)",
    ),
)


def compute_capacities(args: argparse.Namespace, data: Data, report: Report | None = None) -> Capacities:
    """Simulate the capacities that the arguments `OPTIONS` ask for, and check them where they say so."""
    from ngbkit.runs import serving

    if args.seconds is not None and not args.check:
        raise UsageError("--seconds is the duration of a real load. Add --check.")
    select: dict[str, Any] = {} if args.compilers is None else {"compiler": list(parse_compilers(args.compilers))}
    return serving.serve(
        data,
        args.deadline,
        check=args.check,
        seconds=serving.SECONDS if args.seconds is None else args.seconds,
        report=report or str,
        quantile=args.quantile,
        max_delay=args.max_delay,
        batch_sizes=None if args.batch_sizes is None else parse_numbers("batch sizes", args.batch_sizes),
        **select,
    )
