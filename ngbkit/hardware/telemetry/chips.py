"""The chip behind an accelerator of the devices file, and its reader."""

from __future__ import annotations

from pathlib import Path

from ngbkit.hardware.environment import ROOT
from ngbkit.hardware.telemetry import jetson, nvml, rapl
from ngbkit.hardware.telemetry.reading import Chip


def open(accelerator: str, root: Path = ROOT) -> Chip | None:
    """Open the chip of an accelerator, ``"cpu"`` or ``"cuda:0"``; None if it has no telemetry.

    The GPU is ordinal 0 of a child of this process. That is the first entry of this process's
    ``CUDA_VISIBLE_DEVICES``, a number, a UUID or the UUID of a MIG slice; without that variable, the accelerator's own
    number. A number is interpreted as NVML's, which counts by PCI bus. CUDA does so only under
    ``CUDA_DEVICE_ORDER=PCI_BUS_ID``; by default it lists the fastest first. If GPUs of different kinds make that
    matter, `describe` has a sentence under ``assumed``.

    Where the CPU computes, the chip is all its packages; on a Jetson it is the whole module in any case, since its
    rails do not separate CPU and GPU.
    """
    chip = _find(accelerator, root)
    return None if isinstance(chip, str) else chip


def find_problem(accelerator: str, root: Path = ROOT) -> str:
    """Explain why `open` cannot read a chip, and what to do about it; ``""`` if nothing is wrong."""
    problem = _find(accelerator, root)
    return problem if isinstance(problem, str) else ""


def _find(accelerator: str, root: Path) -> Chip | str | None:
    board = jetson.find_board(root, gpu=accelerator != "cpu") if jetson.is_jetson(root) else None
    if accelerator == "cpu":
        return board or rapl.find_cpu(root)
    if board is not None and board.has_gpu:
        return board
    # A board may have its GPU in a slot, which NVML reads.
    gpu = nvml.find_gpu(accelerator)
    return gpu if board is None or not isinstance(gpu, str) else board
