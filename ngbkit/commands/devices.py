"""``ngbkit devices`` and ``%ngdevices``: the devices that sweeps can measure on, and whether each works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ngbkit.commands.answer import FAILED, OK, Answer
from ngbkit.commands.command import Call, Command, Magic
from ngbkit.errors import UsageError
from ngbkit.hardware import environment, telemetry
from ngbkit.sweep.argument import argument
from ngbkit.sweep.trials import split_labels
from ngbkit.tabular import Row

if TYPE_CHECKING:
    from ngbkit.cluster.devices import Device


def answer_devices(call: Call) -> Answer:
    """Carry out the action of a call."""
    action, names = call.args.action, call.args.names
    if names and action != "check":
        raise UsageError(f"unexpected argument {names[0]!r}: only `devices check` takes devices.")
    if action == "check":
        rows = check_devices([label for name in names for label in split_labels(name)])
    else:
        rows = list_devices() if action == "list" else [init_devices()]
    is_fit = all(row.get("fit", True) for row in rows)
    return Answer.of_rows(rows, "There is no device.", json=rows, code=OK if is_fit else FAILED)


DETAILS = """
::

    %ngdevices
    %ngdevices check orin
"""
COMMAND = Command(
    name="devices",
    help="List the devices, check them, or write a first devices file.",
    arguments=(
        argument(
            "action list|init|check",
            "list: the devices (the default); init: write a first devices file; check: whether each device is "
            "reachable and has ngbkit",
        ),
        argument("names DEVICE", "devices to check (default: all)", nargs="*", completes="device"),
    ),
    run=answer_devices,
    magic=Magic(name="ngdevices", details=DETAILS),
)


def list_devices() -> list[Row]:
    """Every device: ``device``, ``launch``, ``host``, ``accelerator``, ``cores``, ``chip``, ``energy``, ``what``.

    ``cores`` is a number; those of another machine, and its chip, are unknown here. ``energy`` is what measures that of
    a CPU.
    """
    from ngbkit.cluster import devices

    return [_to_row(device) for device in devices.load().values()]


def check_devices(labels: Sequence[str] = ()) -> list[Row]:
    """A check of those devices, or of all: whether each is ``fit``, and `ngbkit.cluster.checkup.DeviceFinding`."""
    from ngbkit.cluster import checkup, devices

    devices.check(labels)
    configured = devices.load()
    return [
        {"device": finding.device, "fit": not finding.problem, **asdict(finding)}
        for finding in checkup.check([configured[label] for label in dict.fromkeys(labels or configured)])
    ]


def init_devices() -> Row:
    """Write a devices file into the current folder: ``file``, and what to do ``next``."""
    from ngbkit.cluster import devices

    return {"file": str(devices.init(Path(devices.NAME))), "next": "edit it, then `ngbkit devices check`"}


def _to_row(device: Device) -> Row:
    is_here = device.launch == "local"
    return {
        "device": device.label,
        "launch": device.launch,
        "host": device.host,
        "accelerator": device.accelerator,
        "cores": len(device.cores) if device.cores else environment.count_usable_cores() if is_here else None,
        "chip": environment.read_chip() if is_here else None,
        "energy": _describe_energy() if is_here and device.accelerator == "cpu" else None,
        "what": device.description,
    }


def _describe_energy() -> str:
    """Describe the meter of the energy of this machine's CPU."""
    chip = telemetry.open("cpu")
    if chip is None:
        return "no counter"
    described = chip.describe()
    return ", ".join(described.get("domains") or described.get("power_rails") or ["no sensor"])
