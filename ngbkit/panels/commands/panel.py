"""``%ngpanel``: show a panel."""

from __future__ import annotations

from ngbkit.commands.answer import Answer
from ngbkit.commands.command import Call, Command, Magic
from ngbkit.errors import UsageError
from ngbkit.sweep.argument import argument


def build_panel(call: Call) -> Answer:
    """Build the panel that a call names."""
    from ngbkit.panels import Panel

    panel, name = call.args.panel, call.args.data
    if panel == "explore":
        return Answer(value=Panel(call.read(name), name, tab="results"))
    if name is not None:
        raise UsageError(
            f"unexpected argument {name!r}: the {panel} panel shows no dataset. Use %ngpanel explore {name}."
        )
    return Answer(value=Panel(tab=panel))


DETAILS = """
::

    %ngpanel
    %ngpanel devices
    %ngpanel explore ds
"""
COMMAND = Command(
    name="panel",
    help="Show a panel: a form that composes a sweep, the devices, or an explorer of a dataset.",
    arguments=(
        argument(
            "panel sweep|devices|explore",
            "sweep composes a sweep, measures it and shows its progress (the default); devices shows the engines, and "
            "starts and stops them; explore draws figures of a dataset and shows every detail of its trials",
        ),
        argument("data NAME", "explore: the variable of the dataset", nargs="?", completes="variable"),
    ),
    run=build_panel,
    shell=None,
    magic=Magic(name="ngpanel", details=DETAILS),
)
