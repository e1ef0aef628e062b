"""Trees of /proc and /sys of recorded machines, written from a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def record(root: Path, files: Mapping[str, object]) -> Path:
    """Write files below a root, from their contents by path."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def build_stat(*cores: tuple[int, int, int]) -> str:
    """/proc/stat of cores that were busy, idle and stolen for so many ticks."""
    rows = [(sum(column) for column in zip(*cores, strict=True)), *cores]
    names = ["cpu", *(f"cpu{number}" for number in range(len(cores)))]
    lines = [
        f"{name} {busy} 0 0 {idle} 0 0 0 {steal} 0 0" for name, (busy, idle, steal) in zip(names, rows, strict=True)
    ]
    return "\n".join([*lines, "intr 1 0 0", "ctxt 5"])
