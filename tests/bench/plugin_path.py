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
