"""``ngbkit inputs`` and ``%nginputs``: show what networks take before anything is measured."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from ngbkit.commands.listing import Answer
from ngbkit.sweep.argument import Argument, argument
from ngbkit.sweep.description import describe_networks
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.option import options_of
from ngbkit.sweep.parsing import restore_quotes
from ngbkit.workloads.base import Workload

_OPTIONS = {name: options_of(Grid)[name] for name in ("factors", "inputs", "batch_axis")}
INPUTS: tuple[Argument, ...] = (
    argument(
        "networks",
        nargs="*",
        metavar="NETWORK",
        completes="workload",
        help="the networks: a timm name such as resnet34, blocks.conv, an .onnx file, or a .py file that defines a "
        "model",
    ),
    *(option.argument for option in _OPTIONS.values()),
)
"""The arguments of the command and of the magic."""


def answer_inputs(args: argparse.Namespace, networks: Iterable[str | Workload] | None = None) -> Answer:
    """Describe the networks that the arguments `INPUTS` name; `networks` replace those that were named."""
    words = map(restore_quotes, args.networks) if networks is None else networks
    texts = {name: getattr(args, option.argument.dest) for name, option in _OPTIONS.items()}
    chosen = {name: _OPTIONS[name].parse(value) for name, value in texts.items() if value}
    described = describe_networks(list(words), **chosen)
    return Answer(
        json=[network.to_json() for network in described],
        rows=[row for network in described for row in network.list_rows()],
        empty="A network without an input.",
        notes=[note for network in described for note in network.list_notes()],
    )
