"""The words of `ngbkit deploy` and `ngbkit undeploy`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ngbkit.commands.arguments import Argument
from ngbkit.sweep.trials import split_labels

_DEVICE = Argument(
    flags=("device",),
    help="its label in the devices file: `ngbkit devices` lists them",
    settings={"metavar": "DEVICE"},
)
DEPLOY = (
    _DEVICE,
    Argument(
        flags=("--extras",),
        help="compilers to bring: torch,onnxruntime,openvino,tvm,iree,executorch,cuda,onnxruntime-gpu,tensorrt,"
        "tensorrt-rtx, or '' for none",
        settings={"metavar": "NAMES"},
    ),
    Argument(
        flags=("--wheelhouse",),
        help="for a device without a network: send it wheels, those in DIR, or those that are fetched here for it",
        settings={"metavar": "DIR", "nargs": "?", "default": False, "const": True},
    ),
    Argument(
        flags=("--python",),
        help="the Python over there to use, 3.10 or newer",
        settings={"metavar": "PYTHON"},
    ),
    Argument(
        flags=("--system-site-packages",),
        help="see the packages of that Python too: a Jetson's torch and TensorRT come with its system",
        settings={"action": "store_true"},
    ),
)
UNDEPLOY = (
    _DEVICE,
    Argument(
        flags=("--discard",),
        help="also where it holds records that are not here",
        settings={"action": "store_true"},
    ),
)


def to_call(asked: argparse.Namespace) -> dict[str, Any]:
    """The keywords of `ngbkit.cluster.deployment.deploy.deploy` that parsed arguments ask for."""
    return {
        "extras": None if asked.extras is None else split_labels(asked.extras),
        "wheels": Path(asked.wheelhouse) if isinstance(asked.wheelhouse, str) else asked.wheelhouse,
        "python": asked.python,
        "system_site_packages": asked.system_site_packages,
    }
