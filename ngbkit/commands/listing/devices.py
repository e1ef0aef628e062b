"""The devices that sweeps can measure on, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ngbkit.commands.listing.layout import Row
from ngbkit.errors import UsageError
from ngbkit.hardware import environment, telemetry
from ngbkit.sweep.argument import Argument
from ngbkit.sweep.trials import split_labels

if TYPE_CHECKING:
    from ngbkit.cluster.devices import Device

ACTIONS = ("list", "init", "check")
DEVICES: tuple[Argument, ...] = (
    Argument(
        flags=("action",),
        help="list: the devices (the default); init: write a first devices file; check: whether each device is "
        "reachable and has ngbkit",
        settings={"nargs": "?", "choices": ACTIONS, "default": ACTIONS[0], "metavar": "|".join(ACTIONS)},
    ),
    Argument(
        flags=("names",),
        help="devices to check (default: all)",
        completes="device",
        settings={"nargs": "*", "metavar": "DEVICE"},
    ),
)


def answer_devices(action: str, names: Sequence[str]) -> list[Row]:
    """Carry out an action on devices, one of `ACTIONS`."""
    if names and action != "check":
        raise UsageError(f"unexpected argument {names[0]!r}: only `devices check` takes devices.")
    if action == "check":
        return check_devices([label for name in names for label in split_labels(name)])
    return list_devices() if action == "list" else [init_devices()]


def list_devices() -> list[Row]:
    """Every device: ``device``, ``launch``, ``host``, ``accelerator``, ``cores``, ``chip``, ``energy``, ``what``.

    ``cores`` is a number; those of another machine, and its chip, are unknown here. ``energy`` is what measures that of
    a CPU.
    """
    from ngbkit.cluster import devices

    return [_to_row(device) for device in devices.load().values()]


def check_devices(labels: Sequence[str] = ()) -> list[Row]:
    """A check of those devices, or of all: whether each is ``fit``, and `ngbkit.cluster.checkup.Finding`."""
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
    """What measures the energy of this machine's CPU."""
    chip = telemetry.open("cpu")
    if chip is None:
        return "no counter"
    described = chip.describe()
    return ", ".join(described.get("domains") or described.get("power_rails") or ["no sensor"])
