"""``ngbkit inputs`` and ``%nginputs``: show what networks take before anything is measured."""

from __future__ import annotations

from ngbkit.commands.answer import Answer
from ngbkit.commands.arguments import MODULE
from ngbkit.commands.command import Call, Command, Magic
from ngbkit.sweep.argument import argument
from ngbkit.sweep.description import describe_networks
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.option import options_of

_OPTIONS = {name: options_of(Grid)[name] for name in ("factors", "inputs", "batch_axis")}


def answer_inputs(call: Call) -> Answer:
    """Describe the networks of a call."""
    args = call.args
    networks = call.list_networks(args.networks)
    texts = {name: getattr(args, option.argument.dest) for name, option in _OPTIONS.items()}
    chosen = {name: _OPTIONS[name].parse(value) for name, value in texts.items() if value}
    described = describe_networks(networks, **chosen)
    return Answer.of_rows(
        [row for network in described for row in network.list_rows()],
        "A network without an input.",
        json=[network.to_json() for network in described],
        notes=[note for network in described for note in network.list_notes()],
    )


DETAILS = """
Networks are those of `%ngbench`, also modules of the notebook and models of a cell.

::

    %nginputs decoder.onnx --factor past_sequence_length=128
    %nginputs recurrent.onnx --batch-axis state=1,rate=none --inputs values.npz
"""
COMMAND = Command(
    name="inputs",
    help="Show what networks take before measuring: the batch, factors, and the values of each input.",
    arguments=(
        argument(
            "networks NETWORK",
            "the networks: a timm name such as resnet34, blocks.conv, an .onnx file, or a .py file that defines a "
            "model",
            nargs="*",
            completes="workload",
        ),
        *(option.argument for option in _OPTIONS.values()),
    ),
    run=answer_inputs,
    magic=Magic(name="nginputs", arguments=MODULE, details=DETAILS, takes_cell=True),
)
