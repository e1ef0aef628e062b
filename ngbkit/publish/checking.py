"""Verifies that the figures of a site agree with its data, its sweeps and its notebooks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngbkit.dataset import storage
from ngbkit.dataset.dataset_hash import hash_dataset
from ngbkit.errors import NgbkitError
from ngbkit.figures.provenance import KEY, list_parts
from ngbkit.publish.manifest import DATASETS, FIGURES, Manifest, SiteFigure
from ngbkit.user_text import parse_path
from ngbkit.workloads.base import hash_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A figure that does not agree with its origin.

    Parameters
    ----------
    figure
        Id of the figure.
    what
        The difference: ``"dataset"``, ``"spec"``, ``"sweep"`` or ``"code"``.
    said
        A sentence on the difference.
    """

    figure: str
    what: str
    said: str


def verify(site: str | Path, notebooks: str | Path | None = None) -> tuple[int, list[Finding]]:
    """Return the number of figures of a site, and those that do not agree with their origin.

    Parameters
    ----------
    site
        Folder that `ngbkit publish` built.
    notebooks
        Folder of the notebooks that the site was built from, to compare with. Default: the copies in the site.

    Raises
    ------
    UsageError
        The folder contains no site.
    """
    folder = parse_path(site)
    manifest = Manifest.read(folder)
    sources = parse_path(notebooks) if notebooks is not None else folder / "notebooks"
    cells = {name: _hash_cells(sources / f"{name}.ipynb") for name in manifest.notebooks}
    digests: dict[str, str] = {}
    findings = [
        Finding(figure=figure.id, what=subject, said=sentence)
        for figure in manifest.figures
        for subject, sentence in _check(figure, folder, cells[figure.notebook], digests)
    ]
    return len(manifest.figures), findings


def _check(figure: SiteFigure, folder: Path, cells: set[str], digests: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Check a figure against its specification, cell, dataset and sweep; `digests` caches the digests of files."""
    spec = _load_json(folder / FIGURES / f"{figure.id}.json")
    if spec is None or hash_json(spec) != figure.spec:
        yield "spec", "the specification is missing or has changed since the figure was drawn"
    elif spec.get("usermeta", {}).get(KEY, {}) != figure.provenance:
        yield "spec", "the specification has another provenance than the manifest"
    if figure.code not in cells:
        yield "code", f"cell {figure.cell} of {figure.notebook} drew it, and has changed since"
    for part in list_parts(figure.provenance):
        if part.get("dataset"):
            yield from _check_dataset(part, figure, folder, digests)


def _check_dataset(
    provenance: Mapping[str, Any], figure: SiteFigure, folder: Path, digests: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Check the dataset and the sweep of a figure that is not composed of others."""
    digest = provenance["dataset"]
    data = folder / DATASETS / f"{figure.datasets.get(digest, digest)}.nc"
    if data.name not in digests:
        digests[data.name] = _fingerprint(data)
    if digests[data.name] != digest:
        state = f"has the hash {digests[data.name]}" if digests[data.name] else "is missing or unreadable"
        yield "dataset", f"{data.name} {state}; expected {digest}"
    metadata = _load_json(data.with_suffix(".json"))
    if metadata is None or hash_json(metadata.get("sweep")) != provenance.get("sweep"):
        yield "sweep", f"the sweep of {data.name} is missing or differs from that of the figure"


def _fingerprint(file: Path) -> str:
    try:
        return hash_dataset(storage.load(file))
    except NgbkitError:
        return ""


def _hash_cells(file: Path) -> set[str]:
    """Hash the cells of a notebook; a missing notebook has none."""
    notebook = _load_json(file) or {"cells": []}
    return {hash_json("".join(cell["source"])) for cell in notebook["cells"]}


def _load_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        return None
