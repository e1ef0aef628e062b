"""Plug-ins of ngbkit that this process and its children find."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ngbkit import registry


def put_on_path(folder: Path) -> None:
    """Let this process and its children import from a folder, and find the plug-ins in it."""
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    registry.refresh()


def write_plugin(folder: Path, group: str, name: str, source: str, record: str) -> None:
    """Write a distribution with one module, and an entry point of that group and name to a record of the module."""
    information = folder / f"ngbkit_{name}-1.0.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (folder / f"ngbkit_{name}.py").write_text(source)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ngbkit-{name}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[{group}]\n{name} = ngbkit_{name}:{record}\n")
