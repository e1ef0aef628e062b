"""The arguments of ``ngbkit deploy`` and ``ngbkit undeploy``."""

from __future__ import annotations

import argparse
from typing import Any

from ngbkit.sweep.argument import Argument
from ngbkit.sweep.trials import split_labels
from ngbkit.user_text import parse_path

_DEVICE = Argument(
    flags=("device",),
    help="its label in the devices file: `ngbkit devices` lists them",
    settings={"metavar": "DEVICE"},
)
DEPLOY = (
    _DEVICE,
    Argument(
        flags=("--extras",),
        help="compilers to install: torch,onnxruntime,openvino,tvm,iree,executorch,cuda,onnxruntime-gpu,tensorrt,"
        "tensorrt-rtx, or '' for none",
        settings={"metavar": "NAMES"},
    ),
    Argument(
        flags=("--wheelhouse",),
        help="for a device without a network: send it wheels, from DIR or downloaded here",
        settings={"metavar": "DIR", "nargs": "?", "default": False, "const": True},
    ),
    Argument(
        flags=("--python",),
        help="the Python of the device to use, 3.10 or newer",
        settings={"metavar": "PYTHON"},
    ),
    Argument(
        flags=("--system-site-packages",),
        help="also use the packages of that Python: a Jetson's torch and TensorRT come with its system",
        settings={"action": "store_true"},
    ),
)
UNDEPLOY = (
    _DEVICE,
    Argument(
        flags=("--discard",),
        help="also if it holds records that are not here",
        settings={"action": "store_true"},
    ),
)


def to_call(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of `ngbkit.cluster.deployment.deploy.deploy` that parsed arguments ask for."""
    return {
        "extras": None if args.extras is None else split_labels(args.extras),
        "wheels": parse_path(args.wheelhouse) if isinstance(args.wheelhouse, str) else args.wheelhouse,
        "python": args.python,
        "system_site_packages": args.system_site_packages,
    }
