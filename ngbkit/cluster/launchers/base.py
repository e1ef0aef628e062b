"""What the ways to start an engine share: whom to tell, and how Python and the state folder of a device are found."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from ngbkit.cluster.devices import Device
from ngbkit.cluster.shell import words


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """Who waits for an engine.

    Parameters
    ----------
    say
        Takes what is waited for, in words.
    stopped
        Whether the engine is not wanted any more.
    """

    say: Callable[[str], object]
    stopped: Callable[[], bool]


NOBODY = Starter(say=str, stopped=bool)


def python(device: Device, *arguments: str) -> str:
    """The line of ``sh`` that runs the device's Python: the one that is named, or the one that `ngbkit deploy` made."""
    if device.python is not None:
        return f"exec {words([device.python, *arguments])}"
    return f"exec {state_dir(device)}/env/bin/python {shlex.join(arguments)}"


def state_dir(device: Device) -> str:
    """The device's folder as ``sh`` finds it: the one that is named, or the one that ngbkit picks over there."""
    if device.state_dir is not None:
        return words([device.state_dir])
    return '"${NGBKIT_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/ngbkit}"'
