"""The base of the launchers: the caller that waits for an engine, and a device's Python and state folder."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from ngbkit.cluster.devices import Device
from ngbkit.cluster.shell import join_words
from ngbkit.options import LAYOUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """The caller that waits for an engine: `say` reports the progress, `stopped` returns whether to give up."""

    say: Callable[[str], object]
    stopped: Callable[[], bool]


SILENT = Starter(say=str, stopped=bool)


def build_python_command(device: Device, *arguments: str) -> str:
    """Build the line of ``sh`` that runs the device's Python: the configured one, or that of `ngbkit deploy`."""
    if device.python is not None:
        return f"exec {join_words([device.python, *arguments])}"
    return f"exec {quote_state_dir(device)}/{LAYOUT.env}/bin/python {shlex.join(arguments)}"


def quote_state_dir(device: Device) -> str:
    """Quote the device's state folder for ``sh``: the configured one, or the default on that machine."""
    if device.state_dir is not None:
        return join_words([device.state_dir])
    return '"${NGBKIT_STATE_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/ngbkit}"'
