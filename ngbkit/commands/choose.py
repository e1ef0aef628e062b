"""The command that chooses the configuration to serve a network with under a deadline."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from ngbkit.commands.listing import Answer
from ngbkit.sweep.argument import Argument, argument

if TYPE_CHECKING:
    from ngbkit.dataset.storage import Data

CHOOSE: tuple[Argument, ...] = (
    argument(
        "--deadline",
        metavar="TIME",
        required=True,
        help="longest latency of a call with the whole batch, such as 50ms or 2s",
    ),
    argument(
        "--quantile",
        metavar="SHARE",
        type=float,
        default=0.99,
        help="share of the calls that must keep it (default: 0.99)",
    ),
    argument(
        "--probability",
        metavar="P",
        type=float,
        default=0.0,
        help="least probability with which they do (default: the estimate decides)",
    ),
    argument("--per", choices=("network", "all"), default="network", help="one choice for each network, or one of all"),
    argument("--disturbed", action="store_true", help="count samples that other work disturbed, too"),
    argument(
        "--figure", metavar="FILE", help="write latency against throughput as a figure: .html, .svg, .png or .pdf"
    ),
)


def answer_choose(args: argparse.Namespace, read: Callable[[str], Data]) -> Answer:
    """Choose from the dataset that the arguments name, as `CHOOSE` says."""
    from ngbkit.metrics.rendering import to_text
    from ngbkit.metrics.serving.deadlines import choose

    data = read(args.source)
    keywords = {name: getattr(args, name) for name in ("probability", "per", "disturbed")}
    choices = choose(data, args.deadline, args.quantile, **keywords)
    if args.figure:
        from ngbkit import figures

        figures.save(figures.frontier(data, deadline=args.deadline, quantile=args.quantile), args.figure)
    return Answer(json=choices.to_json(), rows=[], empty=to_text(choices.to_frame()))
