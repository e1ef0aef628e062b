"""Records become labelled data: assembled, loaded, saved, merged; and what others have published, in the same form."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ngbkit.dataset.assembly import assemble, nodes
    from ngbkit.dataset.storage import load, save

_EXPORTS = {
    "assemble": "ngbkit.dataset.assembly",
    "load": "ngbkit.dataset.storage",
    "nodes": "ngbkit.dataset.assembly",
    "save": "ngbkit.dataset.storage",
}

__all__ = ["assemble", "load", "nodes", "save"]


def __getattr__(name: str) -> Any:
    # xarray takes half a second to import, and a list of runs needs none.
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)
