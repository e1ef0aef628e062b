"""``ngbkit deploy``: install ngbkit on a device, or remove it there."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ngbkit.commands.answer import Answer
from ngbkit.commands.command import Call, Command
from ngbkit.commands.shell import print_progress
from ngbkit.errors import UsageError
from ngbkit.fleet.deployment import DEVICE_EXTRAS
from ngbkit.report import Report
from ngbkit.sweep.argument import argument
from ngbkit.sweep.trials import split_labels
from ngbkit.user_text import parse_path


def deploy(call: Call) -> Answer:
    """Install ngbkit on the device of a call, or remove it there."""
    from ngbkit.cluster import devices
    from ngbkit.fleet.deployment import deploy as deployment
    from ngbkit.fleet.deployment import removal

    if call.args.remove:
        if any(to_call(call.args).values()):
            raise UsageError("invalid options: got --remove with options of an installation; expected --remove alone.")
        removed = removal.remove(devices.get(call.args.device))
        return Answer(json=removed.to_json(), report=Report(sentences=[removed.to_text()]))
    deployed = deployment.deploy(
        devices.get(call.args.device), **to_call(call.args), report=print_progress if sys.stderr.isatty() else str
    )
    return Answer(json=deployed.to_json(), report=Report(sentences=[deployed.to_text()]))


COMMAND = Command(
    name="deploy",
    help="Install ngbkit on a device, in an environment of its own there, or remove it.",
    arguments=(
        argument("device DEVICE", "its label in the devices file: `ngbkit devices` lists them"),
        argument(
            "--extras NAMES",
            f"compilers to install: {','.join(DEVICE_EXTRAS)}, or '' for none",
        ),
        argument(
            "--releases COLUMNS",
            "releases of compilers to send the wheels of, with --wheelhouse: onnxruntime@1.19.2,openvino@2024.3.0",
        ),
        argument(
            "--wheelhouse DIR",
            "for a device without a network: send it wheels, from DIR or downloaded here",
            nargs="?",
            default=False,
            const=True,
        ),
        argument("--python PYTHON", "the Python of the device to use, 3.10 or newer"),
        argument(
            "--system-site-packages",
            "also use the packages of that Python: a Jetson's torch and TensorRT come with its system",
        ),
        argument("--remove", "remove everything of ngbkit from the device, unless it holds records that are not here"),
    ),
    run=deploy,
)


def to_call(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of `ngbkit.fleet.deployment.deploy.deploy` that parsed arguments ask for."""
    return {
        "extras": None if args.extras is None else split_labels(args.extras),
        "releases": split_labels(args.releases or ""),
        "wheels": parse_path(args.wheelhouse) if isinstance(args.wheelhouse, str) else args.wheelhouse,
        "python": args.python,
        "system_site_packages": args.system_site_packages,
    }
