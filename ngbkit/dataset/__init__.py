"""Records become labelled data: assembled, loaded, saved, merged; and what others have published, in the same form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ngbkit.exports import export_lazily

if TYPE_CHECKING:
    from ngbkit.dataset.assembly import assemble, nodes
    from ngbkit.dataset.storage import load, save

_EXPORTS = {
    "assemble": "assembly",
    "load": "storage",
    "nodes": "assembly",
    "save": "storage",
}

__all__ = ["assemble", "load", "nodes", "save"]

__getattr__, __dir__ = export_lazily(__name__, _EXPORTS)
