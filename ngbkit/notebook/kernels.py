"""Jupyter kernels of ngbkit: the one that comes with it, and one for each device that a notebook is to measure on."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ngbkit.cluster import devices
from ngbkit.commands.arguments import Argument
from ngbkit.commands.listing import Answer
from ngbkit.errors import MissingDependencyError, UnknownNameError, UsageError

KERNEL = "ngbkit"
"""The kernel that the wheel brings; those of devices are called ``ngbkit-`` and the label."""

PROVISIONER = "ngbkit-device"

ACTIONS = ("list", "install", "remove")
KERNELS: tuple[Argument, ...] = (
    Argument(
        flags=("action",),
        help="list those that there are (the default); install one for each device of the devices file, or for those "
        "that are named; remove these, or all",
        settings={"nargs": "?", "choices": ACTIONS, "default": ACTIONS[0], "metavar": "|".join(ACTIONS)},
    ),
    Argument(flags=("names",), help="of devices", completes="device", settings={"nargs": "*", "metavar": "DEVICE"}),
    Argument(
        flags=("--sys-prefix",),
        help="into the environment of this Python, and not into the user's own folder",
        settings={"action": "store_true"},
    ),
)


def see_to_kernels(asked: argparse.Namespace) -> Answer:
    """List, install or remove kernels, as the words of `KERNELS` ask for.

    Raises
    ------
    UnknownNameError
        No such device, or no kernel of it.
    UsageError
        Devices were named where none is taken.
    MissingDependencyError
        Jupyter is not installed.
    """
    if asked.action == "list":
        if asked.names:
            raise UsageError(f"{' '.join(asked.names)!r} is too much: `ngbkit kernels list` lists all of them.")
    elif asked.action == "install":
        for label in asked.names or [label for label in devices.load() if label != "cpu"] or ["cpu"]:
            install(label, sys_prefix=asked.sys_prefix)
    else:
        known = {label: name for name, label in _installed().items() if label}
        for label in asked.names or list(known):
            if label not in known:
                raise UnknownNameError("device with a kernel", label, known)
            _manager().remove_kernel_spec(known[label])
    rows = [_row(name, label) for name, label in _installed().items()]
    return Answer(json=rows, rows=rows, empty="There is no kernel: pip install 'ngbkit[notebook]' brings one.")


def install(label: str, *, sys_prefix: bool = False) -> Path:
    """Install a kernel whose sweeps measure on a device unless they are told where.

    Parameters
    ----------
    label
        Of the device, in the devices file.
    sys_prefix
        Into the environment of this Python, and not into the user's own folder.

    Returns
    -------
    pathlib.Path
        The folder of the kernel.

    Raises
    ------
    UnknownNameError
        No such device.
    """
    devices.check([label])
    manager = _manager()
    with TemporaryDirectory() as place:
        folder = Path(place)
        _copy_logos(manager, folder)
        (folder / "kernel.json").write_text(json.dumps(spec(label), indent=1))
        where = {"prefix": sys.prefix} if sys_prefix else {"user": True}
        return Path(manager.install_kernel_spec(place, kernel_name=f"{KERNEL}-{label}".lower(), **where))


def spec(label: str) -> dict[str, Any]:
    """What ``kernel.json`` says of the kernel of a device."""
    return {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--ext", "ngbkit"],
        "display_name": f"ngbkit on {label}",
        "language": "python",
        "metadata": {
            "debugger": True,
            "kernel_provisioner": {"provisioner_name": PROVISIONER, "config": {"device": label}},
        },
    }


def _manager() -> Any:
    try:
        from jupyter_client.kernelspec import KernelSpecManager
    except ImportError as error:
        raise MissingDependencyError("jupyter-client", "notebook") from error
    return KernelSpecManager()


def _copy_logos(manager: Any, folder: Path) -> None:
    """Those of the kernel that the wheel brings."""
    own = manager.find_kernel_specs().get(KERNEL)
    for logo in Path(own).glob("logo-*") if own else ():
        shutil.copy(logo, folder)


def _installed() -> dict[str, str]:
    """The kernels of ngbkit, each with its device; the one that measures wherever it is told has none."""
    found = {}
    for name, known in sorted(_manager().get_all_specs().items()):
        provisioner = known["spec"].get("metadata", {}).get("kernel_provisioner", {})
        if provisioner.get("provisioner_name") == PROVISIONER:
            found[name] = str(provisioner["config"]["device"])
        elif name == KERNEL:
            found[name] = ""
    return found


def _row(name: str, label: str) -> dict[str, str]:
    there = not label or label in devices.load()
    return {
        "kernel": name,
        "device": label or "as asked",
        "where": _manager().find_kernel_specs()[name],
        "remark": "" if there else "the devices file has no such device any more",
    }
