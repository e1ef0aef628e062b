"""Whether what a site shows still is what its data, its sweeps and its notebooks say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngbkit.dataset import storage
from ngbkit.dataset.dataset_hash import fingerprint
from ngbkit.errors import NgbkitError
from ngbkit.figures.provenance import KEY
from ngbkit.publish.manifest import Figure, Manifest
from ngbkit.workloads.base import content_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that does not agree.

    Parameters
    ----------
    figure
        Its id.
    what
        ``"dataset"``, ``"spec"``, ``"sweep"`` or ``"code"``.
    said
        In a sentence.
    """

    figure: str
    what: str
    said: str


def verify(site: str | Path, notebooks: str | Path | None = None) -> tuple[int, list[Finding]]:
    """How many figures a site has, and what of them does not agree.

    Parameters
    ----------
    site
        What `ngbkit publish` built.
    notebooks
        The folder of the notebooks that it was built from: their cells are looked at too. None: the copies in the site.

    Raises
    ------
    UsageError
        The folder holds no site.
    """
    folder = Path(site)
    manifest = Manifest.read(folder)
    sources = Path(notebooks) if notebooks is not None else folder / "notebooks"
    known = {name: _cells(sources / f"{name}.ipynb") for name in manifest.notebooks}
    digests: dict[str, str] = {}
    found = [finding for one in manifest.figures for finding in _of(one, folder, known[one.notebook], digests)]
    return len(manifest.figures), found


def _of(one: Figure, folder: Path, cells: set[str], digests: dict[str, str]) -> Iterator[Finding]:
    def finding(what: str, said: str) -> Finding:
        return Finding(figure=one.id, what=what, said=said)

    spec = _json(folder / "_static" / "figures" / f"{one.id}.json")
    if spec is None or content_hash(spec) != one.spec:
        yield finding("spec", "its specification is not the one that was drawn")
    elif spec.get("usermeta", {}).get(KEY, {}) != one.told:
        yield finding("spec", "its specification tells of another origin")
    if one.code not in cells:
        yield finding("code", f"no cell of {one.notebook} is the one that drew it, which was cell {one.cell}")
    digest = one.told.get("dataset")
    if not digest:
        return
    data = folder / "_static" / "datasets" / f"{digest}.nc"
    if digest not in digests:
        digests[digest] = _fingerprint(data)
    if digests[digest] != digest:
        yield finding("dataset", f"{data.name} {digests[digest] or 'is missing or cannot be read'}, and not {digest}")
    about = _json(data.with_suffix(".json"))
    if about is None or content_hash(about.get("sweep")) != one.told.get("sweep"):
        yield finding("sweep", "what was asked for is not what the figure says")


def _fingerprint(file: Path) -> str:
    try:
        return fingerprint(storage.load(file))
    except NgbkitError:
        return ""


def _cells(file: Path) -> set[str]:
    """The hashes of the cells of a notebook; none of one that is missing."""
    notebook = _json(file) or {"cells": []}
    return {content_hash("".join(cell["source"])) for cell in notebook["cells"]}


def _json(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None
