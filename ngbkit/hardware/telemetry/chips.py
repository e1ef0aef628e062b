"""Which chip an accelerator of the devices file is, and how it is read."""

from __future__ import annotations

from pathlib import Path

from ngbkit.hardware.environment import ROOT
from ngbkit.hardware.telemetry import jetson, nvml
from ngbkit.hardware.telemetry.reading import Chip


def open(accelerator: str, root: Path = ROOT) -> Chip | None:
    """The chip of an accelerator, ready to be read; None where nothing can be known of it.

    Which GPU is meant: the one that is ordinal 0 to a child of this process. That is the first entry of this process's
    ``CUDA_VISIBLE_DEVICES``, a number, a UUID or the UUID of a MIG slice; where it is not set, the accelerator's own
    number. A number is taken for NVML's, which counts by PCI bus. CUDA does so only under
    ``CUDA_DEVICE_ORDER=PCI_BUS_ID``; by default it puts the fastest first. Where unlike GPUs make that matter,
    `describe` has a sentence under ``assumed``.

    On a Jetson it is the whole module, also where its CPU computes: its rails do not tell one from the other.

    Parameters
    ----------
    accelerator
        ``"cpu"``, or ``"cuda:0"`` with the number of the devices file.
    root
        Where /proc, /sys, /etc and /var hang.
    """
    found = _find(accelerator, root)
    return None if isinstance(found, str) else found


def lacks(accelerator: str, root: Path = ROOT) -> str:
    """Why `open` finds nothing where there should be something, and what to do about it; ``""`` where all is well."""
    found = _find(accelerator, root)
    return found if isinstance(found, str) else ""


def _find(accelerator: str, root: Path) -> Chip | str | None:
    board = jetson.find(root, gpu=accelerator != "cpu") if jetson.is_jetson(root) else None
    if accelerator == "cpu" or (board is not None and board.has_gpu):
        return board
    # A board may have its GPU in a slot, and that one is NVML's.
    found = nvml.find(accelerator)
    return found if board is None or not isinstance(found, str) else board
