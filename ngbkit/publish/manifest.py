"""The manifest of a site: the notebook, cell, dataset and sweep of each figure, for verification."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ngbkit import validation
from ngbkit.errors import UsageError
from ngbkit.figures import pictures
from ngbkit.runs.recordings import MANIFEST

FILE = MANIFEST
FORMAT = 1

FIGURES, DATASETS = "_static/figures", "_static/datasets"
"""Folders of a site and of its archive."""

_FIGURE_KINDS, _DATASET_KINDS = (*pictures.KINDS, ".json"), (".nc", ".csv", ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFigure:
    """A figure of a site."""

    id: str  # of its element in the page, and the stem of its files: see `ngbkit.publish.naming`
    notebook: str  # the stem of its notebook
    cell: int  # the index of the cell that drew it
    code: str  # the hash of the cell's source
    spec: str  # the hash of the figure's specification
    provenance: dict[str, Any]  # see `ngbkit.figures.provenance`; empty for a figure that ngbkit did not draw
    datasets: dict[str, str]  # the stem of the files of each of its datasets, by hash
    title: str

    def list_files(self) -> list[str]:
        """List its pictures, its specification and the files of its datasets, as paths within the site."""
        return [
            *(f"{FIGURES}/{self.id}{kind}" for kind in _FIGURE_KINDS),
            *(f"{DATASETS}/{stem}{kind}" for stem in self.datasets.values() for kind in _DATASET_KINDS),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The title, notebooks and figures of a site."""

    title: str
    version: str  # of ngbkit, when it built the site
    notebooks: tuple[str, ...]  # their stems, in order
    figures: tuple[SiteFigure, ...]
    # The SHA-256 of each file of the site, by its path; without this file and the archive.
    files: dict[str, str] = field(default_factory=dict)

    def write(self, site: Path) -> Path:
        """Write the manifest into a site."""
        target = site / FILE
        target.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n")
        return target

    @classmethod
    def read(cls, site: Path) -> Manifest:
        """Read the manifest of a site."""
        try:
            data = json.loads((site / FILE).read_text())
            if data.pop("format") != FORMAT:
                raise KeyError("format")
            manifest: Manifest = validation.parse(cls, data)
        except (OSError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
            raise UsageError(
                f"{site} contains no site that this ngbkit can read: {error}. "
                "`ngbkit publish notebooks/ -o site/` builds one."
            ) from error
        return manifest
