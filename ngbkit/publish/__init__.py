"""Publishes notebooks as a site whose figures others can verify and reproduce.

Files, in the order of the data::

    notebook -> recordings of the runs that its cells made (adoption.py) -> executed notebook (execute.py, kernel.py)
             -> HTML that requests nothing (sanitise.py) -> page with its figures (pages.py)
             -> front page (front.py) -> site by Sphinx (site.py, rendering.py, theme/)
             -> manifest (manifest.py), archive (archive.py), and the folder of the site (target.py)
             -> verification (checking.py, by the checks of checks/)
    archive -> unpacked (unpacking.py) -> executed again (replaying.py), or measured again and judged (remeasurement.py)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ngbkit.exports import export_lazily

if TYPE_CHECKING:
    from ngbkit.publish.checking import verify
    from ngbkit.publish.publication import publish

# The module of each name, imported lazily: the command line is parsed without them.
_EXPORTS = {"publish": "publication", "verify": "checking"}

__all__ = ["publish", "verify"]

__getattr__, __dir__ = export_lazily(__name__, _EXPORTS)
