"""The sources that children of another interpreter import: the running ngbkit, and the modules of its plugins."""

from __future__ import annotations

import importlib.util
from contextlib import suppress
from pathlib import Path

import ngbkit
from ngbkit import registry

# Of all plugins, a child loads these.
_GROUPS = (registry.COMPILERS, registry.WORKLOADS)


def link_sources(folder: Path) -> Path:
    """Link the modules alone into a folder for its PYTHONPATH, and describe their entry points; return the folder."""
    information = folder / f"ngbkit-{ngbkit.__version__}.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    modules = {"ngbkit"}
    lines = []
    for group in _GROUPS:
        lines.append(f"[{group}]")
        for entry_point in registry.list_entry_points(group).values():
            lines.append(f"{entry_point.name} = {entry_point.value}")
            modules.add(entry_point.module.partition(".")[0])
    (information / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ngbkit\nVersion: {ngbkit.__version__}\n")
    for module in modules:
        source = _find_source(module)
        if source is not None:
            with suppress(FileExistsError):
                (folder / source.name).symlink_to(source)
    return folder


def _find_source(module: str) -> Path | None:
    """Find the folder or the file of a module; None if it is not installed."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    return Path(folders[0]) if folders else Path(spec.origin or "")
