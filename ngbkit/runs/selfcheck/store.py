"""The last self-check of each device, kept where every later run finds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.files import write_atomically
from ngbkit.hardware import environment

if TYPE_CHECKING:
    from ngbkit.runs.selfcheck.record import SelfCheck


def latest(device: str = "cpu", *, chip: str | None = None) -> dict[str, Any] | None:
    """What the last self-check of a device found; None where there was none, or where it was of another chip.

    Parameters
    ----------
    device
        Its label.
    chip
        What the device is now. Default: this machine's own chip.

    Returns
    -------
    dict or None
        As `SelfCheck.to_json`: ``noise_floor``, ``smallest_speedup``, ``process_sd``, ``coverage``, ``groups``,
        ``created``, ``chip``, ``threads``, ``run``, ``ngbkit_version``, ….
    """
    try:
        found: dict[str, Any] = json.loads(_path(device).read_text())
    except (OSError, ValueError):
        return None
    is_here = isinstance(found, dict) and found.get("chip") == (environment.chip() if chip is None else chip)
    return found if is_here else None


def keep(check: SelfCheck) -> Path:
    """Write a self-check where `latest` reads it, in the place of the one before."""
    path = _path(check.device)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with write_atomically(path) as temporary:
        temporary.write_text(json.dumps(check.to_json(), indent=2))
    return path


def _path(device: str) -> Path:
    return options.get_state_dir() / options.LAYOUT.selfcheck / f"{device}.json"
