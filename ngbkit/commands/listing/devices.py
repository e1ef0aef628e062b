"""The devices that can be measured on, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ngbkit.commands.arguments import Argument
from ngbkit.commands.listing.layout import Row
from ngbkit.errors import UsageError
from ngbkit.hardware import environment
from ngbkit.sweep.trials import split_labels

if TYPE_CHECKING:
    from ngbkit.cluster.devices import Device

ACTIONS = ("list", "init", "check")
#: The words of the verb that is about devices.
DEVICES: tuple[Argument, ...] = (
    Argument(
        flags=("action",),
        help="list them (the default); init: write a devices file to begin with; check: say of each whether it is "
        "reached and has ngbkit",
        settings={"nargs": "?", "choices": ACTIONS, "default": ACTIONS[0], "metavar": "|".join(ACTIONS)},
    ),
    Argument(
        flags=("names",),
        help="which of them to check (default: all)",
        completes="device",
        settings={"nargs": "*", "metavar": "DEVICE"},
    ),
)


def see_to_devices(action: str, names: Sequence[str]) -> list[Row]:
    """Carry out the verb that is about devices, one of `ACTIONS`.

    Raises
    ------
    UsageError
        The devices file is not valid, or has no such device; or there is one already where one is to be written.
    """
    if names and action != "check":
        raise UsageError(f"{' '.join(names)!r} is too much: {action} takes no devices, and check does.")
    if action == "check":
        return check_devices([label for name in names for label in split_labels(name)])
    return list_devices() if action == "list" else [init_devices()]


def list_devices() -> list[Row]:
    """The devices that can be named: ``device``, ``launch``, ``host``, ``accelerator``, ``cores``, ``chip``, ``what``.

    ``cores`` is a number of cores; that of another machine and its chip are not known here.
    """
    from ngbkit.cluster import devices

    return [_device(device) for device in devices.load().values()]


def check_devices(labels: Sequence[str] = ()) -> list[Row]:
    """What a look at those devices, or at all, finds: whether each is ``fit``, and `ngbkit.cluster.checkup.Finding`.

    Raises
    ------
    UsageError
        The devices file is not valid, or has no such device.
    """
    from ngbkit.cluster import checkup, devices

    devices.check(labels)
    known = devices.load()
    return [
        {"device": found.device, "fit": not found.problem, **asdict(found)}
        for found in checkup.look([known[label] for label in dict.fromkeys(labels or known)])
    ]


def init_devices() -> Row:
    """Write a devices file into the current folder: ``file``, and what to do ``next``.

    Raises
    ------
    UsageError
        There is one already.
    """
    from ngbkit.cluster import devices

    return {"file": str(devices.init(Path(devices.NAME))), "next": "edit it, then `ngbkit devices check`"}


def _device(device: Device) -> Row:
    is_here = device.launch == "local"
    return {
        "device": device.label,
        "launch": device.launch,
        "host": device.host,
        "accelerator": device.accelerator,
        "cores": len(device.cores) if device.cores else environment.cores_usable() if is_here else None,
        "chip": environment.chip() if is_here else None,
        "what": device.what,
    }
