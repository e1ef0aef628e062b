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
