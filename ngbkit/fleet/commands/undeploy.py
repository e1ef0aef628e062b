"""``ngbkit undeploy``: remove everything of ngbkit from a device."""

from __future__ import annotations

from ngbkit.commands.answer import Answer
from ngbkit.commands.command import Call, Command
from ngbkit.fleet.commands.deploy import DEVICE
from ngbkit.report import Report
from ngbkit.sweep.argument import argument


def undeploy(call: Call) -> Answer:
    """Remove ngbkit from the device of a call."""
    from ngbkit.cluster import devices
    from ngbkit.fleet.deployment import undeploy as deployment

    removal = deployment.undeploy(devices.get(call.args.device), discard=call.args.discard)
    return Answer(report=Report(sentences=[removal.to_text()]))


COMMAND = Command(
    name="undeploy",
    help="Remove everything of ngbkit from a device.",
    arguments=(DEVICE, argument("--discard", "also if it holds records that are not here")),
    run=undeploy,
    shell=(),
)
