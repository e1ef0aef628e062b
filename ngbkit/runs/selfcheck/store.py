"""Stores the latest self-check of each device where every later run finds it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.files import write_atomically
from ngbkit.hardware import environment
from ngbkit.user_text import parse_json

if TYPE_CHECKING:
    from ngbkit.runs.selfcheck.report import SelfCheck


def latest(device: str = "cpu", *, chip: str | None = None) -> dict[str, Any] | None:
    """Return the latest self-check of a device; None where there is none, or only one of another chip.

    Parameters
    ----------
    device
        Label of the device.
    chip
        The chip of the device. Default: this machine's own chip.

    Returns
    -------
    dict or None
        As `SelfCheck.to_json`: ``noise_floor``, ``smallest_speedup``, ``process_sd``, ``coverage``, ``groups``,
        ``created``, ``chip``, ``threads``, ``run``, ``ngbkit_version``, ….
    """
    check = load(device)
    expected = environment.read_chip() if chip is None else chip
    return check if check is not None and check.get("chip") == expected else None


def load(device: str) -> dict[str, Any] | None:
    """Load the stored self-check of a device, whatever its chip; None where there is none."""
    return _read(_path(device))


def save(check: SelfCheck) -> Path:
    """Save a self-check for `latest`, replacing the previous one of its device."""
    return _write(_path(check.device), check.to_json())


def save_history(device: str, history: Mapping[str, Any]) -> Path:
    """Save how far the runs of a device differed, for every later run."""
    return _write(options.LAYOUT.locate_history(options.get_state_dir(), device), history)


def load_history(device: str) -> Mapping[str, Any]:
    """Load what `save_history` saved; empty without it."""
    return _read(options.LAYOUT.locate_history(options.get_state_dir(), device)) or {}


def _write(path: Path, content: Mapping[str, Any]) -> Path:
    options.make_private(path.parent)
    with write_atomically(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2))
    return path


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = parse_json(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _path(device: str) -> Path:
    return options.LAYOUT.locate_selfcheck(options.get_state_dir(), device)
